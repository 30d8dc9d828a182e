//! Opens ways between rank 0, which may have several threads, and rank 1. All ranks call the same.

use super::append::{Appended, NAME_BYTES, records};
use super::bulk::Bulk;
use super::message_path::Floor;
use super::parts::{CAPACITY, Lines, Parts, Polled, Words};
use super::ring::{LINES, LockedRing, Ring};
use super::tagged::{Form, Tagged, buffers};
use super::words::{Command, Doubles, Remote, WORDS};
use crate::harness::Error;
use queues::bulk::{DEFAULT_STAGING_BYTES, Policy};
use queues::express::{ExpressQueue, ExpressReceiver, ExpressSender};
use queues::id::SourceName;
use queues::one_poll::{OnePoll, PollSet};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::segment::Offset;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tradewind::messages::{BasicEnd, BasicReceiver, BasicSender, BulkEnd, ChannelEnd, TagOnPort};
use tradewind::{Communicator, Op};

/// Queues of a poll set.
const POLLED: usize = 512;
/// The one that is used, behind all others.
const LAST: usize = POLLED - 1;
/// Messages that the others hold.
const UNUSED_CAPACITY: usize = 16;

/// The other of two ranks.
pub(super) fn other(world: &Communicator) -> usize {
    1 - world.rank() as usize
}

/// Exchanges offsets of objects with the other rank.
fn exchange(world: &Communicator, mine: Offset) -> Result<Offset, Error> {
    let mut theirs = [0_u64; 2];
    world.alltoall(&[mine.0; 2], &mut theirs)?;
    Ok(Offset(theirs[other(world)]))
}

/// The name of a thread.
fn name(thread: usize) -> SourceName {
    // There are far fewer threads than names.
    SourceName::new(thread as u16).unwrap_or_default()
}

/// This rank's part of the segment.
#[expect(unsafe_code, reason = "what the library wraps is measured without it")]
fn arena(world: &Communicator) -> &Arc<Arena> {
    // SAFETY: this module frees nothing by its offset, and it opens only objects that it has
    // created itself, on either rank, at the offsets that the ranks have exchanged.
    unsafe { world.raw_arena() }
}

/// A word for each direction.
pub(super) fn floor(world: &Communicator) -> Result<Floor, Error> {
    let arena = arena(world);
    // Two lines at a time are what processors like to fetch.
    let mine = arena.allocate_zeroed(128, 128)?;
    let theirs = exchange(world, mine)?;
    let segment = arena.segment();
    Ok(Floor {
        out: Mapped::new(segment, mine)?,
        back: Mapped::new(segment, theirs)?,
        sent: 0,
        seen: 0,
    })
}

/// Of so many threads each gets a receive queue of its own on rank 0, and all share one on rank 1.
/// `open` opens a receive queue on both ranks and returns it with a sender to that of the other
/// rank; `join` makes an end of a receive queue and senders to the threads of the other rank.
fn share<R, S: Clone, W>(
    world: &Communicator,
    threads: usize,
    mut open: impl FnMut() -> Result<(R, S), Error>,
    join: impl Fn(SourceName, R, Vec<S>) -> W,
) -> Result<Vec<W>, Error> {
    let (receivers, senders): (Vec<R>, Vec<S>) =
        (0..threads).map(|_| open()).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let ends = receivers.into_iter().enumerate();
    if world.rank() == 0 {
        Ok(ends
            .map(|(thread, receiver)| join(name(thread), receiver, senders[..1].to_vec()))
            .collect())
    } else {
        Ok(ends.take(1).map(|(_, receiver)| join(name(0), receiver, senders.clone())).collect())
    }
}

/// Express.
pub(super) fn words(world: &Communicator, threads: usize) -> Result<Vec<Parts<Words>>, Error> {
    let open = || {
        let mut port = world.express(CAPACITY)?;
        Ok((port.receiver, port.senders.swap_remove(other(world))))
    };
    share(world, threads, open, |source, receiver, senders| {
        Parts::new(Words { source, senders, receiver }, threads)
    })
}

/// Wide Express.
pub(super) fn lines(world: &Communicator, threads: usize) -> Result<Vec<Parts<Lines>>, Error> {
    let open = || {
        let mut port = world.cache_lines(CAPACITY)?;
        Ok((port.receiver, port.senders.swap_remove(other(world))))
    };
    share(world, threads, open, |source, receiver, senders| {
        Parts::new(Lines { source, senders, receiver }, threads)
    })
}

/// Tag-On with data of up to `largest` bytes.
pub(super) fn tagged(
    world: &Communicator,
    threads: usize,
    largest: u64,
    form: Form,
) -> Result<Vec<Tagged>, Error> {
    let buffers = buffers(largest);
    let open = || {
        let TagOnPort { pool, sender, receiver } =
            world.tag_on(CAPACITY, buffers, largest.max(1))?;
        Ok(((pool, receiver), Arc::new(sender)))
    };
    let receivers = match form {
        Form::Multicast => vec![0, 1],
        Form::Copied | Form::Resident => vec![other(world) as u32],
    };
    let rank = world.rank() as u16;
    share(world, threads, open, |source, (pool, receiver), senders| Tagged {
        source,
        rank,
        senders,
        receivers: receivers.clone(),
        receiver,
        pool,
        buffers,
        form,
        resident: None,
        early: VecDeque::new(),
    })
}

