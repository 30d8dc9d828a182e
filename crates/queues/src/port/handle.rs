//! An open port.

use super::error::PortError;
use super::queue::PortQueue;
use crate::connection::{DrainState, JobQueues, Receiver, Sender};
use crate::id::{QueueIndex, QueueName, SourceName};
use crate::names::{
    ConnectionOffer, ConnectionParts, Destination, DestinationTable, DroppedEnd, NameError,
    Request, Response, ServerConnection, SourceFilter, SourceTable, TableError, TransportOffer,
};
use crate::receive_queues::Class;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time to wait for responses that the name server sends at once.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

fn response_deadline() -> Instant {
    Instant::now() + RESPONSE_TIMEOUT
}

/// A connection that another process has opened to a port.
pub(super) enum Incoming {
    Ring {
        receiver: Receiver,
        /// Number of the connection with the preceding messages, or 0.
        after: u32,
    },
    Queue(DrainState),
}

/// An open port: a transmit queue with its destination table, and a receive queue.
#[derive(Debug)]
pub struct Port {
    pub(super) server: Arc<ServerConnection>,
    pub(super) job_queues: Option<Arc<JobQueues>>,
    pub(super) port: u16,
    pub(super) name: QueueName,
    pub(super) queue: QueueIndex,
    pub(super) table: Arc<DestinationTable>,
    pub(super) sources: Arc<SourceTable>,
}

impl Port {
    /// Returns the name of the port in its own job.
    pub fn name(&self) -> QueueName {
        self.name
    }

    /// Returns the number of its receive queue on the node.
    pub fn queue(&self) -> QueueIndex {
        self.queue
    }

    /// Returns the table of the transmit queue.
    pub fn table(&self) -> &Arc<DestinationTable> {
        &self.table
    }

    /// Returns the sources that the receive queue accepts.
    pub fn sources(&self) -> &Arc<SourceTable> {
        &self.sources
    }

    /// Returns the destination of a name: one load.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownName`], [`TableError::RevokedName`], [`TableError::ProcessGone`].
    pub fn lookup(&self, name: QueueName) -> Result<Destination, TableError> {
        self.table.lookup(name)
    }

    /// Opens a connection with a ring to the destination of a name. There is at most one for each
    /// port, name and class. A [`PortSender`](super::PortSender) opens its connections itself.
    ///
    /// # Errors
    ///
    /// [`PortError::Table`] for a name without a destination, [`NameError::Refused`],
    /// [`PortError::Connection`].
    pub fn open_connection(&self, name: QueueName, class: Class) -> Result<Sender, PortError> {
        let (offer, descriptors) =
            self.request_connection((name, class), true, response_deadline())?;
        self.ring_sender(name, offer, descriptors)
    }

    /// Opens a connection to the destination of a name: through the receiver's receive queues if
    /// that is possible and no `dedicated` ring is required. Waits for the name server until
    /// `deadline`.
    pub(super) fn open_sender(
        &self,
        (name, class): (QueueName, Class),
        dedicated: bool,
        deadline: Instant,
    ) -> Result<Sender, PortError> {
        let (offer, descriptors) = self.request_connection((name, class), dedicated, deadline)?;
        let TransportOffer::Queue { member, port, queue } = offer.transport else {
            return self.ring_sender(name, offer, descriptors);
        };
        let job_queues = self.job_queues.as_ref().ok_or(NameError::UnexpectedResponse)?;
        match job_queues.open(member, (port, class), &offer.peer, descriptors) {
            Some(opened) => {
                Ok(Sender::over_queue(&self.server, &self.table, (name, queue), &offer, opened))
            }
            // The receive queues have the largest number of senders, or their owner has just ended.
            None => {
                self.server.forget_connection(offer.connection, DroppedEnd::SenderGoesOn, true);
                self.open_sender((name, class), true, deadline)
            }
        }
    }

    fn request_connection(
        &self,
        (name, class): (QueueName, Class),
        dedicated: bool,
        deadline: Instant,
    ) -> Result<(ConnectionOffer, Vec<OwnedFd>), PortError> {
        // Checked before the request, so that a name without a destination is a table error.
        self.table.lookup(name)?;
        let action = || format!("open a connection from port {} to destination {name}", self.port);
        let request = Request::OpenConnection { port: self.port, name, class, dedicated };
        match self.server.request(action, &request, deadline)? {
            (Response::Connection(offer), descriptors) => Ok((offer, descriptors)),
            _ => Err(NameError::UnexpectedResponse.into()),
        }
    }

