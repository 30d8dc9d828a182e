//! The receive queue of a port in its process's receive queues: the receiving side of all
//! connections to the port that pass through it.

use super::error::PortError;
use super::event::PolledEvent;
use crate::connection::{DrainState, JobQueues};
use crate::names::{SourceTable, system};
use crate::receive_queues::Class;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Result of a poll of the queue.
pub(super) enum QueueItem {
    Event(PolledEvent),
    /// The connection with this number has ended.
    Ended(u32, PolledEvent),
}

#[derive(Debug)]
pub(super) struct PortQueue {
    job_queues: Arc<JobQueues>,
    sources: Arc<SourceTable>,
    port: usize,
    connections: Vec<DrainState>,
    /// True if a connection waits for its last messages.
    is_any_draining: bool,
    /// Epoll set of this receiver. The event is shared by all receivers of the process, so none may
    /// clear it; in a set of its own, every notification is an edge for this receiver.
    watch: Option<OwnedFd>,
}

impl PortQueue {
    pub(super) fn new(
        job_queues: &Arc<JobQueues>,
        sources: &Arc<SourceTable>,
        port: u16,
    ) -> PortQueue {
        PortQueue {
            job_queues: Arc::clone(job_queues),
            sources: Arc::clone(sources),
            port: port.into(),
            connections: Vec::new(),
            is_any_draining: false,
            watch: None,
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn add(&mut self, connection: DrainState) {
        self.connections.push(connection);
    }

    /// Returns true if the connection with this number passes through the queue and has not ended.
    pub(super) fn has(&self, number: u32) -> bool {
        self.connections.iter().any(|connection| connection.number() == number)
    }

    /// Checks the notices of the name server on all connections.
    pub(super) fn check_notices(&mut self) {
        let queues = self.job_queues.own();
        for connection in &mut self.connections {
            self.is_any_draining |= connection.check_notices(&queues, self.port);
        }
    }

    /// Takes the next message, replies first, or the end of a connection.
    pub(super) fn poll(&mut self, bytes: &mut Vec<u8>) -> Result<Option<QueueItem>, PortError> {
        if self.is_any_draining
            && let Some(ended) = self.take_drained()
        {
            return Ok(Some(ended));
        }
        let mut queues = self.job_queues.own();
        for class in [Class::Reply, Class::Request] {
            while let Some(message) = queues.try_recv(self.port, class)? {
                if self.is_any_draining {
                    // Refused messages count as well: they are part of the backlog.
                    let count = |connection: &mut DrainState| connection.count_message(class);
                    self.connections.iter_mut().for_each(count);
                }
                let header = message.header();
                if self.sources.accepts(header.source) {
                    bytes.clear();
                    bytes.extend_from_slice(message.data());
                    let source = header.source;
                    let handler = header.handler;
                    let event = PolledEvent::Message { source, handler, class };
                    return Ok(Some(QueueItem::Event(event)));
                }
            }
        }
        Ok(None)
    }

    /// Removes a connection after its last message has been received.
    #[cold]
    fn take_drained(&mut self) -> Option<QueueItem> {
        let queues = self.job_queues.own();
        let is_drained = |connection: &mut DrainState| connection.is_drained(&queues, self.port);
        let ended = self.connections.iter_mut().position(is_drained);
        drop(queues);
        let connection = self.connections.swap_remove(ended?);
        self.is_any_draining = self.connections.iter().any(DrainState::is_draining);
        let number = connection.number();
        Some(QueueItem::Ended(number, PolledEvent::Disconnected(connection.into_error()?)))
    }

    /// Requests notifications of the event. Returns true if the queue has to be polled again before
    /// a sleep.
    pub(super) fn announce_sleep(&mut self) -> Result<bool, PortError> {
        let watch = match &self.watch {
            Some(watch) => watch,
            None => {
                let watch =
                    epoll::create(CreateFlags::CLOEXEC).map_err(system("create an epoll set"))?;
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(&watch, self.job_queues.event(), EventData::new_u64(0), flags)
                    .map_err(system("watch the event of the receive queues"))?;
                self.watch.insert(watch)
            }
        };
        // Consumes the edges so far. Every notification after the request below is a new edge, so
        // none is lost between the request and the sleep.
        let mut edges = Vec::with_capacity(1);
        match epoll::wait(
            watch,
            rustix::buffer::spare_capacity(&mut edges),
            Some(&Timespec::default()),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(system("poll the event of the receive queues")(error).into());
            }
        }
        let mut queues = self.job_queues.own();
        queues.request_arrival();
        let needs_poll = |class| queues.needs_poll(self.port, class);
        Ok([Class::Reply, Class::Request].into_iter().any(needs_poll))
    }

    /// Returns a descriptor that is readable after a notification since the last
    /// [announcement](Self::announce_sleep).
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
