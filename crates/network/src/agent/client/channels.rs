//! A rank's ends of channels with ranks on other nodes.

use super::AgentClient;
use crate::agent::channel_end::ChannelEnd;
use crate::agent::submission::Submission;
use crate::error::Error;
use shm::segment::Offset;

impl AgentClient {
    /// Opens an end of a channel between this rank and one on another node, with its ring at an
    /// offset of the job's segment. `port` names the channel, together with both ranks. Once this has
    /// returned the agent serves the end.
    ///
    /// # Errors
    /// If the node service has ended.
    pub fn open_channel(&self, port: u64, end: ChannelEnd, at: Offset) -> Result<(), Error> {
        let open = Submission::OpenChannel { port, end, at };
        self.query_for_certain(&mut self.table(), open).map(drop)
    }
}
