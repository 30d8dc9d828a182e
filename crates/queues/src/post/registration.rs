//! A process's registration with the post office, and its ports.

use super::control::{Control, parts};
use super::hall_queue::HallQueue;
use super::halls::Halls;
use super::inbox::Arrived;
use super::outbox::Way;
use super::protocol::{Answer, Carrier, Dropped, LaneOffer, Request, Whom};
use super::{Address, Class, Inbox, JobKey, Outbox, PostError, hall_shape};
use crate::lane::{HallLane, HallSender, LaneReceiver, LaneSender};
use crate::name::{NAMES, QueueIndex, QueueName, SourceName};
use crate::table::{Destination, DestinationTable, SourceTable, TableError};
use shm::broker::connect;
use shm::segment::Segment;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for answers that the post office gives at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for the answer that tells a port that is not open from a post office that is
/// stopped.
const PROBE: Duration = Duration::from_secs(1);

/// Which process of which job a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The job's name.
    pub job: String,
    /// Which of its processes, from 0.
    pub process: u32,
    /// What [`Post::add_job`](super::Post::add_job) has given for the job.
    pub key: JobKey,
}

impl Identity {
    /// An identity.
    pub fn new(job: &str, process: u32, key: JobKey) -> Identity {
        Identity { job: job.to_owned(), process, key }
    }
}

/// A process that the post office knows. Once it, its ports and its lanes are dropped, the process
/// has left.
#[derive(Debug)]
pub struct Registration {
    control: Arc<Control>,
    identity: Identity,
    /// Ports of each process of the job.
    ports: u16,
    segment: Option<Arc<Segment>>,
    halls: Option<Arc<Halls>>,
}

impl Registration {
    /// Registers with the post office of this name, which may be just starting: tries until
    /// `timeout` has passed.
    ///
    /// # Errors
    ///
    /// [`PostError::Broker`] if nobody answers at the name, [`PostError::Refused`],
    /// [`PostError::NoAnswer`], [`PostError::PostGone`], [`PostError::Hall`],
    /// [`PostError::Segment`].
    pub fn register(
        post: &str,
        identity: &Identity,
        timeout: Duration,
    ) -> Result<Registration, PostError> {
        let deadline = Instant::now() + timeout;
        let control = Arc::new(Control::new(connect(post, timeout)?));
        let request = Request::Register {
            job: identity.job.clone(),
            process: identity.process,
            key: identity.key,
            started: shm::process::start_time(std::process::id())?,
        };
        let action = || {
            format!("let this process in as process {} of job {}", identity.process, identity.job)
        };
        let (answer, descriptors) = control.ask(action, &request, deadline)?;
        let Answer::Welcome { ports, resident } = answer else { return Err(PostError::Answer) };
        let (segment, halls) = match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok([segment, hall, event]) => {
                let halls = Halls::create(hall_shape(ports, resident), [hall, event])?;
                (Some(Arc::new(Segment::from_fd(segment)?)), Some(Arc::new(halls)))
            }
            Err(none) if none.is_empty() => (None, None),
            Err(_) => return Err(PostError::Answer),
        };
        Ok(Registration { control, identity: identity.clone(), ports, segment, halls })
    }

    /// The memory that the processes of the job share, if the job has been given some.
    pub fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// The name of a port of this job: known without asking. `None` if the job has no such port.
    pub fn own_name(&self, process: u32, port: u16) -> Option<QueueName> {
        let number = u64::from(process) * u64::from(self.ports) + u64::from(port);
        let number =
            u16::try_from(number).ok().filter(|&number| port < self.ports && number < NAMES);
        number.and_then(QueueName::new)
    }

    /// Opens one of this process's ports. From then on others can send to it.
    ///
    /// # Errors
    ///
    /// [`PostError::Refused`], [`PostError::NoAnswer`], [`PostError::PostGone`],
    /// [`PostError::Table`].
    pub fn open_port(&self, port: u16) -> Result<Port, PostError> {
        let action = || format!("open port {port}");
        let (answer, descriptors) =
            self.control.ask(action, &Request::OpenPort { port }, Instant::now() + PATIENCE)?;
        let Answer::PortOpened { name, queue } = answer else { return Err(PostError::Answer) };
        let [table, sources] =
            <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| PostError::Answer)?;
        Ok(Port {
            control: Arc::clone(&self.control),
            halls: self.halls.clone(),
            port,
            name,
            queue,
            table: Arc::new(DestinationTable::from_fd(table)?),
            sources: Arc::new(SourceTable::from_fd(sources)?),
        })
    }

    /// The name that this job has for a port, which need not be open yet.
    ///
    /// # Errors
    ///
    /// [`PostError::Refused`]: there is no such job or port, no right, or no name left.
    pub fn look_up(&self, address: &Address) -> Result<QueueName, PostError> {
        self.look_up_at(address, false, Instant::now() + PATIENCE)
    }

    /// As [`Self::look_up`], and waits until the port is open, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::look_up`], and [`PostError::NotOpen`]. [`PostError::NoAnswer`] comes a second
    /// after the deadline: so long the post office has to say that it is there and only the port is
    /// not.
    pub fn look_up_open(
        &self,
        address: &Address,
        deadline: Instant,
    ) -> Result<QueueName, PostError> {
        match self.look_up_at(address, true, deadline) {
            Err(PostError::NoAnswer { waited }) => {
                self.look_up_at(address, false, Instant::now() + PROBE)?;
                Err(PostError::NotOpen { address: address.clone(), waited })
            }
            outcome => outcome,
        }
    }

    fn look_up_at(
        &self,
        address: &Address,
        wait: bool,
        deadline: Instant,
    ) -> Result<QueueName, PostError> {
        let request = Request::LookUp { address: address.clone(), wait };
        let action = || format!("give job {} a name for {address}", self.identity.job);
        match self.control.ask(action, &request, deadline)?.0 {
            Answer::Named { name } => Ok(name),
            _ => Err(PostError::Answer),
        }
    }
}

