//! Blocking collectives that are long, or with block sizes that not every rank has: every rank
//! sends and receives in pieces, at the same time.
//!
//! A nonblocking collective stages a whole contribution before another rank can fetch it. If all
//! ranks are inside the call, two shorter ways exist. Each pair of ranks has a ring of pieces in
//! each direction: while one rank writes a piece the other reads the previous one, and the ring
//! stays in the caches, whatever the length of the message. Or the ring carries the address of a
//! long message, and the receiver copies it from the sender's private memory (`piece_mover`).
//!
//! | word | written by | read by |
//! |---|---|---|
//! | tag of a piece | the sender, after the piece | the receiver, until it is the tag of the expected piece |
//! | number of taken positions | the receiver | the sender, when the ring may be full or a message is offered |
//! | outcome of an offered message | the receiver, before the number | the sender, after the number |
//! | bytes of a buffer that passes between two ranks (`passed_buffers`) | the rank that read it last | the other rank |
//! | joined position, address of the receiver's buffer | the receiver | the sender, while a message is offered |
//! | claimed and completed parts | both | both |
//!
//! A tag consists of the piece's position, which always increases, and a digest of the call, so a
//! piece of another collective is never mistaken for one of this.
//!
//! Every piece states the length of its message. A receiver that expects another length takes the
//! message all the same and reports the difference, so both ends stay at the same piece.

mod message;
mod passed_buffers;
mod piece_mover;
mod ring;
mod ring_set;
mod route;
mod transfer;
mod words;

use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::flat::pattern::FlatCollective;
use crate::signature::Signature;
use crate::wait::{self, SleepersCondition};
use ring_set::RingSet;
use shm::segment::Offset;
use shm::sync::Ordering;
use std::ops::Range;

pub use transfer::Transfer;

/// Published instead of a location if there is no memory.
const NO_MEMORY: u64 = u64::MAX;

/// Largest number of ranks. With more, the rings of all pairs would need too much memory.
pub(crate) const MOST_RANKS: u32 = 16;

/// Largest capacity that the memory for copied inputs keeps between calls, in bytes.
const KEPT_SCRATCH: usize = 4 << 20;

/// The streams of a communicator.
#[derive(Debug, Default)]
pub(crate) enum StreamsState {
    /// Not opened yet.
    #[default]
    Unknown,
    /// Rank 0 has no memory for them, so no rank has them.
    Missing,
    /// Open.
    Ready(RingSet),
    /// A transfer ended early.
    Broken {
        /// Location of the rings.
        at: Offset,
    },
}

/// The input of a blocking call.
#[derive(Clone, Debug)]
pub enum BlockingInput<'a> {
    /// Apart from the output.
    Apart(&'a [u8]),
    /// This range of the output's memory.
    InOutput(Range<usize>),
}

impl StreamsState {
    /// Runs a collective as a stream of pieces and waits for it. Returns `None` if there is no
    /// memory for streams, on all ranks alike. The lengths of input and memory have been checked.
    pub(crate) fn run(
        &mut self,
        context: &Context,
        (sequence, call): (u64, Signature),
        collective: &FlatCollective,
        input: BlockingInput<'_>,
        memory: &mut [u8],
    ) -> Option<Outcome> {
        // Results must not overwrite bytes that are still to be sent.
        let mut scratch = Vec::new();
        // In the memory of the result the own block is where it belongs.
        let keeps_own = matches!(input, BlockingInput::Apart(_));
        let input = match input {
            BlockingInput::Apart(bytes) => bytes,
            BlockingInput::InOutput(range) => {
                scratch = self.take_scratch();
                scratch.extend_from_slice(memory.get(range).unwrap_or_default());
                &scratch
            }
        };
        let ranks = (context.rank, context.size());
        let mut outcome = self.run_transfer(context, (sequence, call), |transfer| {
            route::fill(transfer, collective, ranks, (input, keeps_own), &mut *memory)
        });
        if let Some(Ok(())) = outcome {
            outcome = Some(route::repeat_shared(collective, context.rank, memory));
        }
        if scratch.capacity() != 0 {
            self.keep_scratch(scratch);
        }
        outcome
    }

