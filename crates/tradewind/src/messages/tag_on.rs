//! Tag-On: data stored once on each node, for any number of receivers.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::signature::{CallKind, Signature};
use queues::cache_line::{
    CacheLine, CacheLineHeader, CacheLineMessage, CacheLineReceiver, CacheLineSender,
};
use queues::tag_on::{
    LandingPlace, LandingPool, LandingSizes, ReceivedBuffer, ReceiverState, SharedBuffer,
    TagOnError, TagOnPool, TagOnPools,
};
use queues::window::{RemoteWindow, Window, WindowError};
use shm::liveness::PeerExit;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ends of all ranks for messages with data that are stored once on each node.
#[derive(Debug)]
pub struct TagOnPort {
    /// Buffers of this rank, in which it composes data.
    pub pool: TagOnPool,
    /// Sends data to any ranks, this one included, from any thread.
    pub sender: TagOnSender,
    /// Receives data of all ranks.
    pub receiver: TagOnReceiver,
}

/// Sends data to the ranks of a [`TagOnPort`].
#[derive(Debug)]
pub struct TagOnSender {
    /// By rank.
    senders: Vec<CacheLineSender>,
    /// Buffers on other nodes, by rank; `None` for ranks of this node.
    landings: Vec<Option<LandingPool>>,
    /// Node of each rank, and its number on that node.
    nodes: Vec<(u32, u32)>,
}

/// Receives data of the ranks of a [`TagOnPort`].
#[derive(Debug)]
pub struct TagOnReceiver {
    receiver: CacheLineReceiver,
    /// `None` only in the drop.
    pools: Option<TagOnPools>,
    /// Memory for the data of ranks on other nodes.
    _window: Option<Window>,
}

/// A received message.
#[derive(Debug)]
pub struct TagOnMessage {
    message: CacheLineMessage,
    /// The data, where they were stored. The buffer is free when all receivers have dropped it.
    pub data: ReceivedBuffer,
}

type Sent = std::result::Result<(), TagOnError>;

/// Pauses between attempts to store data while all buffers on another node are in use.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Time between checks whether receivers are gone that have released no buffer.
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

impl TagOnMessage {
    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> CacheLineHeader {
        self.message.header()
    }

    /// Returns the note.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        TagOnPools::note(&self.message)
    }
}

impl TagOnSender {
    /// Sends data to these ranks, each with a header and a note of up to
    /// [`NOTE_BYTES`](queues::tag_on::NOTE_BYTES) bytes. Waits while a receive queue is full, and
    /// while receivers of another node hold all of its buffers for data of this rank. The data
    /// cross the network once for each node.
    ///
    /// # Errors
    /// The error of the first rank that could not be reached; the others were. [`TagOnError::Note`]
    /// and [`TagOnError::NoRank`] before anything was sent.
    pub fn send(
        &self,
        data: &SharedBuffer,
        to: &[u32],
        header: CacheLineHeader,
        note: &[u8],
    ) -> Sent {
        // As far away as any wait can last.
        self.send_timeout(data, to, header, note, Duration::from_secs(1 << 30))
    }

