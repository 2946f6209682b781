//! What one send transmits.

use std::ops::Range;

use crate::View;

/// Protocol headers and data views in the order in which they go out. The headers are copied in, the views are not.
/// It is handed to a send whole, comes back when the send is done, and is cleared and used again, so that a steady
/// stream of sends allocates nothing.
#[derive(Debug, Default)]
pub struct Gather {
    headers: Vec<u8>,
    parts: Vec<Part>,
    length: usize,
}

#[derive(Debug)]
enum Part {
    Header(Range<usize>),
    Data(View),
}

impl Gather {
    /// Nothing to send yet.
    #[must_use]
    pub fn new() -> Self {
        Gather::default()
    }

    /// Appends a copy of `bytes`.
    pub fn push_header(&mut self, bytes: &[u8]) {
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        let end = self.headers.len();
        match self.parts.last_mut() {
            Some(Part::Header(range)) => range.end = end,
            _ => self.parts.push(Part::Header(start..end)),
        }
        self.length += bytes.len();
    }

    /// Appends a view. An empty one adds nothing.
    pub fn push_view(&mut self, view: View) {
        if !view.is_empty() {
            self.length += view.len();
            self.parts.push(Part::Data(view));
        }
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Contiguous runs of bytes that [`Gather::slices`] yields.
    #[must_use]
    pub fn slice_count(&self) -> usize {
        self.parts.len()
    }

    /// The bytes, as contiguous runs in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Header(range) => &self.headers[range.clone()],
            Part::Data(view) => view,
        })
    }

    /// Forgets everything, keeping the memory for the next use.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.parts.clear();
        self.length = 0;
    }
}
