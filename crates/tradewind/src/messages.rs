//! Messages between the ranks of a communicator that no collective describes: queues, channels,
//! remote memory.
//!
//! Sends and receives with tags are methods of [`Communicator`] itself. Other mechanisms serve
//! special cases:
//!
//! | to send | by | from, to |
//! |---|---|---|
//! | five bytes, in one atomic word | [`Communicator::express`] | any rank, any rank |
//! | up to 48 bytes, in one cache line | [`Communicator::cache_lines`] | any rank, any rank |
//! | messages of some hundred bytes, several at once | [`Communicator::basic`] | one rank, one rank |
//! | records up to a chosen length, into one buffer | [`Communicator::append_buffer`] | any rank, one rank |
//! | the same data to many ranks, moved once | [`Communicator::tag_on`] | any rank, any ranks |
//! | a stream of values, one store each | [`Communicator::channel`], [`Communicator::pipeline`] | one rank, one rank |
//! | to or from memory of a rank that takes no part | [`Communicator::windows`] | any rank, any rank |
//! | long messages between private buffers | [`Communicator::bulk`] | one rank, one rank |
//!
//! Each method is a collective call that creates shared objects and exchanges their offsets;
//! messages then take no call into the communicator. The mechanisms are those of
//! [`queues`](::queues).

mod append;
mod basic;
mod bulk;
mod channels;
mod error;
mod internode;
mod links;
mod peer;
mod port;
mod queues;
mod ranks;
mod tag_on;
mod windows;
mod with_memory;

pub use ::queues::append::{Receiver as AppendReceiver, Sender as AppendSender};
pub use ::queues::basic::{
    BasicHeader, BasicMessage, Receiver as BasicReceiver, Sender as BasicSender,
};
pub use ::queues::bulk::{BulkError, DEFAULT_STAGING_BYTES, DirectPath, Path, Policy, Received};
pub use ::queues::cache_line::{
    CacheLineHeader, CacheLineMessage, CacheLineReceiver, CacheLineSender, LINE_DATA,
};
pub use ::queues::channel::{Sender as ChannelSender, Value};
pub use ::queues::error::{CreateError, RecvError, SendError};
pub use ::queues::express::{ExpressMessage, ExpressReceiver, ExpressSender};
pub use ::queues::id::SourceName;
pub use ::queues::one_poll::{OnePoll, PollSet, Polled};
pub use ::queues::queue::Sent;
pub use ::queues::tag_on::{
    BufferMut, NOTE_BYTES, ReceivedBuffer, SharedBuffer, TagOnError, TagOnPool,
};
pub use ::queues::window::{Condition, Fetch, FetchRequest, RemoteWindow, Window, WindowError};
pub use bulk::{BulkReceiver, BulkSender};
pub use error::MessageError;
pub use tag_on::{TagOnMessage, TagOnPort, TagOnReceiver, TagOnSender};
pub use with_memory::{ChannelReceiver, WithMemory};

use crate::communicator::Communicator;
use crate::error::Result;
use ::queues::channel;
use channels::Channels;
use engine::signature::{CallKind, Signature};
use shm::arena::Arena;
use std::sync::Arc;

/// This rank's end of a channel.
#[derive(Debug)]
pub enum ChannelEnd<T: Value> {
    /// The sending end.
    Sender(channel::Sender<T>),
    /// The receiving end.
    Receiver(ChannelReceiver<T>),
}

/// This rank's end of a bulk connection.
#[derive(Debug)]
pub enum BulkEnd {
    /// The sending end.
    Sender(BulkSender),
    /// The receiving end.
    Receiver(BulkReceiver),
}

/// This rank's end of a Basic ring.
#[derive(Debug)]
pub enum BasicEnd {
    /// The sending end.
    Sender(::queues::basic::Sender),
    /// The receiving end.
    Receiver(::queues::basic::Receiver),
}

/// This rank's ends of a row of channels, from each rank to the next.
#[derive(Debug)]
pub struct Pipeline<T: Value> {
    /// Receives from the previous rank; `None` on the first.
    pub previous: Option<ChannelReceiver<T>>,
    /// Sends to the next rank; `None` on the last.
    pub next: Option<channel::Sender<T>>,
}