    /// As [`run`](Self::run), with the messages that `fill` adds.
    #[inline]
    pub(crate) fn run_transfer<'a>(
        &mut self,
        context: &Context,
        (sequence, call): (u64, Signature),
        fill: impl FnOnce(&mut Transfer<'a>) -> Outcome,
    ) -> Option<Outcome> {
        if let StreamsState::Unknown = self {
            match StreamsState::open(context, sequence, call) {
                Ok(opened) => *self = opened,
                Err(error) => return Some(Err(error.into())),
            }
        }
        let rings = match self {
            StreamsState::Ready(rings) if !rings.broken.is_set() => rings,
            StreamsState::Ready(_) | StreamsState::Broken { .. } => {
                return Some(Err(Error::Broken.into()));
            }
            StreamsState::Unknown | StreamsState::Missing => return None,
        };
        let mut transfer = Transfer::new(context.rank);
        let filled = fill(&mut transfer);
        Some(match transfer.run(context, rings, sequence, call) {
            Ok(None) => filled,
            Ok(Some(failure)) => Err(failure),
            // The two ends of a ring may be at different pieces. The flag ends the wait of the
            // other ranks, which would otherwise never end.
            Err(error) => {
                rings.broken.set();
                *self = StreamsState::Broken { at: rings.at };
                Err(error)
            }
        })
    }

    /// Returns the empty memory for copied inputs.
    fn take_scratch(&mut self) -> Vec<u8> {
        match self {
            StreamsState::Ready(rings) => std::mem::take(&mut rings.scratch),
            _ => Vec::new(),
        }
    }

    fn keep_scratch(&mut self, mut scratch: Vec<u8>) {
        if let StreamsState::Ready(rings) = self {
            scratch.clear();
            scratch.shrink_to(KEPT_SCRATCH);
            rings.scratch = scratch;
        }
    }

    /// Opens the rings: rank 0 allocates them and publishes their location; the other ranks wait
    /// for it. No words are exchanged. After a mismatch, which the waiting ranks report, rank 0
    /// publishes the location in its next stream.
    #[cold]
    fn open(context: &Context, sequence: u64, call: Signature) -> Result<StreamsState, Error> {
        let word = &context.state.exchange_line.streams;
        if context.rank == 0 {
            let place = StreamsState::allocate(context).map_or(NO_MEMORY, |at| at.0);
            // Release: pairs with the Acquire below: the rings are zeroed.
            word.store(place, Ordering::Release);
            context.wake_sleepers();
        } else {
            // Acquire: pairs with the Release of rank 0 above.
            let is_met = || word.load(Ordering::Acquire) != 0;
            wait::until(
                &SleepersCondition { word: &context.sleepers.word, is_met },
                context.member.node().spin_policy(),
                None,
                || context.wait_for(sequence),
                || context.progress(),
                || context.check_liveness(sequence, call, |rank| rank != 0),
            )?;
            // Rank 0 may have started its next stream by now, after a mismatch in this one.
            context.state.find_mismatch(sequence, call)?;
        }
        // Relaxed: the wait has acquired the word, or this rank has written it.
        match word.load(Ordering::Relaxed) {
            NO_MEMORY => Ok(StreamsState::Missing),
            at => RingSet::open(context, Offset(at)).map(StreamsState::Ready),
        }
    }

    /// Allocates the memory of the rings. Returns `None` if that would leave too little memory for
    /// everything else: a program may have many communicators, and without rings their collectives
    /// are staged.
    fn allocate(context: &Context) -> Option<Offset> {
        let arena = context.member.arena();
        let at = context.member.allocate_shared(RingSet::bytes(context.size())).ok()?;
        // The last quarter is for buffers and staging. Tested after the allocation, which first
        // frees what other communicators have released.
        if arena.used() > arena.capacity() / 4 * 3 {
            // The call fails only for memory of another arena, which cannot occur here.
            let _ = arena.free(at);
            return None;
        }
        Some(at)
    }

