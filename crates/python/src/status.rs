//! Descriptions of messages.

use pyo3::prelude::*;

/// Description of a message that was received or found.
#[pyclass(frozen, get_all, module = "tradewind")]
#[derive(Clone, Copy)]
pub(crate) struct Status {
    /// The sender.
    source: u32,
    /// The tag.
    tag: u32,
    /// Length of the message in bytes.
    bytes: u64,
}

impl Status {
    pub(crate) fn of(status: tradewind::Status) -> Self {
        Status { source: status.source(), tag: status.tag(), bytes: status.bytes() }
    }
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        format!("Status(source={}, tag={}, bytes={})", self.source, self.tag, self.bytes)
    }
}
