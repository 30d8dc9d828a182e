//! Messages between the ranks of a communicator that no collective describes: queues, channels,
//! remote memory.
//!
//! Every method here is a collective call that makes the shared parts and tells all ranks where
//! they lie; afterwards a message costs no call into the communicator. The mechanisms themselves
//! are [`queues`]'s.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::error::argument;
use engine::Departure;
use engine::call::{Call, CallKind};
use engine::group::Group;
use queues::bulk::{self, BulkLink};
use queues::cache_line::{CacheLineQueue, CacheLineReceiver, CacheLineSender};
use queues::channel::{self, Channel, Value};
use queues::departures::Departures;
use queues::express::{ExpressQueue, ExpressReceiver, ExpressSender};
use queues::window::RemoteWindow;
use queues::window::Window;
use shm::arena::Arena;
use shm::segment::{Offset, Segment};
use std::sync::{Arc, Weak};

/// The end of a channel that a rank got.
#[derive(Debug)]
pub enum ChannelEnd<T: Value> {
    /// This rank sends.
    Sender(channel::Sender<T>),
    /// This rank receives.
    Receiver(ChannelReceiver<T>),
}

/// The end of a link that a rank got.
#[derive(Debug)]
pub enum BulkEnd {
    /// This rank sends.
    Sender(bulk::Sender),
    /// This rank receives.
    Receiver(BulkReceiver),
}

/// The receiving end of something, which also keeps the memory that it lies in.
#[derive(Debug)]
pub struct Kept<R, M> {
    // Declared first: the end is closed before its memory goes.
    receiver: R,
    _memory: M,
}

/// The receiving end of a channel.
pub type ChannelReceiver<T> = Kept<channel::Receiver<T>, Channel<T>>;

/// The receiving end of a link.
pub type BulkReceiver = Kept<bulk::Receiver, BulkLink>;

impl<R, M> std::ops::Deref for Kept<R, M> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.receiver
    }
}

impl<R, M> std::ops::DerefMut for Kept<R, M> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.receiver
    }
}

/// This rank's place in a row of channels from each rank to the next.
#[derive(Debug)]
pub struct Pipeline<T: Value> {
    /// Receives from the rank before; the first has none.
    pub previous: Option<ChannelReceiver<T>>,
    /// Sends to the rank after; the last has none.
    pub next: Option<channel::Sender<T>>,
}

/// A rank's memory that the others work on, and theirs.
#[derive(Debug)]
pub struct Windows {
    /// This rank's own.
    pub own: Window,
    /// Everybody's, by rank, this one's included.
    pub all: Vec<RemoteWindow>,
}

/// A receive queue of this rank and senders to those of all ranks.
#[derive(Debug)]
pub struct ExpressPort {
    /// Receives what any rank sends to this one; clones receive from the same queue, in any thread.
    pub receiver: ExpressReceiver,
    /// Sends to each rank, by rank, this one included; clones may send in any thread.
    pub senders: Vec<ExpressSender>,
}

/// As [`ExpressPort`], with messages of up to a cache line.
#[derive(Debug)]
pub struct WidePort {
    /// Receives what any rank sends to this one; clones receive from the same queue, in any thread.
    pub receiver: CacheLineReceiver,
    /// Sends to each rank, by rank, this one included; clones may send in any thread.
    pub senders: Vec<CacheLineSender>,
}

/// The ranks at the other end of a port. Does not keep the communicator.
#[derive(Debug)]
struct Ranks {
    group: Weak<Group>,
    /// The rank that receives; none: all others, who may send.
    one: Option<u32>,
}

impl Departures for Ranks {
    fn departed(&self) -> Option<u32> {
        let group = self.group.upgrade()?;
        if let Some(rank) = self.one {
            return group.departure(rank).map(|_| rank);
        }
        let (mut left, mut everybody) = (None, true);
        for rank in (0..group.size()).filter(|rank| *rank != group.rank()) {
            match group.departure(rank) {
                None => everybody = false,
                Some(Departure::Left) => left = Some(rank),
                Some(_) => return Some(rank),
            }
        }
        left.filter(|_| everybody)
    }
}

/// What a rank has of something that leads from one rank to another.
enum Between<M> {
    /// It receives, and has made it.
    Made(M),
    /// It sends, to there.
    Lies(Offset),
    Elsewhere,
}

fn pair(from: u32, to: u32) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

impl Communicator {
    /// This rank's part of the job's segment: what mechanisms of [`queues`] that have no method
    /// here are made in. Others find such a thing at its offset, which is the same for all ranks of
    /// the node, in the arena's [segment](Arena::segment).
    pub fn arena(&self) -> &Arc<Arena> {
        self.group().arena()
    }

