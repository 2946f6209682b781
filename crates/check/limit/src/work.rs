//! What a bare server and its client exchange: requests and answers of fixed length.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes of a CapsuleCmd PDU without data (NVMe/TCP Transport 1.0c section 3.6.2.6).
pub const COMMAND_BYTES: usize = 72;
/// Bytes of a CapsuleResp PDU, and of the header of C2HData (sections 3.6.2.7 and 3.6.2.9).
pub const ANSWER_BYTES: usize = 24;
/// The most data that one request moves.
pub const DATA_BYTES_MAX: usize = 4 << 20;

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// With the answers.
    Read,
    /// With the requests.
    Write,
}

/// Requests and answers of one kind, written as `read:4k` or `write:128k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// Which way the data goes.
    pub direction: Direction,
    /// Bytes of data of each request, 1 to [`DATA_BYTES_MAX`].
    pub data_bytes: usize,
}

impl Work {
    /// Bytes of one request.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        match self.direction {
            Direction::Read => COMMAND_BYTES,
            Direction::Write => COMMAND_BYTES + self.data_bytes,
        }
    }

    /// Bytes of one answer.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        match self.direction {
            Direction::Read => ANSWER_BYTES + self.data_bytes,
            Direction::Write => ANSWER_BYTES,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        if self.data_bytes.is_multiple_of(1024) {
            write!(formatter, "{direction}:{}k", self.data_bytes / 1024)
        } else {
            write!(formatter, "{direction}:{}", self.data_bytes)
        }
    }
}

/// Why a text is no [`Work`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no work: write read or write, a colon and bytes up to 4096k, as in read:4k")]
pub struct WorkError(String);

impl FromStr for Work {
    type Err = WorkError;

    fn from_str(text: &str) -> Result<Self, WorkError> {
        let wrong = || WorkError(text.to_owned());
        let (direction, bytes) = text.split_once(':').ok_or_else(wrong)?;
        let direction = match direction {
            "read" => Direction::Read,
            "write" => Direction::Write,
            _ => return Err(wrong()),
        };
        let (digits, unit) = match bytes.strip_suffix('k') {
            Some(digits) => (digits, 1024),
            None => (bytes, 1),
        };
        let count: usize = digits.parse().map_err(|_| wrong())?;
        match count.checked_mul(unit) {
            Some(data_bytes) if (1..=DATA_BYTES_MAX).contains(&data_bytes) => Ok(Work {
                direction,
                data_bytes,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_written_and_read() {
        let work: Work = "read:4k".parse().unwrap();
        assert_eq!((work.request_bytes(), work.answer_bytes()), (72, 4120));
        assert_eq!(work.to_string(), "read:4k");
        let work: Work = "write:131072".parse().unwrap();
        assert_eq!((work.request_bytes(), work.answer_bytes()), (131_144, 24));
        assert_eq!(work.to_string(), "write:128k");
        assert_eq!("read:700".parse::<Work>().unwrap().to_string(), "read:700");
    }

    #[test]
    fn what_is_no_work_is_refused() {
        for text in [
            "",
            "read",
            "read:",
            "read:0",
            "read:4M",
            "trim:4k",
            "read:-1",
            "write:4097k",
            "read:99999999999999999999k",
        ] {
            assert_eq!(text.parse::<Work>(), Err(WorkError(text.to_owned())));
        }
    }
}
