//! The post office: who may send to whom. It makes the memory in which processes meet and writes
//! every destination table.
//!
//! One job is one domain of trust: its processes may share memory. Different jobs share nothing but
//! [lanes](crate::lane), which the post office makes one by one, when a process asks for one and
//! the rules allow it. A process gets the descriptors of its own job's memory, its own ports'
//! tables (which it can only read) and its own lanes, and no others; so a server may talk to
//! clients that cannot reach each other (Ang et al. 1996, section 4.1).
//!
//! | who | what |
//! |---|---|
//! | a launcher or node service | [`Post::bind`], [`Post::add_job`], [`Post::allow`]; a thread in [`Post::serve`] |
//! | a process of a job | [`Registration::register`], [`Registration::open_port`], [`Port::split`] |
//!
//! **Names.** A port is a transmit queue with its destination table, and a receive queue. Port `q`
//! of process `p` is called `p × ports + q` in its own job. Ports of other jobs get the names after
//! these, when somebody first asks for them ([`Registration::look_up`]); a name means the same in
//! every process of a job, for ever. A message carries the name that the receiver's job has for the
//! port it came from: an answer goes there, if the rules allow answers.
//!
//! **Ways.** A port sends to a name over a lane, one for requests ([`Outbox::send`]) and one for
//! replies ([`Outbox::reply`]), which never wait for each other; a message has up to
//! [`MAX_MESSAGE_BYTES`] bytes. Between jobs a lane is a ring of its own. If a job has a segment,
//! each of its processes has a [hall](crate::receive_queues) too, with a queue for each of its ports, of
//! which [`JobPlan::resident`] have rings at a time; within the job messages of up to
//! [`LINE_DATA`](crate::cache_line::LINE_DATA) bytes travel through it, and the lane is no more than an
//! entry in the post office. The first longer message to a name gets a lane with a ring, and so do
//! all after it; the receiver takes what came through the hall first. A process to which more than
//! 255 others send gives the rest lanes with rings. Programs need not know which it is. A hall lies
//! in memory of its own, which only the processes of the job can map: it is there until the last of
//! them lets go of it, and whoever takes a dead process's place has a new one.
//!
//! **Trust.** The kernel says which process connects (SO_PEERCRED): it must be of the same user,
//! know its job's key, and nobody else may be this process of the job. A hostile process can write
//! what it likes to what it has mapped and say what it likes to the post office; it can spoil its
//! own job and its own lanes. This protects nobody from a process of the same user that attaches to
//! others as a debugger does; against that, the system must forbid it (ptrace_scope).
//!
//! **Ends.** When a process ends, in whatever way, its names say so, its lanes are closed and
//! whoever waits at their other ends gets an error that names it. Another process may then take its
//! place.
//!
//! **Moving.** A name can be re-pointed to another port and all names of a port moved while
//! messages flow. A lane with a ring goes with them: its receiver hands it over, at the place where
//! it stopped reading, and the sender notices nothing. A hall's queue holds the messages of many
//! and stays. There the sender finds at its next message that its table has changed, gives its lane
//! up, and is refused another ([`Refusal::Moving`]) until the former receiver has received all that
//! came over the first; to the program that is a full queue. So nothing is lost, doubled or
//! reordered for a sender:
//! - All that it sent was published before it gave the lane up, and the receiver hears of that only
//!   afterwards, through the post office. It counts what the hall holds for the port then; when
//!   that many messages have been received, or nothing is left, the sender's last one was among
//!   them (`lane/through_hall.rs` has the details).
//! - A message lies in one queue and leaves it by being received. Nothing is copied or forwarded.
//! - The sender sends nothing to the new place before, so even another observer of both processes
//!   finds its order kept.
//!
//! The wait ends too when the former receiver dies or drops its [`Inbox`]; what it has not received
//! is lost with it. So a process whose ports were moved receives on until [`Inbox::lanes`] is 0. A
//! silent sender keeps its lane until it sends.
//!
//! **Memory.** In bytes; nothing else grows with the number of ports, lanes or messages:
//!
//! | what | where | how much |
//! |---|---|---|
//! | a port | shared | 8 for each name that the job can have ([`JobPlan::names`]), in whole pages, and a page for the inverse table |
//! | a lane with a ring | shared | [`LANE_BYTES`]; a process has at most [`MAX_LANES`] |
//! | a lane through a hall | its sender | less than 200; at most [`MAX_HALL_LANES`] |
//! | a process of a job with a segment | shared | [`QueuesConfig::bytes`](crate::receive_queues::QueuesConfig::bytes) of its hall, and its rings when they are first used |
//!
//! The post office keeps two descriptors a process, two more if it has a hall, two a port, and none
//! a lane.
//!
//! ```
//! use queues::post::{Address, Delivery, Identity, JobPlan, Post, Registration};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let post = Post::bind(&shm::broker::unguessable_name("example")?)?;
//! let server = post.add_job(JobPlan::new("server"))?;
//! let client = post.add_job(JobPlan::new("client"))?;
//! post.allow("client", "server")?;
//! post.allow("server", "client")?;
//!
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     scope.spawn(|| post.serve());
//!     let patience = Duration::from_secs(10);
//!     // Each in a process of its own:
//!     let server = Registration::register(post.name(), &Identity::new("server", 0, server), patience)?;
//!     let (mut answers, mut requests) = server.open_port(0)?.split();
//!     let client = Registration::register(post.name(), &Identity::new("client", 0, client), patience)?;
//!     let (mut outbox, mut inbox) = client.open_port(0)?.split();
//!
//!     let name = client.look_up(&Address::new("server", 0, 0))?;
//!     outbox.send(name, 1, b"ping")?;
//!     let Delivery::Message(message) = requests.receive()? else { panic!("nobody has gone") };
//!     assert_eq!((message.handler, message.bytes), (1, &b"ping"[..]));
//!     answers.reply(message.source, 2, b"pong")?;
//!     assert!(matches!(inbox.receive()?, Delivery::Message(message) if message.bytes == b"pong"));
//!     post.stop();
//!     Ok(())
//! })
//! # }
//! ```