/// A transmit queue with its destination table, and a receive queue.
#[derive(Debug)]
pub struct Port {
    control: Arc<Control>,
    halls: Option<Arc<Halls>>,
    port: u16,
    name: QueueName,
    queue: QueueIndex,
    table: Arc<DestinationTable>,
    sources: Arc<SourceTable>,
}

impl Port {
    /// What this job calls the port.
    pub fn name(&self) -> QueueName {
        self.name
    }

    /// The number of its receive queue on the node.
    pub fn queue(&self) -> QueueIndex {
        self.queue
    }

    /// The table of the transmit queue.
    pub fn table(&self) -> &Arc<DestinationTable> {
        &self.table
    }

    /// The sources that the receive queue accepts.
    pub fn sources(&self) -> &Arc<SourceTable> {
        &self.sources
    }

    /// Where a name leads: one load.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownName`], [`TableError::RevokedName`], [`TableError::ProcessGone`].
    pub fn lookup(&self, name: QueueName) -> Result<Destination, TableError> {
        self.table.lookup(name)
    }

    /// Opens a lane with a ring of its own to where a name leads. There is one for each port and
    /// name; an [`Outbox`] opens them by itself.
    ///
    /// # Errors
    ///
    /// [`PostError::Table`] for a name that leads nowhere, [`PostError::Refused`],
    /// [`PostError::Lane`].
    pub fn open_lane(&self, name: QueueName) -> Result<LaneSender, PostError> {
        let (offer, descriptors) =
            self.ask_for_lane((name, Class::Request), true, Instant::now() + PATIENCE)?;
        self.lane_sender(name, offer, descriptors)
    }

    /// A way to where a name leads: through the receiver's hall if that can be and the way need not
    /// be `alone`. Waits for the post office until `deadline`.
    pub(super) fn open_way(
        &self,
        (name, class): (QueueName, Class),
        alone: bool,
        deadline: Instant,
    ) -> Result<Way, PostError> {
        let (offer, descriptors) = self.ask_for_lane((name, class), alone, deadline)?;
        let Carrier::Hall { hall, port, queue } = offer.carrier else {
            return Ok(Way::Lane(Box::new(self.lane_sender(name, offer, descriptors)?)));
        };
        let halls = self.halls.as_ref().ok_or(PostError::Answer)?;
        match halls.open(hall, (port, class), &offer.partner, descriptors) {
            Ok(opened) => Ok(Way::Hall(HallSender::new(
                &self.control,
                &self.table,
                (name, queue),
                &offer,
                opened,
            ))),
            // The hall has all the senders that it can have, or its owner has just gone.
            Err(_) => {
                self.control.forget_lane(offer.lane, Dropped::SenderGoesOn, true);
                self.open_way((name, class), true, deadline)
            }
        }
    }

