//! A rank's ends of messages and flows with ranks on other nodes.

use super::AgentClient;
use crate::agent::messages::area::{self, Area};
use crate::agent::messages::port::{MessagePort, WaitMark};
use crate::agent::submission::Submission;
use crate::backend::ExitedRank;
use crate::error::{Error, system};
use crate::flows::{ChannelEnd, Purpose};
use shm::event::Event;
use shm::segment::Offset;
use std::sync::Arc;

impl AgentClient {
    /// Opens this rank's end of its messages with ranks on other nodes. A rank does so once. Each
    /// direction has a ring of at most `ring` bytes, from 256 KiB to 4 MiB.
    ///
    /// # Errors
    /// If there is no memory, or the node service has ended.
    pub fn open_messages(&self, ring: u64) -> Result<MessagePort, Error> {
        let ring = ring.clamp(area::LEAST_RING, area::MOST_RING);
        let ring = 1 << ring.ilog2();
        // Never freed: the agent uses it until this rank has exited.
        let at = self.arena.allocate_zeroed(area::area_bytes(ring), 64);
        let at = at.map_err(|error| system("take memory for messages to other nodes", error))?;
        let area = Area::open(self.region.segment(), at, ring)?;
        let notifier = self.notifier.try_clone();
        let notifier = notifier.map_err(|error| system("copy a descriptor", error))?;
        self.check_agent()?;
        self.submit(&mut self.table(), Submission::OpenMessages { at, ring })?;
        let service = self.service.clone();
        Ok(MessagePort::new(Arc::clone(&self.region), area, notifier, service))
    }

    /// Opens a port of this rank between nodes. `queue` is the offset of its receive queue in the
    /// segment of the node's ranks, or 0 if it only sends, `table` that of a
    /// [table](crate::flows::table) of the port's ranks. The rank of the node with the lowest number
    /// thereby opens the outgoing queues. Once this has returned the agent delivers to the queue. It
    /// releases the count of users (u64) at `uses` by 1 when it has closed the queue, and when it has
    /// closed the outgoing queues.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the ends of this rank take too much memory of the node service; also
    /// if the port is open already, no such queues lie there, or the node service has ended.
    pub fn open_port(&self, port: u64, [queue, table, uses]: [Offset; 3]) -> Result<(), Error> {
        let open = Submission::OpenPort { port, at: queue, table, uses };
        let named = (format_args!("port {port:#x}"), "no such queues lie");
        self.open_elsewhere(open, named, Purpose::Queues)
    }

    /// Closes the receive queue of a port; what arrives for it is lost, and its senders on other
    /// nodes find it closed.
    pub fn close_receiver(&self, port: u64) {
        // An agent that has ended, or that this rank has left, has closed it.
        let _ = self.submit(&mut self.table(), Submission::CloseReceiver { port });
    }

    /// Ends the sends of this rank to other nodes by a port. What it has sent still arrives.
    pub fn close_senders(&self, port: u64) {
        // As in `close_receiver`.
        let _ = self.submit(&mut self.table(), Submission::CloseSenders { port });
    }

    /// Opens an end of a channel between this rank and one on another node, with its ring at an
    /// offset of the job's segment. `port` names the channel, together with both ranks. Once this has
    /// returned the agent serves the end.
    ///
    /// # Errors
    /// Those of [`open_port`](Self::open_port).
    pub fn open_channel(&self, port: u64, end: ChannelEnd, at: Offset) -> Result<(), Error> {
        let open = Submission::OpenChannel { port, end, at };
        let named = (format_args!("a channel of port {port:#x}"), "no such ring lies");
        self.open_elsewhere(open, named, Purpose::Channels)
    }

    /// Opens the window of this rank at an offset of the job's segment to those of the ranks in a
    /// [table](crate::flows::table) that are on other nodes. They access it through two channels of
    /// lines. Their ports are that of the window with [`COMMANDS`](crate::flows::COMMANDS) and
    /// [`ANSWERS`](crate::flows::ANSWERS). Once this has returned the agent executes commands, and
    /// uses the table no more.
    ///
    /// # Errors
    /// Those of [`open_port`](Self::open_port).
    pub fn open_window(&self, port: u64, at: Offset, table: Offset) -> Result<(), Error> {
        let open = Submission::OpenWindow { port, at, table };
        let named = (format_args!("window {port:#x}"), "no such window lies");
        self.open_elsewhere(open, named, Purpose::Windows)
    }

    /// Closes a window for other nodes: commands of their ranks find it withdrawn.
    pub fn close_window(&self, port: u64) {
        // As in `close_receiver`.
        let _ = self.submit(&mut self.table(), Submission::CloseWindow { port });
    }

    /// Ranks of the job that have exited, and from which nothing follows in the receive queue of a
    /// port.
    pub fn queue_exits(&self, port: u64) -> Vec<ExitedRank> {
        self.query_exits(|first| Submission::QueryQueueExits { port, first })
    }

    /// Returns the event that wakes the agent, for the ends of [flows](crate::flows).
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn event(&self) -> Result<Event, Error> {
        let notifier = self.notifier.try_clone();
        Ok(Event::from_fd(notifier.map_err(|error| system("copy a descriptor", error))?))
    }

    /// Returns the count of waiting threads.
    pub fn wait_mark(&self) -> WaitMark {
        WaitMark::new(Arc::clone(&self.region))
    }
}