    fn segment(&self) -> &Arc<Segment> {
        self.arena().segment()
    }

    /// Every rank makes something in the segment, or fails to; all learn where all of them lie, or
    /// that one failed.
    fn share<M>(
        &self,
        what: &'static str,
        call: Call,
        made: std::result::Result<M, impl Into<crate::Error>>,
        at: impl Fn(&M) -> Offset,
    ) -> Result<(M, Vec<Offset>)> {
        self.expect_one_node("messages that no collective describes")?;
        let mine = match &made {
            Ok(made) => [at(made).0, 0, 0, 0, 0, 0],
            Err(_) => [0, 1, 0, 0, 0, 0],
        };
        let all = self.group().exchange_words(mine, call)?;
        let made = made.map_err(Into::into)?;
        if let Some(rank) = all.iter().position(|words| words[1] != 0) {
            let why = format!("rank {rank} cannot make {what}: see its own message");
            return Err(crate::Error::Engine(engine::Error::Environment(why)));
        }
        Ok((made, all.iter().map(|words| Offset(words[0])).collect()))
    }

    /// Exposes `bytes` zeroed bytes of every rank to all others: remote memory commands are then
    /// executed without the target's taking part. A collective call; `bytes` may differ from rank
    /// to rank.
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
    ///     // Nobody takes its window away before all have looked.
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a rank has no room, is gone, or in another collective.
    pub fn windows(&self, bytes: u64) -> Result<Windows> {
        let made = Window::create(self.arena(), bytes);
        let (own, places) =
            self.share("a window", Call::new(CallKind::Windows, 0, 0), made, Window::offset)?;
        let open = |place| Ok(RemoteWindow::connect(self.segment(), place)?);
        Ok(Windows { all: places.into_iter().map(open).collect::<Result<_>>()?, own })
    }

    /// Opens a channel from rank `from` to rank `to`, of at least `capacity` values; the other
    /// ranks get none. A collective call.
    ///
    /// ```
    /// use tradewind::ChannelEnd;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     match world.channel::<f64>(0, 2, 16)? {
    ///         Some(ChannelEnd::Sender(mut sender)) => sender.send(0.5)?,
    ///         Some(ChannelEnd::Receiver(mut receiver)) => assert_eq!(receiver.receive()?, 0.5),
    ///         None => assert_eq!(world.rank(), 1),
    ///     }
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the ranks are the same or do not exist, `to` has no room, a rank is gone, or in another
    /// collective.
    pub fn channel<T: Value>(
        &self,
        from: u32,
        to: u32,
        capacity: u64,
    ) -> Result<Option<ChannelEnd<T>>> {
        let (segment, call) =
            (self.segment(), Call::new(CallKind::Channel, capacity, pair(from, to)));
        let make = || Channel::<T>::create(self.arena(), capacity);
        Ok(match self.between("a channel", call, from, to, make, Channel::offset)? {
            Between::Made(memory) => {
                let receiver = channel::Receiver::connect(segment, memory.offset())?;
                Some(ChannelEnd::Receiver(Kept { receiver, _memory: memory }))
            }
            Between::Lies(place) => {
                Some(ChannelEnd::Sender(channel::Sender::connect(segment, place)?))
            }
            Between::Elsewhere => None,
        })
    }

    /// Opens a link for messages of any length from rank `from` to rank `to`, with a staging area
    /// of `staging` bytes ([`bulk::DEFAULT_STAGING_BYTES`] is a good size); the other ranks get none. A collective
    /// call.
    ///
    /// ```
    /// use tradewind::{BulkEnd, queues::bulk};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     match world.bulk(0, 1, bulk::DEFAULT_STAGING_BYTES)? {
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
    /// As [`channel`](Self::channel), and when the size of the staging area is none.
    pub fn bulk(&self, from: u32, to: u32, staging: u64) -> Result<Option<BulkEnd>> {
        let (segment, call) =
            (self.segment(), Call::new(CallKind::BulkLink, staging, pair(from, to)));
        Ok(
            match self.between(
                "a link",
                call,
                from,
                to,
                || BulkLink::create(self.arena(), staging),
                BulkLink::offset,
            )? {
                Between::Made(memory) => {
                    let receiver = bulk::Receiver::connect(segment, memory.offset())?;
                    Some(BulkEnd::Receiver(Kept { receiver, _memory: memory }))
                }
                Between::Lies(place) => {
                    Some(BulkEnd::Sender(bulk::Sender::connect(segment, place)?))
                }
                Between::Elsewhere => None,
            },
        )
    }