    fn ask_for_lane(
        &self,
        (name, class): (QueueName, Class),
        alone: bool,
        deadline: Instant,
    ) -> Result<(LaneOffer, Vec<OwnedFd>), PostError> {
        // Before the question, so that the usual mistakes are told from the unusual ones.
        self.table.lookup(name)?;
        let action = || format!("open a lane from port {} to destination {name}", self.port);
        let request = Request::OpenLane { port: self.port, name, class, alone };
        match self.control.ask(action, &request, deadline)? {
            (Answer::Lane(offer), descriptors) => Ok((offer, descriptors)),
            _ => Err(PostError::Answer),
        }
    }

    fn lane_sender(
        &self,
        name: QueueName,
        offer: LaneOffer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<LaneSender, PostError> {
        let parts = parts(&self.control, offer, Dropped::SenderGoesOn, descriptors)?;
        Ok(LaneSender::new(&self.control, Arc::clone(&self.table), name, parts)?)
    }

    /// The next lane with a ring of its own that another process has opened to this port; an
    /// [`Inbox`] takes all lanes by itself. Who would send through this process's hall finds that
    /// nobody receives there.
    ///
    /// # Errors
    ///
    /// [`PostError::Lane`] for one that cannot be used.
    pub fn accept_lane(&self) -> Result<Option<LaneReceiver>, PostError> {
        loop {
            match self.accept_arrival()? {
                Some(Arrived::Ring { receiver, .. }) => return Ok(Some(receiver)),
                Some(Arrived::Hall(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next lane that another process has opened to this port.
    pub(super) fn accept_arrival(&self) -> Result<Option<Arrived>, PostError> {
        self.control.hear();
        let Some(arrival) = self.control.take_arrival(self.port) else { return Ok(None) };
        let (offer, after) = (arrival.offer, arrival.after);
        if let Carrier::Hall { .. } = offer.carrier {
            return Ok(Some(Arrived::Hall(HallLane::new(&self.control, offer))));
        }
        let parts = parts(&self.control, offer, Dropped::Receiver, arrival.descriptors)?;
        let receiver =
            LaneReceiver::new(&self.control, Arc::clone(&self.sources), arrival.position, parts)?;
        Ok(Some(Arrived::Ring { receiver, after }))
    }

    /// How many lanes have come and were not taken.
    pub(super) fn arrivals(&self) -> usize {
        self.control.arrivals(self.port)
    }

    /// Has senders learn that nobody receives here any more.
    pub(super) fn stop_receiving(&self) {
        self.control.close_port(self.port);
    }

    /// The port's queue in this process's hall.
    pub(super) fn hall_queue(&self) -> Option<HallQueue> {
        self.halls.as_ref().map(|halls| HallQueue::new(halls, &self.sources, self.port))
    }

    /// Restricts the receive queue to these sources, which others cannot get around: their lanes
    /// are closed.
    ///
    /// # Errors
    ///
    /// [`PostError::NoAnswer`], [`PostError::PostGone`].
    pub fn accept_only(&self, sources: &[SourceName]) -> Result<(), PostError> {
        self.accept(Whom::Nobody)?;
        sources.iter().try_for_each(|&source| self.accept(Whom::This(source)))
    }

    /// Accepts one source more.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn accept_source(&self, source: SourceName) -> Result<(), PostError> {
        self.accept(Whom::This(source))
    }

    /// Accepts one source less.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn refuse_source(&self, source: SourceName) -> Result<(), PostError> {
        self.accept(Whom::NotThis(source))
    }

    /// Accepts everybody whom the rules allow to send here, as a new port does.
    ///
    /// # Errors
    ///
    /// As [`Self::accept_only`].
    pub fn accept_everyone(&self) -> Result<(), PostError> {
        self.accept(Whom::Everyone)
    }

    fn accept(&self, whom: Whom) -> Result<(), PostError> {
        let action = || format!("change whom port {} accepts", self.port);
        let request = Request::Accept { port: self.port, whom };
        match self.control.ask(action, &request, Instant::now() + PATIENCE)?.0 {
            Answer::Done => Ok(()),
            _ => Err(PostError::Answer),
        }
    }

    /// The two sides of the port: one to send from, one to receive with. Each may go to a thread of
    /// its own.
    pub fn split(self) -> (Outbox, Inbox) {
        let port = Arc::new(self);
        (Outbox::new(Arc::clone(&port)), Inbox::new(port))
    }

    pub(super) fn control(&self) -> &Arc<Control> {
        &self.control
    }
}