/// Append buffers for records of up to `largest` bytes.
pub(super) fn appended(
    world: &Communicator,
    threads: usize,
    largest: u64,
) -> Result<Vec<Appended>, Error> {
    let bytes = largest + NAME_BYTES as u64;
    let records = records(bytes);
    let open = || {
        let ends =
            [world.append_buffer(0, records, bytes)?, world.append_buffer(1, records, bytes)?];
        let (mut sends, mut receives) = (None, None);
        for (owner, ends) in ends.into_iter().enumerate() {
            if owner == other(world) {
                sends = Some(ends.sender);
            } else {
                receives = ends.receiver;
            }
        }
        let rank = world.rank();
        let missing = tradewind::Error::CreationFailed { rank, what: "an append buffer" };
        let (receiver, sender) = receives.zip(sends).ok_or(missing)?;
        Ok((receiver, Arc::new(sender)))
    };
    share(world, threads, open, |source, receiver, senders| Appended {
        source,
        senders,
        receiver,
        records,
    })
}

/// A Basic ring to this rank, and the sender to that of the other rank.
fn basic_ends(world: &Communicator) -> Result<(BasicReceiver, BasicSender), Error> {
    let ends = [world.basic(0, 1, LINES)?, world.basic(1, 0, LINES)?];
    let (mut sends, mut receives) = (None, None);
    for end in ends.into_iter().flatten() {
        match end {
            BasicEnd::Sender(sender) => sends = Some(sender),
            BasicEnd::Receiver(receiver) => receives = Some(receiver),
        }
    }
    let rank = world.rank();
    let missing = tradewind::Error::CreationFailed { rank, what: "a Basic ring" };
    // The two ranks have an end of each.
    Ok(receives.zip(sends).ok_or(missing)?)
}

/// A Basic ring in each direction.
pub(super) fn ring(world: &Communicator) -> Result<Vec<Ring>, Error> {
    let (receiver, sender) = basic_ends(world)?;
    Ok(vec![Ring { sender, receiver }])
}

/// Basic rings with locks.
pub(super) fn locked_ring(world: &Communicator, threads: usize) -> Result<Vec<LockedRing>, Error> {
    let open = || {
        let (receiver, sender) = basic_ends(world)?;
        Ok((Mutex::new(receiver), Arc::new(Mutex::new(sender))))
    };
    share(world, threads, open, |source, receiver, senders| LockedRing {
        source,
        senders,
        receiver,
    })
}

/// The receivers of a poll set, and a sender to the last queue of the other rank's.
type PollSetEnds = ((OnePoll, Vec<Option<ExpressReceiver>>), ExpressSender);

fn poll_set(world: &Communicator) -> Result<PollSetEnds, Error> {
    let arena = arena(world);
    let set = PollSet::create(arena, POLLED)?;
    let unused =
        |index| ExpressQueue::create(arena, UNUSED_CAPACITY, Some((&set, index)))?.receiver();
    let mut receivers: Vec<_> =
        (0..LAST).map(|index| unused(index).map(Some)).collect::<Result<_, _>>()?;
    let mut port = world.express_in_set(CAPACITY, &set, LAST)?;
    receivers.push(Some(port.receiver));
    Ok(((OnePoll::new(&set), receivers), port.senders.swap_remove(other(world))))
}

/// Express behind the poll of many queues.
pub(super) fn polled(world: &Communicator, threads: usize) -> Result<Vec<Parts<Polled>>, Error> {
    let open = || poll_set(world);
    share(world, threads, open, |source, (poll, receivers), senders| {
        Parts::new(Polled { source, senders, poll, receivers }, threads)
    })
}

/// A channel in each direction.
pub(super) fn doubles(world: &Communicator) -> Result<Vec<Doubles>, Error> {
    let ends = [world.channel(0, 1, WORDS)?, world.channel(1, 0, WORDS)?];
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for end in ends.into_iter().flatten() {
        match end {
            ChannelEnd::Sender(sender) => senders.push(sender),
            ChannelEnd::Receiver(receiver) => receivers.push(receiver),
        }
    }
    let ways = senders.into_iter().zip(receivers);
    Ok(ways
        .map(|(sender, receiver)| Doubles {
            sender,
            receiver,
            sent: 0.0,
            seen: 0.0,
            is_right: true,
        })
        .collect())
}

/// Windows and a command on them.
pub(super) fn remote(world: &Communicator, command: Command) -> Result<Vec<Remote>, Error> {
    Ok(vec![Remote {
        command,
        windows: world.windows(WORDS * 8)?,
        other: other(world),
        is_between_nodes: world.nodes() > 1,
        sent: 0,
        seen: 0,
    }])
}

/// A link in each direction; the reason if the policy requires a direct path and there is none.
pub(super) fn bulk(
    world: &Communicator,
    policy: Policy,
) -> Result<(Vec<Bulk>, Option<String>), Error> {
    let mut receivers = Vec::new();
    let mut senders = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        match world.bulk(from, to, DEFAULT_STAGING_BYTES)? {
            Some(BulkEnd::Sender(sender)) => senders.push(sender),
            Some(BulkEnd::Receiver(receiver)) => receivers.push(receiver),
            None => {}
        }
    }
    let (Some(mut sender), Some(mut receiver)) = (senders.pop(), receivers.pop()) else {
        return Ok((Vec::new(), Some("it takes two ranks".to_owned())));
    };
    // First both ranks open their ends, then both try the direct path to the other.
    world.barrier()?;
    let ways = [sender.direct_path(), receiver.direct_path()];
    world.barrier()?;
    let mine = [sender.direct_path(), receiver.direct_path()].iter().all(|path| path.exists());
    let mut all = [0];
    world.allreduce(&[u32::from(mine)], &mut all, Op::Minimum)?;
    if policy == Policy::Direct && all == [0] {
        let why = ways.into_iter().find_map(|path| path.here.err());
        return Ok((
            Vec::new(),
            Some(why.map_or_else(|| "the other rank cannot".to_owned(), |why| why.to_string())),
        ));
    }
    sender.set_policy(policy);
    Ok((vec![Bulk { sender, receiver, policy, is_between_nodes: world.nodes() > 1 }], None))
}