/// Memory windows of all ranks.
#[derive(Debug)]
pub struct Windows {
    /// This rank's window.
    pub own: Window,
    /// Access to the windows of all ranks, by rank, this one included.
    pub all: Vec<RemoteWindow>,
}

/// This rank's ends of an append buffer.
#[derive(Debug)]
pub struct AppendEnds {
    /// Takes the records of all ranks; `None` on ranks other than the receiver.
    pub receiver: Option<AppendReceiver>,
    /// Appends records of this rank, from any thread.
    pub sender: AppendSender,
}

/// A receive queue of this rank and senders to the queues of all ranks.
#[derive(Debug)]
pub struct ExpressPort {
    /// Receives messages of all ranks. Clones receive from the same queue, in any thread.
    pub receiver: ExpressReceiver,
    /// Senders by rank, this one included. Clones may send in any thread.
    pub senders: Vec<ExpressSender>,
}

/// Like [`ExpressPort`], with messages of up to a cache line.
#[derive(Debug)]
pub struct CacheLinePort {
    /// Receives messages of all ranks. Clones receive from the same queue, in any thread.
    pub receiver: CacheLineReceiver,
    /// Senders by rank, this one included. Clones may send in any thread.
    pub senders: Vec<CacheLineSender>,
}

fn pair(from: u32, to: u32) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