    fn ring_sender(
        &self,
        name: QueueName,
        offer: ConnectionOffer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Sender, PortError> {
        let parts =
            ConnectionParts::new(&self.server, offer, DroppedEnd::SenderGoesOn, descriptors)?;
        Ok(Sender::over_ring(&self.server, Arc::clone(&self.table), name, parts)?)
    }

    /// Accepts the next connection with a ring that another process has opened to this port. A
    /// [`PortReceiver`](super::PortReceiver) accepts its connections itself. Connections through
    /// receive queues are dropped here, so that their senders find them closed.
    ///
    /// # Errors
    ///
    /// [`PortError::Connection`] for a connection that cannot be used.
    pub fn accept_connection(&self) -> Result<Option<Receiver>, PortError> {
        loop {
            match self.accept_incoming()? {
                Some(Incoming::Ring { receiver, .. }) => return Ok(Some(receiver)),
                Some(Incoming::Queue(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Accepts the next connection that another process has opened to this port.
    pub(super) fn accept_incoming(&self) -> Result<Option<Incoming>, PortError> {
        self.server.receive();
        let Some(incoming) = self.server.take_incoming(self.port) else { return Ok(None) };
        let offer = incoming.offer;
        let after = incoming.after;
        if let TransportOffer::Queue { .. } = offer.transport {
            return Ok(Some(Incoming::Queue(DrainState::new(&self.server, offer))));
        }
        let descriptors = incoming.descriptors;
        let parts = ConnectionParts::new(&self.server, offer, DroppedEnd::Receiver, descriptors)?;
        let receiver =
            Receiver::new(&self.server, Arc::clone(&self.sources), incoming.position, parts)?;
        Ok(Some(Incoming::Ring { receiver, after }))
    }

    /// Returns the number of connections that have arrived and were not accepted.
    pub(super) fn incoming(&self) -> usize {
        self.server.incoming(self.port)
    }

    /// Closes the receiving side: its senders find their connections closed.
    pub(super) fn stop_receiving(&self) {
        self.server.close_port(self.port);
    }

    /// Returns the port's receive queue, if the process has receive queues.
    pub(super) fn port_queue(&self) -> Option<PortQueue> {
        self.job_queues
            .as_ref()
            .map(|job_queues| PortQueue::new(job_queues, &self.sources, self.port))
    }

    /// Restricts the receive queue to these sources. Connections of all others are closed.
    ///
    /// # Errors
    ///
    /// [`NameError::NoAnswer`], [`NameError::ServerGone`].
    pub fn accept_only(&self, sources: &[SourceName]) -> Result<(), PortError> {
        self.accept(SourceFilter::Nothing)?;
        sources.iter().try_for_each(|&source| self.accept(SourceFilter::Add(source)))
    }

    /// Accepts one more source.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn accept_source(&self, source: SourceName) -> Result<(), PortError> {
        self.accept(SourceFilter::Add(source))
    }

    /// Refuses one source.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn refuse_source(&self, source: SourceName) -> Result<(), PortError> {
        self.accept(SourceFilter::Remove(source))
    }

    /// Accepts all sources that the rules permit to send here, as a new port does.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn accept_all(&self) -> Result<(), PortError> {
        self.accept(SourceFilter::All)
    }

    fn accept(&self, filter: SourceFilter) -> Result<(), PortError> {
        let action = || format!("change the sources of port {}", self.port);
        let request = Request::Accept { port: self.port, filter };
        match self.server.request(action, &request, response_deadline())?.0 {
            Response::Done => Ok(()),
            _ => Err(NameError::UnexpectedResponse.into()),
        }
    }

    pub(super) fn server(&self) -> &Arc<ServerConnection> {
        &self.server
    }
}

impl AsFd for Port {
    /// Returns a descriptor that is readable when the name server has sent an unread message, such
    /// as a connection that another process has opened.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.server.as_fd()
    }
}