use crate::basic::BasicError;
use crate::error::RecvError;
use crate::lane::LaneError;
use crate::name::QueueName;
use crate::receive_queues::{MAX_RINGS, QueuesConfig, QueuesError};
use crate::table::TableError;
use shm::broker::BrokerError;
use shm::process::ProcessError;
use shm::segment::SegmentError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(crate) mod control;
mod directory;
mod hall_queue;
pub(crate) mod halls;
mod inbox;
mod office;
mod outbox;
mod protocol;
mod registration;
mod traffic;

pub use crate::receive_queues::Class;
pub use inbox::{Delivery, Inbox, Received};
pub use office::Post;
pub use outbox::Outbox;
pub(crate) use protocol::{Carrier, Closing, Dropped, LaneOffer};
pub use registration::{Identity, Port, Registration};

/// Cache lines of a lane's ring.
pub const LANE_LINES: u32 = 256;
/// Bytes of a lane's ring.
pub const LANE_BYTES: u64 = 64 * LANE_LINES as u64 + 256;
/// Bytes of the longest message that goes over a lane: a quarter of its ring, less the word that
/// says what it is. Longer data is sent in pieces, or between processes of one job through their
/// segment ([`tag_on`](crate::tag_on), [`bulk`](crate::bulk)).
pub const MAX_MESSAGE_BYTES: usize = LANE_LINES as usize / 4 * 64 - 8;
/// The most lanes of a process that have a ring of their own, both directions together.
pub const MAX_LANES: usize = 4096;
/// The most lanes that a process sends on through halls.
pub const MAX_HALL_LANES: usize = 1 << 15;

/// The address of a port of a process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The job's name.
    pub job: String,
    /// Which of its processes, from 0.
    pub process: u32,
    /// Which of the process's ports, from 0.
    pub port: u16,
}

impl Address {
    /// The address of a port.
    pub fn new(job: &str, process: u32, port: u16) -> Address {
        Address { job: job.to_owned(), process, port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "port {} of process {} of job {}", self.port, self.process, self.job)
    }
}

/// What lets a process into its job. Whoever starts the processes passes it on, as text.
///
/// ```
/// use queues::post::JobKey;
/// let key: JobKey = "00000000000000000000000000000abc".parse()?;
/// assert_eq!(key.to_string(), "00000000000000000000000000000abc");
/// # Ok::<(), queues::post::PostError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobKey(u128);

impl JobKey {
    fn new() -> Result<JobKey, PostError> {
        let random = shm::random::bytes().map_err(|source| PostError::System {
            action: "get random bytes from the system",
            source,
        })?;
        Ok(JobKey(u128::from_ne_bytes(random)))
    }

    fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    fn from_halves([low, high]: [u64; 2]) -> JobKey {
        JobKey(u128::from(high) << 64 | u128::from(low))
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobKey {
    /// Keys do not belong into logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobKey(..)")
    }
}

impl FromStr for JobKey {
    type Err = PostError;

    fn from_str(text: &str) -> Result<JobKey, PostError> {
        u128::from_str_radix(text, 16).map(JobKey).map_err(|_| PostError::Key)
    }
}

/// A job as the post office is to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlan {
    /// Its name: 1 to 64 bytes.
    pub name: String,
    /// How many processes it has.
    pub processes: u32,
    /// How many ports each of them may open.
    pub ports: u16,
    /// How many names it can have, those of its own ports and of others' together: 16,384 at most.
    pub names: u16,
    /// The size of its segment in bytes; 0 for none. If it has one, its processes also have halls.
    pub segment_bytes: u64,
    /// How many ports of a process have rings of their own in its hall at the same time, if the job
    /// has halls.
    pub resident: u16,
}

impl JobPlan {
    /// A job of one process with one port, 512 names and no segment, of whose ports 16 would be
    /// resident.
    pub fn new(name: &str) -> JobPlan {
        JobPlan {
            name: name.to_owned(),
            processes: 1,
            ports: 1,
            names: 512,
            segment_bytes: 0,
            resident: 16,
        }
    }
}

/// The hall of a process with so many ports.
fn hall_shape(ports: u16, resident: u16) -> QueuesConfig {
    let rings = usize::from(resident.min(ports)).min(MAX_RINGS);
    QueuesConfig { queues: usize::from(ports), rings, ..QueuesConfig::default() }
}

/// Why the post office says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A request that it cannot read, or one before registration.
    #[error("it does not understand the request: use one version of tradewind on the node")]
    NotUnderstood,
    /// No job of this name has been added.
    #[error("it knows no such job")]
    UnknownJob,
    /// The job has another key.
    #[error("the key is not the job's")]
    WrongKey,
    /// A process number that the job does not have.
    #[error("the job has {processes} processes")]
    NoSuchProcess {
        /// How many it has.
        processes: u32,
    },
    /// Another process is this one already.
    #[error("process {pid} has registered as this process of the job")]
    SeatTaken {
        /// Its number.
        pid: u32,
    },
    /// The kernel's view of the process and its own differ.
    #[error("the process cannot be watched: it has ended or lives in another process namespace")]
    Unwatchable,
    /// A port number that the job does not have.
    #[error("each process of the job has {ports} ports")]
    NoSuchPort {
        /// How many each process has.
        ports: u16,
    },
    /// The port has been opened before.
    #[error("the port is open already")]
    PortOpen,
    /// The port has not been opened.
    #[error("the port is not open: open it first")]
    PortNotOpen,
    /// No rule lets the asker's job send there.
    #[error("no rule allows the asker's job to send there")]
    NoRight,
    /// The name leads nowhere.
    #[error("the name leads nowhere yet")]
    UnknownName,
    /// The right to send there has been taken away.
    #[error("the right to send there has been revoked")]
    RevokedName,
    /// The receiving process has gone.
    #[error("the receiving process has gone")]
    ProcessGone,
    /// A job knows as many names as it can.
    #[error("all names of a job are taken: give it more when it is added")]
    TableFull,
    /// The receive queue does not accept this source.
    #[error("the receive queue does not accept messages from the asker")]
    SourceRefused,
    /// There is one: a port has one lane to a name.
    #[error("the port has a lane to this destination already: use that one, or drop it")]
    LaneOpen,
    /// One of the two processes has as many lanes as it may.
    #[error(
        "a process has {MAX_LANES} lanes with rings, or {MAX_HALL_LANES} through halls; no more are allowed"
    )]
    TooManyLanes,
    /// What the port has sent to this name is still on the way through the hall of the process that
    /// received it before.
    #[error(
        "what was sent to the name before has not been received there yet: try again when it has"
    )]
    Moving,
    /// The node has as many queues as there are numbers.
    #[error("no queue is left on the node")]
    NoQueue,
    /// The system refuses memory or descriptors.
    #[error("the system refuses: {why}")]
    System {
        /// Its words.
        why: String,
    },
}

