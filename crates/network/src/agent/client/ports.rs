//! A rank's ends of messages and queues with ranks on other nodes.

use super::AgentClient;
use crate::agent::messages::area::{self, Area};
use crate::agent::messages::port::{MessagePort, WaitMark};
use crate::agent::shared_region::Submission;
use crate::error::{Error, system};
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

    /// Opens the queue at an offset of the job's segment to ranks on other nodes, as port `port` of
    /// this rank. What this rank submits afterwards, the agent processes after that.
    ///
    /// # Errors
    /// If the node service has ended.
    pub fn open_incoming_queue(&self, port: u64, at: Offset) -> Result<(), Error> {
        self.check_agent()?;
        self.submit(&mut self.table(), Submission::OpenIncoming { port, at })
    }

    /// Opens the outgoing queues of this node in the [table](crate::agent::queues::table) at an offset of
    /// the job's segment, which lead to port `port` of ranks on other nodes. One rank of the node
    /// does so.
    ///
    /// # Errors
    /// If the node service has ended.
    pub fn open_outgoing_queues(&self, port: u64, at: Offset) -> Result<(), Error> {
        self.check_agent()?;
        self.submit(&mut self.table(), Submission::OpenOutgoing { port, at })
    }

    /// Returns the event that wakes the agent, for the ends of [queues](crate::agent::queues).
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

    /// Returns once the agent has executed all earlier entries of this rank, in their order: the
    /// answer to a query that comes behind them shows that.
    ///
    /// # Errors
    /// If the agent has ended.
    pub fn flush(&self) -> Result<(), Error> {
        // No communicator has this number, so nothing is unexpected in it.
        let query = Submission::QueryUnexpected { communicator: u32::MAX, sequence: 0 };
        self.query(&mut self.table(), query);
        self.check_agent()
    }
}