    /// Releases the memory of the rings.
    pub(crate) fn close(&self, context: &Context) {
        let at = match self {
            StreamsState::Ready(RingSet { at, .. }) | StreamsState::Broken { at } => Some(*at),
            // Rank 0 may have opened them alone. Relaxed: this rank does not access them.
            StreamsState::Unknown => {
                Some(Offset(context.state.exchange_line.streams.load(Ordering::Relaxed)))
            }
            StreamsState::Missing => None,
        };
        if let Some(at) = at.filter(|at| ![0, NO_MEMORY].contains(&at.0)) {
            context.member.release_shared(at, context.size(), context.rank == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ring::StreamedMessage;
    use super::words::{PieceState, poll, publish, writable_until};
    use super::*;
    use crate::flat::pattern::Pattern;
    use crate::node::{EngineKind, JobOptions, Node};
    use crate::signature::CallKind;
    use shm::sync::AtomicU64;
    use std::sync::Arc;

    const BYTES: u64 = 20_000;

    /// Two ranks in this thread, with open rings.
    fn ranks(call: Signature) -> Vec<(Context, StreamsState)> {
        let options = JobOptions { cores: 2, ..JobOptions::new(2, EngineKind::Peers) };
        let node = Node::create(&options).expect("a node");
        let open = |rank| {
            let member = Arc::new(node.join(rank).expect("a member"));
            let context =
                Context::new(member, vec![0, 1], rank, node.world_state(), 0).expect("a context");
            let streams = StreamsState::open(&context, 0, call).expect("memory for rings");
            (context, streams)
        };
        (0..2).map(open).collect()
    }

    #[test]
    fn a_message_that_changes_its_length_is_refused() {
        let call = Signature::new(CallKind::Bcast, BYTES, 0);
        let mut ranks = ranks(call);
        let (_, StreamsState::Ready(rings)) = &mut ranks[0] else { panic!("{:?}", ranks[0].1) };
        let ring = rings.out[1].as_mut().expect("a ring to rank 1");
        // Shorter than what has arrived before.
        for bytes in [BYTES, 4000] {
            let message = StreamedMessage::new(bytes, 0, 0);
            ring.write(&[1; 8 << 10], message, piece_mover::call_tag(0, call), None)
                .expect("space");
        }
        let collective = FlatCollective::new(Pattern::Broadcast { root: 0 }, BYTES, call);
        let (context, streams) = &mut ranks[1];
        let mut memory = [0; BYTES as usize];
        let input = BlockingInput::Apart(&[]);
        let outcome = streams.run(context, (0, call), &collective, input, &mut memory);
        let Some(Err(error)) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(*error, Error::BlockLength { sent: 4000, .. }), "{error:?}");
        assert!(matches!(streams, StreamsState::Broken { .. }), "{streams:?}");
    }

    #[test]
    fn a_piece_in_a_buffer_that_its_sender_cannot_have_is_refused() {
        let call = Signature::new(CallKind::Bcast, 200_000, 0);
        let mut ranks = ranks(call);
        let (_, StreamsState::Ready(rings)) = &mut ranks[0] else { panic!("{:?}", ranks[0].1) };
        let sender = rings.buffers[1].as_mut().expect("buffers with rank 1");
        let number = sender.take(200_000).expect("a buffer of rank 0");
        let longest = rings.out[1].as_ref().expect("a ring to rank 1").longest_piece();
        let (_, StreamsState::Ready(rings)) = &mut ranks[1] else { panic!("{:?}", ranks[1].1) };
        let receiver = rings.buffers[0].as_mut().expect("buffers with rank 0");
        let number = u64::from(number);
        let own = u64::from(receiver.take(200_000).expect("a buffer of rank 1"));
        let message = 200_000;
        assert!(receiver.received_place(number, message, (0, 200_000)).is_ok());
        assert!(receiver.received_place(number, message, (1, 200_000)).is_err(), "beyond the end");
        assert!(receiver.received_place(number, 1000, (0, 1000)).is_err(), "too short for one");
        let too_long = longest as u64 + 1;
        assert!(receiver.received_place(number, too_long, (0, 1)).is_err(), "too long for one");
        assert!(receiver.received_place(256 + number, message, (0, 1)).is_err(), "no such buffer");
        receiver.add(own as u8);
        assert!(receiver.received_place(own, message, (0, 1)).is_err(), "the receiver's");
    }

    /// Rank 0 sends more messages than it has buffers, then rank 1 does.
    #[test]
    fn buffers_pass_with_messages_and_none_is_lost() {
        const BYTES: usize = 200_000;
        let mut ranks = ranks(Signature::new(CallKind::Bcast, BYTES as u64, 0));
        let mut sequence = 0;
        for (root, owned) in [(0_u32, [[1, 3], [0, 4], [0, 4]]), (1, [[1, 3], [2, 2], [3, 1]])] {
            for expected in owned {
                let call = Signature::new(CallKind::Bcast, BYTES as u64, root.into());
                let collective =
                    FlatCollective::new(Pattern::Broadcast { root }, BYTES as u64, call);
                std::thread::scope(|scope| {
                    for (rank, (context, streams)) in (0..).zip(&mut ranks) {
                        let collective = &collective;
                        scope.spawn(move || {
                            let value = if rank == root { sequence as u8 + 1 } else { 0 };
                            let input = [value; BYTES];
                            let mut memory = [value; BYTES];
                            let input =
                                BlockingInput::Apart(if rank == root { &input } else { &[] });
                            let call = (sequence, call);
                            let outcome =
                                streams.run(context, call, collective, input, &mut memory);
                            assert!(matches!(outcome, Some(Ok(()))), "{outcome:?}");
                            assert_eq!(memory, [sequence as u8 + 1; BYTES]);
                        });
                    }
                });
                sequence += 1;
                let own: Vec<Vec<u8>> = (0..2)
                    .map(|rank| {
                        let StreamsState::Ready(rings) = &ranks[rank].1 else { panic!("broken") };
                        rings.buffers[1 - rank].as_ref().expect("the other rank's").own().to_vec()
                    })
                    .collect();
                assert_eq!([own[0].len(), own[1].len()], expected, "root {root}");
                let mut all = own.concat();
                all.sort_unstable();
                assert_eq!(all, [0, 1, 2, 3]);
            }
        }
    }

    #[test]
    fn more_messages_than_a_word_counts_are_one_message() {
        let call = Signature::new(CallKind::NeighborAlltoall, BYTES, 0);
        let mut ranks = ranks(call);
        let message = StreamedMessage::new(3, 3 << 16, 7);
        let (_, StreamsState::Ready(rings)) = &mut ranks[0] else { panic!("{:?}", ranks[0].1) };
        let ring = rings.out[1].as_mut().expect("a ring to rank 1");
        ring.write(&[1; 3], message, 0, None).expect("space");
        let (_, StreamsState::Ready(rings)) = &ranks[1] else { panic!("{:?}", ranks[1].1) };
        assert_eq!(rings.from[0].as_ref().expect("a ring from rank 0").message(), message);
    }

    #[test]
    fn another_call_is_found_at_every_position() {
        // Tags have fewer bits than positions, so the last of these begin again from 0.
        for position in [0, 1, 511, (1 << 40) - 2, 1 << 40, (1 << 40) + 700] {
            let word = AtomicU64::new(0);
            assert_eq!(poll(&word, position, 5), PieceState::Absent);
            publish(&word, position, 5);
            assert_eq!(poll(&word, position, 5), PieceState::Present);
            assert_eq!(poll(&word, position, 6), PieceState::Foreign);
            assert_eq!(poll(&word, position + 512, 5), PieceState::Absent);
        }
    }

    #[test]
    fn any_number_of_taken_positions_is_a_bound() {
        assert_eq!(writable_until(&AtomicU64::new(u64::MAX - 3), 512), u64::MAX);
    }
}