impl Refusal {
    /// For the wire: which one, its number and its text.
    fn parts(&self) -> (u8, u32, &str) {
        match self {
            Refusal::NotUnderstood => (0, 0, ""),
            Refusal::UnknownJob => (1, 0, ""),
            Refusal::WrongKey => (2, 0, ""),
            Refusal::NoSuchProcess { processes } => (3, *processes, ""),
            Refusal::SeatTaken { pid } => (4, *pid, ""),
            Refusal::Unwatchable => (5, 0, ""),
            Refusal::NoSuchPort { ports } => (6, u32::from(*ports), ""),
            Refusal::PortOpen => (7, 0, ""),
            Refusal::PortNotOpen => (8, 0, ""),
            Refusal::NoRight => (9, 0, ""),
            Refusal::UnknownName => (10, 0, ""),
            Refusal::RevokedName => (11, 0, ""),
            Refusal::ProcessGone => (12, 0, ""),
            Refusal::TableFull => (13, 0, ""),
            Refusal::SourceRefused => (14, 0, ""),
            Refusal::TooManyLanes => (15, 0, ""),
            Refusal::NoQueue => (16, 0, ""),
            Refusal::LaneOpen => (17, 0, ""),
            Refusal::System { why } => (18, 0, why),
            Refusal::Moving => (19, 0, ""),
        }
    }

    fn from_parts(code: u8, number: u32, why: String) -> Option<Refusal> {
        Some(match code {
            0 => Refusal::NotUnderstood,
            1 => Refusal::UnknownJob,
            2 => Refusal::WrongKey,
            3 => Refusal::NoSuchProcess { processes: number },
            4 => Refusal::SeatTaken { pid: number },
            5 => Refusal::Unwatchable,
            6 => Refusal::NoSuchPort { ports: number as u16 },
            7 => Refusal::PortOpen,
            8 => Refusal::PortNotOpen,
            9 => Refusal::NoRight,
            10 => Refusal::UnknownName,
            11 => Refusal::RevokedName,
            12 => Refusal::ProcessGone,
            13 => Refusal::TableFull,
            14 => Refusal::SourceRefused,
            15 => Refusal::TooManyLanes,
            16 => Refusal::NoQueue,
            17 => Refusal::LaneOpen,
            18 => Refusal::System { why },
            19 => Refusal::Moving,
            _ => return None,
        })
    }

    fn system(source: impl fmt::Display) -> Refusal {
        Refusal::System { why: source.to_string() }
    }
}

/// What can go wrong between a process and the post office.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The post office says no.
    #[error("the post office refuses to {action}: {refusal}")]
    Refused {
        /// What was asked for.
        action: String,
        /// Why not.
        refusal: Refusal,
    },
    /// It does not answer in time.
    #[error(
        "the post office has not answered within {waited:?}: is its thread or process stopped?"
    )]
    NoAnswer {
        /// How long this process waited.
        waited: Duration,
    },
    /// The post office is there, but nobody has opened the port in time.
    #[error("{address} has not been opened within {waited:.1?}: is it running?")]
    NotOpen {
        /// The port.
        address: Address,
        /// How long this process waited.
        waited: Duration,
    },
    /// It has ended, or has closed the connection.
    #[error("the post office has gone: no names can be had and no lanes opened; open lanes go on")]
    PostGone,
    /// It said something that this version does not understand.
    #[error("the post office sent something unexpected: use one version of tradewind on the node")]
    Answer,
    /// A key that is no 32 hexadecimal digits.
    #[error("a job's key is 32 hexadecimal digits")]
    Key,
    /// A job that cannot be.
    #[error("job {name:?} cannot be added: {why}")]
    Plan {
        /// Its name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// No job of this name has been added.
    #[error("there is no job {name:?}: add it first")]
    UnknownJob {
        /// The name.
        name: String,
    },
    /// A name that the job has not given.
    #[error("job {job} has no name {name}")]
    UnknownName {
        /// The job.
        job: String,
        /// The name.
        name: QueueName,
    },
    /// A port that cannot be the end of what was asked for.
    #[error("{address} {why}")]
    Address {
        /// The port.
        address: Address,
        /// What is wrong.
        why: &'static str,
    },
    /// The door.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// Memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A lane.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A ring's size.
    #[error(transparent)]
    Ring(#[from] BasicError),
    /// A hall that cannot be made or entered.
    #[error(transparent)]
    Hall(#[from] QueuesError),
    /// This process's hall is spoilt.
    #[error(transparent)]
    Receive(#[from] RecvError),
    /// Watching a process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Any other refusal of the system.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

fn system<E: Into<std::io::Error>>(action: &'static str) -> impl Fn(E) -> PostError {
    move |error| PostError::System { action, source: error.into() }
}
