//! Time-outs of connections.

use std::time::Duration;

/// Time-outs of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time until all nodes are connected.
    pub connecting: Duration,
    /// Time until data, or a probe of an idle connection, is acknowledged.
    pub unanswered: Duration,
}

impl Default for Timeouts {
    /// A minute to connect, fifteen seconds without an acknowledgement.
    fn default() -> Self {
        Timeouts { connecting: Duration::from_secs(60), unanswered: Duration::from_secs(15) }
    }
}
