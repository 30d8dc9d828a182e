//! Frames to be written to the other end.

use super::frame::Frame;
use super::seal::Seal;

/// Frames to be written to the other end, with their codes.
#[derive(Debug)]
pub(super) struct Output {
    seal: Seal,
    bytes: Vec<u8>,
    /// Number of `bytes` that were written.
    written: usize,
}

impl Output {
    pub(super) fn new(seal: Seal) -> Output {
        Output { seal, bytes: Vec::new(), written: 0 }
    }

    pub(super) fn put(&mut self, frame: &Frame<'_>) {
        self.seal.encode(frame, &mut self.bytes);
    }

    /// Returns the bytes to be written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Removes bytes that were written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.written = (self.written + bytes).min(self.bytes.len());
        // Copied only when the written part is the larger one, so each byte is copied once at most.
        if self.written * 2 >= self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}