    /// Sends as [`send`](Self::send) does, waiting for at most `timeout`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), [`SendError::Timeout`](queues::error::SendError::Timeout) in
    /// [`TagOnError::Send`], and [`TagOnError::Exhausted`].
    pub fn send_timeout(
        &self,
        data: &SharedBuffer,
        to: &[u32],
        header: CacheLineHeader,
        note: &[u8],
        timeout: Duration,
    ) -> Sent {
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let mut by_node = BTreeMap::<u32, Vec<u32>>::new();
        for rank in to {
            let node = self.nodes.get(*rank as usize);
            let (node, _) = *node.ok_or(TagOnError::NoRank { rank: *rank })?;
            by_node.entry(node).or_default().push(*rank);
        }
        let mut failed = None;
        let mut note_failure = |sent: Sent| {
            if let (Err(why), None) = (sent, &failed) {
                failed = Some(why);
            }
        };
        for ranks in by_node.values() {
            if self.landings[ranks[0] as usize].is_some() {
                // A rank that is named twice gets two messages, and each buffer has one for a rank.
                let mut rest = ranks.clone();
                while !rest.is_empty() {
                    let (once, again) = split_repeated(&rest);
                    self.send_to_node(data, &once, (header, note), deadline, &mut note_failure);
                    rest = again;
                }
                continue;
            }
            for rank in ranks {
                let sender = &self.senders[*rank as usize];
                note_failure(data.send_deadline(sender, header, note, deadline));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends data to a rank if there is space in its queue and, on another node, for the data.
    ///
    /// # Errors
    /// [`SendError::Full`](queues::error::SendError::Full) and others in [`TagOnError::Send`],
    /// [`TagOnError::Exhausted`], [`TagOnError::Note`], [`TagOnError::NoRank`].
    pub fn try_send(
        &self,
        data: &SharedBuffer,
        to: u32,
        header: CacheLineHeader,
        note: &[u8],
    ) -> Sent {
        let sender = self.senders.get(to as usize).ok_or(TagOnError::NoRank { rank: to })?;
        let Some(landing) = &self.landings[to as usize] else {
            return data.send(sender, header, note);
        };
        let receiver = self.nodes[to as usize].1;
        let mut landed = landing.land(data, vec![receiver]).or_else(|why| match why {
            TagOnError::Exhausted { .. } if self.is_any_closed(to) => {
                self.reclaim(landing, to)?;
                landing.land(data, vec![receiver])
            }
            other => Err(other),
        })?;
        let sent = landed.message(header, note).and_then(|message| Ok(sender.try_send(&message)?));
        sent.inspect_err(|_| _ = landed.take_back(receiver))
    }

    /// The senders to the ranks on the node of a rank, in the order of their numbers there.
    fn beside(&self, rank: u32) -> impl Iterator<Item = &CacheLineSender> {
        let node = self.nodes[rank as usize].0;
        let all = self.nodes.iter().zip(&self.senders);
        all.filter(move |((other, _), _)| *other == node).map(|(_, sender)| sender)
    }

    fn is_any_closed(&self, rank: u32) -> bool {
        self.beside(rank).any(CacheLineSender::is_closed)
    }

    /// Frees the buffers of receivers that are gone, in the window of a rank.
    fn reclaim(&self, landing: &LandingPool, rank: u32) -> Sent {
        // One query of the node service for each receiver.
        let state = |sender: &CacheLineSender| match sender.exited() {
            Some(PeerExit::Failed(_)) => ReceiverState::Failed,
            // One that has left may still read what it has opened.
            Some(PeerExit::Left(_)) => ReceiverState::Closed,
            _ if sender.is_closed() => ReceiverState::Closed,
            _ => ReceiverState::Receives,
        };
        let states: Vec<_> = self.beside(rank).map(state).collect();
        let of = |number: u32| states.get(number as usize).copied();
        landing.reclaim(|number| of(number).unwrap_or(ReceiverState::Receives))
    }

    /// Sends data to ranks of another node: the first of them that can store the data does so.
    fn send_to_node(
        &self,
        data: &SharedBuffer,
        mut ranks: &[u32],
        (header, note): (CacheLineHeader, &[u8]),
        deadline: Instant,
        note_failure: &mut impl FnMut(Sent),
    ) {
        let mut pause = FIRST_PAUSE;
        let mut next_check = Instant::now() + BETWEEN_CHECKS;
        let mut landed = loop {
            let Some((first, rest)) = ranks.split_first() else { return };
            let Some(landing) = &self.landings[*first as usize] else { return };
            let receivers = ranks.iter().map(|rank| self.nodes[*rank as usize].1).collect();
            match landing.land(data, receivers) {
                Ok(landed) => break landed,
                Err(TagOnError::Exhausted { .. }) if Instant::now() < deadline => {
                    if next_check <= Instant::now() {
                        // If that fails, so does the next attempt.
                        let _ = self.reclaim(landing, *first);
                        next_check = Instant::now() + BETWEEN_CHECKS;
                    }
                    // Each attempt takes some round trips, which delay other commands.
                    std::thread::sleep(pause);
                    pause = LONGEST_PAUSE.min(2 * pause);
                }
                // The others may have left nothing.
                Err(
                    why @ TagOnError::Land(
                        WindowError::RankExited { .. } | WindowError::Withdrawn { .. },
                    ),
                ) => {
                    note_failure(Err(why));
                    ranks = rest;
                }
                Err(why) => return note_failure(Err(why)),
            }
        };
        for rank in ranks {
            let sent = landed.message(header, note).and_then(|message| {
                Ok(self.senders[*rank as usize].send_deadline(&message, deadline)?)
            });
            if sent.is_err() {
                // Fails only if its window has ended, which no rank needs then.
                let _ = landed.take_back(self.nodes[*rank as usize].1);
            }
            note_failure(sent);
        }
    }
}

impl TagOnReceiver {
    /// Receives the next message, waiting for one.
    ///
    /// # Errors
    /// [`RecvError`](queues::error::RecvError) and [`TagOnError::NoData`], as
    /// [`Error::Message`].
    pub fn recv(&mut self) -> Result<TagOnMessage> {
        let message = self.receiver.recv()?;
        self.open(message)
    }

    /// Receives the next message, waiting for at most `timeout`; `None` after that.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<TagOnMessage>> {
        let message = self.receiver.recv_timeout(timeout)?;
        message.map(|message| self.open(message)).transpose()
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<TagOnMessage>> {
        let message = self.receiver.try_recv()?;
        message.map(|message| self.open(message)).transpose()
    }

    fn open(&mut self, message: CacheLineMessage) -> Result<TagOnMessage> {
        let pools = self.pools.as_mut().ok_or(TagOnError::NoData)?;
        let data = pools.open(&message)?;
        Ok(TagOnMessage { message, data })
    }
}

impl Drop for TagOnReceiver {
    /// Releases the data of the messages that were not received.
    fn drop(&mut self) {
        // A message that entered an open queue behind the last look would keep its buffer for ever,
        // and a sender without buffers sends nothing that finds the queue closed.
        self.receiver.close();
        loop {
            match self.receiver.try_recv() {
                Ok(Some(message)) => drop(self.open(message)),
                // A sender composes in a slot. Polls void it if that takes long.
                Ok(None) => std::hint::spin_loop(),
                Err(_) => break,
            }
        }
        if let Some(pools) = self.pools.take() {
            pools.end();
        }
    }
}

/// Splits ranks into the first mention of each and all others.
fn split_repeated(ranks: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut seen = BTreeSet::new();
    ranks.iter().partition(|rank| seen.insert(**rank))
}

impl Communicator {
    /// Creates on every rank a pool of `buffers` buffers of `bytes` bytes, a receive queue of
    /// `capacity` headers, and senders to all of them; the capacity is a power of two. A collective
    /// call.
    ///
    /// A multicast stores its data once, for any number of receivers, which read them in place. The
    /// buffer is free again when the last receiver has dropped them. Queues end as those of
    /// [`cache_lines`](Self::cache_lines).
    ///
    /// The ranks may be on several nodes. The data of a multicast then cross the network once for
    /// each node, and lie there once, in memory of the first of its receivers. Every rank has such
    /// memory for each rank of another node: as much as a pool. A send to another node returns when
    /// the data are there, after three round trips.
    ///
    /// ```
    /// use tradewind::messages::CacheLineHeader;
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local_nodes(&[1, 2], |world| {
    ///     let mut port = world.tag_on(16, 4, 4096)?;
    ///     if world.rank() == 0 {
    ///         let mut buffer = port.pool.take()?;
    ///         buffer[..5].copy_from_slice(b"hello");
    ///         let data = buffer.finish(5);
    ///         port.sender.send(&data, &[0, 1, 2], CacheLineHeader::default(), b"a greeting")?;
    ///     }
    ///     let message = port.receiver.recv()?;
    ///     assert_eq!((message.note(), &message.data[..]), (&b"a greeting"[..], &b"hello"[..]));
    ///     world.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the capacity is not a power of two, there are no buffers or more than 1,048,576, a
    /// buffer has no bytes, a rank has no memory left, is gone or in another collective.
    pub fn tag_on(&self, capacity: usize, buffers: u64, bytes: u64) -> Result<TagOnPort> {
        // Apart from the numbers of the kinds of queues, from Basic rings and append buffers.
        let key = 1 << 61 | (buffers << 40 ^ bytes) & ((1 << 61) - 1);
        let call = Signature::new(CallKind::Queues, capacity as u64, key);
        let what = "a pool of buffers";
        let made = TagOnPool::create(self.arena(), buffers, bytes).map_err(Error::from);
        let pool = self.opened_by_all(what, call, made)?;
        let (receiver, senders) = self.open_queues::<CacheLine>(capacity, 2, None)?;
        let pools = TagOnPools::new(self.segment());
        let ranks = self.size();
        let Some(group) = self.internode() else {
            let landings = (0..ranks).map(|_| None).collect();
            let nodes = (0..ranks).map(|rank| (0, rank)).collect();
            let receiver = TagOnReceiver { receiver, pools: Some(pools), _window: None };
            return Ok(TagOnPort {
                pool,
                sender: TagOnSender { senders, landings, nodes },
                receiver,
            });
        };
        let nodes = numbered_on_nodes(&group.nodes_of_ranks());
        let own = nodes[self.rank() as usize].0;
        let receivers = nodes.iter().map(|(_, number)| u64::from(*number) + 1).max();
        let sizes = LandingSizes { buffers, bytes, receivers: receivers.unwrap_or(1) };
        let remote = nodes.iter().filter(|(node, _)| *node != own).count() as u64;
        let window = sizes.all()?.checked_mul(remote);
        let window =
            window.ok_or_else(|| argument("the bytes of a buffer", bytes.to_string(), "less"))?;
        let opened = self.open_windows(window)?;
        let window = opened.own;
        let windows: Vec<_> = opened.all.into_iter().map(Arc::new).collect();
        let opened = self.land_in(&windows, &nodes, sizes, pools);
        let (pools, landings) = self.opened_by_all(what, call, opened)?;
        let receiver = TagOnReceiver { receiver, pools: Some(pools), _window: Some(window) };
        Ok(TagOnPort { pool, sender: TagOnSender { senders, landings, nodes }, receiver })
    }

    /// Maps the buffers for data from other nodes, and those for the data of this rank.
    fn land_in(
        &self,
        windows: &[Arc<RemoteWindow>],
        nodes: &[(u32, u32)],
        sizes: LandingSizes,
        mut pools: TagOnPools,
    ) -> Result<(TagOnPools, Vec<Option<LandingPool>>)> {
        let rank = self.rank();
        let (own, receiver) = nodes[rank as usize];
        let each = sizes.all()?;
        let mut landings = Vec::new();
        for (at, (window, (node, _))) in (0..).zip(windows.iter().zip(nodes)) {
            // In a window the ranks of other nodes follow each other.
            let senders = (0..).zip(nodes).filter(|(_, (other, _))| other != node);
            let mut landing = None;
            for (place, (from, _)) in (0..).zip(senders) {
                let name = LandingPlace { from, at };
                if *node == own {
                    pools.add_landing(name, window, place * each, sizes, receiver.into())?;
                } else if from == rank {
                    landing = Some(LandingPool::new(name, Arc::clone(window), place * each, sizes));
                }
            }
            landings.push(landing);
        }
        Ok((pools, landings))
    }
}

/// Numbers the ranks of each node from 0.
fn numbered_on_nodes(nodes: &[u32]) -> Vec<(u32, u32)> {
    let mut next = BTreeMap::new();
    let number = |node: &u32| {
        let next = next.entry(*node).or_insert(0);
        *next += 1;
        (*node, *next - 1)
    };
    nodes.iter().map(number).collect()
}
