//! Marks of waiting threads for the agent.

use network::agent::messages::port::WaitMark;
use queues::remote_waits::RemoteWaits;

/// Marks of this rank's waiting threads.
#[derive(Debug)]
pub(crate) struct AgentWaits(pub(crate) WaitMark);

impl RemoteWaits for AgentWaits {
    fn begin(&self) {
        self.0.begin();
    }

    fn end(&self) {
        self.0.end();
    }

    fn set_polling(&self, is_polling: bool) {
        self.0.set_polling(is_polling);
    }

    fn shares_core(&self) -> bool {
        self.0.shares_core()
    }
}