    /// The receiver makes something that leads to it from one other rank.
    fn between<M, E: Into<crate::Error>>(
        &self,
        what: &'static str,
        call: Call,
        from: u32,
        to: u32,
        make: impl FnOnce() -> std::result::Result<M, E>,
        at: impl Fn(&M) -> Offset,
    ) -> Result<Between<M>> {
        let size = self.size();
        if from >= size || to >= size || from == to {
            let ends = format!("{from} and {to}");
            return Err(argument("the ranks at its ends", ends, format!("two ranks below {size}")));
        }
        let made = (self.rank() == to).then(make).transpose();
        let (made, places) =
            self.share(what, call, made, |made| made.as_ref().map_or(Offset(0), &at))?;
        Ok(match made {
            Some(made) => Between::Made(made),
            None if self.rank() == from => Between::Lies(places[to as usize]),
            None => Between::Elsewhere,
        })
    }

    /// Opens a channel from every rank to the next, of at least `capacity` values each: a pipeline
    /// that can be held open for as long as a computation lasts. A collective call.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(4, |world| {
    ///     let mut pipeline = world.pipeline::<u64>(16)?;
    ///     for value in 0..100 {
    ///         let before = pipeline.previous.as_mut().map_or(Ok(value), |previous| previous.receive())?;
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
    /// When a rank has no room, is gone, or in another collective.
    pub fn pipeline<T: Value>(&self, capacity: u64) -> Result<Pipeline<T>> {
        let (rank, size) = (self.rank(), self.size());
        // No channel has these ends.
        let call = Call::new(CallKind::Channel, capacity, u64::MAX);
        let made = (rank > 0).then(|| Channel::<T>::create(self.arena(), capacity)).transpose();
        let at = |made: &Option<Channel<T>>| made.as_ref().map_or(Offset(0), Channel::offset);
        let (made, places) = self.share("a channel", call, made, at)?;
        let receive = |memory: Channel<T>| -> Result<_> {
            let receiver = channel::Receiver::connect(self.segment(), memory.offset())?;
            Ok(Kept { receiver, _memory: memory })
        };
        let send = |after: u32| channel::Sender::connect(self.segment(), places[after as usize]);
        Ok(Pipeline {
            previous: made.map(receive).transpose()?,
            next: (rank + 1 < size).then(|| send(rank + 1)).transpose()?,
        })
    }

    fn watch_one(&self, rank: u32) -> Arc<Ranks> {
        Arc::new(Ranks { group: Arc::downgrade(self.group()), one: Some(rank) })
    }

    fn watch_all(&self) -> Arc<Ranks> {
        Arc::new(Ranks { group: Arc::downgrade(self.group()), one: None })
    }

    /// A receive queue of `capacity` (a power of two) messages of one word on every rank, and
    /// senders to all of them. A collective call.
    ///
    /// Whoever waits to send to a rank that has gone, or to receive after a rank has failed or all
    /// others have left, gets an error after a tenth of a second, as long as the communicator
    /// lives.
    ///
    /// ```
    /// use tradewind::queues::{name::SourceName, express::Message};
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(2, |world| {
    ///     let mut port = world.express(64)?;
    ///     let me = SourceName::new(world.rank() as u16).expect("a small number");
    ///     port.senders[1 - world.rank() as usize].send(&Message::new(me, 0, *b"hello"))?;
    ///     assert_eq!(port.receiver.receive_blocking()?.data(), *b"hello");
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the capacity is no power of two, a rank has no room, is gone, or in another collective.
    pub fn express(&self, capacity: usize) -> Result<ExpressPort> {
        let made = ExpressQueue::create(self.arena(), capacity, None);
        let call = Call::new(CallKind::Queues, capacity as u64, 0);
        let (queue, places) = self.share("a queue", call, made, ExpressQueue::offset)?;
        let open = |(place, rank)| {
            Ok(ExpressQueue::attach(self.segment(), place)?.sender().watching(self.watch_one(rank)))
        };
        let senders = places.into_iter().zip(0..).map(open).collect::<Result<_>>()?;
        Ok(ExpressPort { receiver: queue.receiver()?.watching(self.watch_all()), senders })
    }

    /// As [`express`](Self::express), with messages of up to a cache line.
    ///
    /// # Errors
    /// As [`express`](Self::express).
    pub fn wide(&self, capacity: usize) -> Result<WidePort> {
        let made = CacheLineQueue::create(self.arena(), capacity, None);
        let call = Call::new(CallKind::Queues, capacity as u64, 1);
        let (queue, places) = self.share("a queue", call, made, CacheLineQueue::offset)?;
        let open = |(place, rank)| {
            Ok(CacheLineQueue::attach(self.segment(), place)?
                .sender()
                .watching(self.watch_one(rank)))
        };
        let senders = places.into_iter().zip(0..).map(open).collect::<Result<_>>()?;
        Ok(WidePort { receiver: queue.receiver()?.watching(self.watch_all()), senders })
    }
}