impl Communicator {
    /// This rank's part of the job's segment, for mechanisms of [`queues`](::queues) that have no method
    /// here. Other ranks find an object at its offset in the arena's [segment](Arena::segment); the
    /// offset is the same on all ranks of the node.
    ///
    /// # Safety
    /// The caller frees only what it has allocated, and reads and writes only its own objects, by
    /// the methods of their types: slices borrow other memory of the arena exclusively.
    ///
    /// ```compile_fail,E0133
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(1, |world| {
    ///     let buffer = world.alloc::<u64>(8)?;
    ///     let _arena = world.raw_arena();
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub unsafe fn raw_arena(&self) -> &Arc<Arena> {
        self.arena()
    }

    /// Number of bytes that are allocated in this rank's part of the job's segment.
    pub fn allocated_bytes(&self) -> u64 {
        self.arena().used()
    }

    /// Creates a poll set for `queues` queues of this rank: those of
    /// [`express_in_set`](Self::express_in_set) and [`cache_lines_in_set`](Self::cache_lines_in_set),
    /// and receivers of Basic rings. [`OnePoll`] receives from all of them.
    ///
    /// # Errors
    /// Fails if there are no queues or more than 262144, or if this rank has no memory left.
    pub fn poll_set(&self, queues: usize) -> Result<PollSet> {
        Ok(PollSet::create(self.arena(), queues)?)
    }

    /// Exposes `bytes` zeroed bytes of every rank to all others, which access them with remote
    /// memory commands; the target takes no part in them. A collective call; `bytes` may differ
    /// between ranks.
    ///
    /// The ranks may be on several nodes. The node service of the target executes the commands of
    /// ranks on other nodes, whether the target computes, sleeps or is stopped. A blocking command returns
    /// when it is complete at the target, as on one node, so its cost is a round trip between the node
    /// services; commands of several threads share frames. The first command of a rank on a window of
    /// another node opens the way there, which takes 128 KiB of the rank's part of the segment. If the
    /// target or its node has failed, commands return [`WindowError::RankExited`].
    ///
    /// ```
    /// use tradewind::Op;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     let windows = world.windows(64)?;
    ///     for window in &windows.all {
    ///         window.accumulate_value(Op::Sum.into(), 0, u64::from(world.rank()))?;
    ///     }
    ///     world.barrier()?;
    ///     assert_eq!(windows.own.local().get_value::<u64>(0)?, 3);
    ///     // A window is freed only after all ranks have read theirs.
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// Nonblocking commands wait for no answers. Between nodes, where a command takes a round trip,
    /// they are executed a hundred times as often, and a [flush](RemoteWindow::flush) completes them:
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local_nodes(&[1, 1], |world| {
    ///     let windows = world.windows(8 * 1000)?;
    ///     let there = &windows.all[1 - world.rank() as usize];
    ///     for number in 0..1000_u64 {
    ///         there.iput_value(8 * number, number)?;
    ///     }
    ///     there.flush()?; // From here on every rank finds them.
    ///     world.barrier()?;
    ///     assert_eq!(windows.own.local().get_value::<u64>(8 * 999)?, 999);
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a rank has no memory left, is gone or in another collective.
    pub fn windows(&self, bytes: u64) -> Result<Windows> {
        self.open_windows(bytes)
    }

    /// Opens a channel from rank `from` to rank `to` for at least `capacity` values; `None` on the
    /// other ranks. A collective call.
    ///
    /// The ranks may be on different nodes. A send is then one store, too, and the node services
    /// carry the values. If the other end is closed, or its rank has left, the channel is
    /// [`Closed`](RecvError::Closed) behind the last value; if that rank or its node has failed,
    /// the error names the rank.
    ///
    /// ```
    /// use tradewind::messages::ChannelEnd;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     match world.channel::<f64>(0, 2, 16)? {
    ///         Some(ChannelEnd::Sender(mut sender)) => sender.send(0.5)?,
    ///         Some(ChannelEnd::Receiver(mut receiver)) => assert_eq!(receiver.recv()?, 0.5),
    ///         None => assert_eq!(world.rank(), 1),
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the ranks are equal or do not exist, `to` has no memory left, or a rank is gone or
    /// in another collective.
    pub fn channel<T: Value>(
        &self,
        from: u32,
        to: u32,
        capacity: u64,
    ) -> Result<Option<ChannelEnd<T>>> {
        self.check_pair(from, to)?;
        let call = Signature::new(CallKind::Channel, capacity, pair(from, to));
        let rank = self.rank();
        let Channels { previous, next } = self.open_channels(
            call,
            (rank == to).then_some(from),
            (rank == from).then_some(to),
            capacity,
        )?;
        Ok(previous.map(ChannelEnd::Receiver).or(next.map(ChannelEnd::Sender)))
    }

    /// Opens a connection for messages of any length from rank `from` to rank `to`, with a staging
    /// buffer of `staging` bytes ([`DEFAULT_STAGING_BYTES`] is a good size); `None` on the
    /// other ranks. A collective call.
    ///
    /// The ranks may be on different nodes. The messages then pass in pieces through a ring on
    /// either node, from which the node services carry them; each has as many bytes as the staging
    /// buffer, at most 64 KiB.
    ///
    /// ```
    /// use tradewind::messages::{BulkEnd, DEFAULT_STAGING_BYTES};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     match world.bulk(0, 1, DEFAULT_STAGING_BYTES)? {
    ///         Some(BulkEnd::Sender(mut sender)) => {
    ///             sender.send(&[7; 100_000])?;
    ///         }
    ///         Some(BulkEnd::Receiver(mut receiver)) => {
    ///             let mut buffer = vec![0; 100_000];
    ///             assert_eq!(receiver.recv(&mut buffer)?.bytes, 100_000);
    ///             assert!(buffer.iter().all(|byte| *byte == 7));
    ///         }
    ///         None => {}
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`channel`](Self::channel); fails if the staging buffer has no bytes.
    pub fn bulk(&self, from: u32, to: u32, staging: u64) -> Result<Option<BulkEnd>> {
        self.check_pair(from, to)?;
        self.open_bulk(from, to, staging)
    }

    /// Opens a channel from every rank to the next for at least `capacity` values each: a pipeline
    /// that may stay open as long as the computation runs. The ranks may be on several nodes, as
    /// those of a [`channel`](Self::channel). A collective call.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut pipeline = world.pipeline::<u64>(16)?;
    ///     for value in 0..100 {
    ///         let before = pipeline.previous.as_mut().map_or(Ok(value), |previous| previous.recv())?;
    ///         if let Some(next) = &mut pipeline.next {
    ///             next.send(before + 1)?;
    ///         }
    ///         assert_eq!(before, value + u64::from(world.rank()));
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a rank has no memory left, is gone or in another collective.
    pub fn pipeline<T: Value>(&self, capacity: u64) -> Result<Pipeline<T>> {
        let rank = self.rank();
        // A key that no channel between two ranks has.
        let call = Signature::new(CallKind::Channel, capacity, u64::MAX);
        let next = Some(rank + 1).filter(|next| *next < self.size());
        let Channels { previous, next } =
            self.open_channels(call, rank.checked_sub(1), next, capacity)?;
        Ok(Pipeline { previous, next })
    }

    /// Creates a receive queue of `capacity` one-word messages on every rank, and senders to all of
    /// them; the capacity is a power of two. A collective call.
    ///
    /// A rank that drops its last receiver closes its queue, and sends to it fail with
    /// [`SendError::Closed`]. A send that waits for a rank that has failed ends after a tenth of a
    /// second with an error that names it. So does a receive after a rank has failed or all others
    /// have left; what they had sent is received before. This holds as long as the communicator
    /// exists. Once all ranks of a node have dropped their ends, the memory of the queues is used
    /// for later ones.
    ///
    /// The ranks may be on several nodes. A send to another node returns as soon as the message is
    /// in a queue of this node with the same capacity, from which the node services carry it. A
    /// rank's queues with other nodes may take 256 MiB of its node service: 65 KiB for each of the
    /// other nodes, and 1 KiB for each queue.
    ///
    /// ```
    /// use tradewind::messages::{ExpressMessage, SourceName};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut port = world.express(64)?;
    ///     let me = SourceName::new(world.rank() as u16).expect("a small number");
    ///     port.senders[1 - world.rank() as usize].send(&ExpressMessage::new(me, 0, *b"hello"))?;
    ///     assert_eq!(port.receiver.recv()?.data(), *b"hello");
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the capacity is not a power of two, or a rank has no memory left, is gone or in
    /// another collective.
    pub fn express(&self, capacity: usize) -> Result<ExpressPort> {
        let (receiver, senders) = self.open_queues(capacity, 0, None)?;
        Ok(ExpressPort { receiver, senders })
    }

    /// As [`express`](Self::express), with this rank's queue as the member of a poll set
    /// ([`OnePoll`] receives from it). The ranks' sets and indexes may differ.
    ///
    /// ```
    /// use tradewind::messages::{ExpressMessage, OnePoll};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local_nodes(&[1, 1], |world| {
    ///     let set = world.poll_set(2)?;
    ///     let urgent = world.express_in_set(64, &set, 0)?;
    ///     let other = world.express_in_set(64, &set, 1)?;
    ///     let next = (1 - world.rank()) as usize;
    ///     other.senders[next].send(&ExpressMessage::new(Default::default(), 0, *b"later"))?;
    ///     world.barrier()?;
    ///     let mut members = [Some(urgent.receiver), Some(other.receiver)];
    ///     let (index, message) = OnePoll::new(&set).poll_blocking(&mut members[..])?;
    ///     assert_eq!((index, message.data()), (1, *b"later"));
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`express`](Self::express); fails if the set has no such index.
    pub fn express_in_set(
        &self,
        capacity: usize,
        set: &PollSet,
        index: usize,
    ) -> Result<ExpressPort> {
        let (receiver, senders) = self.open_queues(capacity, 0, Some((set, index)))?;
        Ok(ExpressPort { receiver, senders })
    }

    /// Like [`express`](Self::express), with messages of up to a cache line.
    ///
    /// # Errors
    /// The errors of [`express`](Self::express).
    pub fn cache_lines(&self, capacity: usize) -> Result<CacheLinePort> {
        let (receiver, senders) = self.open_queues(capacity, 1, None)?;
        Ok(CacheLinePort { receiver, senders })
    }

    /// As [`cache_lines`](Self::cache_lines), with this rank's queue as the member of a poll set.
    ///
    /// # Errors
    /// The errors of [`express_in_set`](Self::express_in_set).
    pub fn cache_lines_in_set(
        &self,
        capacity: usize,
        set: &PollSet,
        index: usize,
    ) -> Result<CacheLinePort> {
        let (receiver, senders) = self.open_queues(capacity, 1, Some((set, index)))?;
        Ok(CacheLinePort { receiver, senders })
    }
}
