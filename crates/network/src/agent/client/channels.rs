//! A rank's ends of channels with ranks on other nodes, and its windows.

use super::AgentClient;
use crate::agent::channel_end::ChannelEnd;
use crate::agent::channels::MOST_SLOTS;
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

    /// Opens the window of this rank at an offset of the job's segment to those of the ranks in a
    /// [table](crate::agent::queues::table) that are on other nodes. They access it through two
    /// channels of lines. Their ports are that of the window with [`COMMANDS`] and [`ANSWERS`].
    /// Once this has returned the agent executes commands, and uses the table no more.
    ///
    /// [`COMMANDS`]: crate::agent::channels::COMMANDS
    /// [`ANSWERS`]: crate::agent::channels::ANSWERS
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the windows and channels of this rank take too much memory of the node
    /// service; also if the port is open already, no window lies there, or the node service has ended.
    pub fn open_window(&self, port: u64, at: Offset, table: Offset) -> Result<(), Error> {
        let open = Submission::OpenWindow { port, at, table };
        let space = Error::TooLarge {
            backend: "agent",
            what: "the slots of this rank's windows and channels with other nodes".into(),
            needed: MOST_SLOTS + 1,
            limit: MOST_SLOTS,
            way_out: "drop windows and channels that are no longer used before you open more",
        };
        let missing = "no such window lies in the segment of the job";
        self.open_elsewhere(open, (format_args!("window {port:#x}"), missing), space)
    }

    /// Closes a window for other nodes: commands of their ranks find it withdrawn.
    pub fn close_window(&self, port: u64) {
        // An agent that has ended, or that this rank has left, has closed it.
        let _ = self.submit(&mut self.table(), Submission::CloseWindow { port });
    }
}
