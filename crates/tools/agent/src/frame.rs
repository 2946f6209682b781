//! Frames: four bytes that say how many follow, most significant first, and so many bytes of JSON.
//!
//! Knows no socket. How long a frame may be is decided by who reads it: before somebody has shown the token, very little.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::plain::plain;

/// Bytes of the number that begins a frame.
const HEAD_BYTES: usize = 4;
/// Bytes of a frame from somebody who is not known yet.
pub const FIRST_BYTES_MAX: usize = 4 << 10;
/// Bytes of any other frame. The longest hold one interval's histograms.
pub const BYTES_MAX: usize = 16 << 20;

/// Why bytes are no frame, or a frame no message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// More than may be.
    #[error("a message of {bytes} bytes was announced, and {max} are allowed")]
    TooLong {
        /// What was announced.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// A frame of nothing.
    #[error("an empty message was announced")]
    Empty,
    /// No message. Why is told without what a terminal might obey.
    #[error("this is no message: {}", shown(.0))]
    Message(#[from] serde_json::Error),
    /// The end came within a frame.
    #[error("the connection ended within a message")]
    Truncated,
}

fn shown(error: &serde_json::Error) -> String {
    plain(&error.to_string())
}

/// A message as a frame.
///
/// # Errors
/// [`FrameError::TooLong`], where it is longer than any reader takes.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEAD_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = frame.len() - HEAD_BYTES;
    if bytes > BYTES_MAX {
        return Err(FrameError::TooLong {
            bytes,
            max: BYTES_MAX,
        });
    }
    frame[..HEAD_BYTES].copy_from_slice(&(bytes as u32).to_be_bytes());
    Ok(frame)
}

/// Bytes as they came, until they are frames.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    max: usize,
}

impl Frames {
    /// Of a peer that is not known yet.
    #[must_use]
    pub fn of_stranger() -> Self {
        Frames {
            bytes: Vec::new(),
            max: FIRST_BYTES_MAX,
        }
    }

    /// Of a peer that is known.
    #[must_use]
    pub fn of_known() -> Self {
        Frames {
            max: BYTES_MAX,
            ..Frames::of_stranger()
        }
    }

    /// The peer has shown who it is.
    pub fn trust(&mut self) {
        self.max = BYTES_MAX;
    }

    /// Takes bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, where all of it is there.
    ///
    /// # Errors
    /// [`FrameError`]: what came is not this protocol, and nothing after it can be read.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(head) = self.bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let bytes = u32::from_be_bytes(*head) as usize;
        if bytes == 0 {
            return Err(FrameError::Empty);
        }
        if bytes > self.max {
            return Err(FrameError::TooLong {
                bytes,
                max: self.max,
            });
        }
        let end = HEAD_BYTES + bytes;
        let Some(body) = self.bytes.get(HEAD_BYTES..end) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.bytes.drain(..end);
        Ok(Some(message))
    }

    /// Whether the end of what came is the end of a message.
    ///
    /// # Errors
    /// [`FrameError::Truncated`].
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(FrameError::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_kept() {
        let mut frames = Frames::of_stranger();
        frames.push(b"GET / HTTP/1.1\r\n");
        let error = frames.take::<String>().unwrap_err();
        assert!(matches!(error, FrameError::TooLong { .. }), "{error}");
        let mut frames = Frames::of_known();
        frames.push(&[0; 8]);
        assert!(matches!(frames.take::<String>(), Err(FrameError::Empty)));
        let mut frames = Frames::of_known();
        frames.push(&[0, 0, 0, 2, b'{', b'!']);
        assert!(matches!(
            frames.take::<String>(),
            Err(FrameError::Message(_))
        ));
        let mut frames = Frames::of_known();
        let hostile = serde_json::json!({"message": "\u{1b}[31m"});
        frames.push(&encode(&hostile).expect("it is short"));
        let error = frames.take::<crate::message::ToAgent>().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("[31m") && !text.contains('\u{1b}'),
            "{text:?}"
        );
        let mut frames = Frames::of_known();
        frames.push(&[0, 0, 0, 9, b'"']);
        assert!(matches!(frames.take::<String>(), Ok(None)));
        assert!(matches!(frames.finish(), Err(FrameError::Truncated)));
    }

    #[test]
    fn a_stranger_is_heard_for_less() {
        let frame = encode(&"a".repeat(FIRST_BYTES_MAX)).expect("it is short enough");
        let mut frames = Frames::of_stranger();
        frames.push(&frame);
        assert!(frames.take::<String>().is_err());
        let mut frames = Frames::of_stranger();
        frames.trust();
        frames.push(&frame);
        assert_eq!(
            frames.take::<String>().unwrap().unwrap().len(),
            FIRST_BYTES_MAX
        );
        assert!(encode(&"a".repeat(BYTES_MAX)).is_err());
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            messages in proptest::collection::vec(".{0,40}", 0..8),
            cuts in proptest::collection::vec(1..60usize, 1..40),
        ) {
            let sent: Vec<u8> = messages
                .iter()
                .flat_map(|message| encode(message).unwrap())
                .collect();
            let (mut frames, mut came) = (Frames::of_known(), Vec::new());
            let (mut rest, mut cuts) = (&sent[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (part, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                frames.push(part);
                rest = later;
                while let Some(message) = frames.take::<String>().unwrap() {
                    came.push(message);
                }
            }
            prop_assert!(frames.finish().is_ok());
            prop_assert_eq!(came, messages);
        }

        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut frames = Frames::of_stranger();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.take::<crate::message::ToAgent>() {}
        }
    }
}
