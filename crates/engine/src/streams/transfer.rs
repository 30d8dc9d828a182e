//! The messages that a rank sends and receives in one call, moved piece by piece.

use super::message::{Messages, ReceiveSink, Receiving, Sending};
use super::piece_mover::PieceMover;
use super::ring_set::RingSet;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::signature::Signature;
use crate::wait::{self, SleepersCondition};
use goal::arithmetic::{Arithmetic, DataType};
use std::cell::RefCell;

/// The messages of a rank in one call. Messages between two ranks keep their order.
#[derive(Debug)]
pub struct Transfer<'a> {
    rank: u32,
    messages: Messages<'a>,
}

/// Number of rounds in which no piece moves before a rank waits.
const IDLE_ROUNDS: u32 = 32;

impl<'a> Transfer<'a> {
    #[inline]
    pub(super) fn new(rank: u32) -> Self {
        Transfer { rank, messages: Messages::default() }
    }

    /// Adds a message to another rank.
    #[inline]
    pub fn send(&mut self, to: u32, bytes: &'a [u8]) {
        self.add(Sending::new(to, 0, bytes));
    }

    /// Adds a message to another rank. If it is an operand, the other rank combines it with its own
    /// contribution.
    #[inline]
    pub(super) fn send_operand(&mut self, to: u32, bytes: &'a [u8], is_operand: bool) {
        self.add(Sending { is_operand, ..Sending::new(to, 0, bytes) });
    }

    /// Adds one of several messages to another rank.
    #[inline]
    pub(super) fn send_tagged(&mut self, to: u32, tag: u64, bytes: &'a [u8]) {
        self.add(Sending::new(to, tag, bytes));
    }

    #[inline]
    fn add(&mut self, mut sending: Sending<'a>) {
        let Messages { sendings, own, .. } = &mut self.messages;
        sending.is_own = own.contains(sending.bytes);
        sendings
            .iter_mut()
            .filter(|earlier| earlier.to == sending.to)
            .for_each(|earlier| earlier.behind += 1);
        sendings.push(sending);
    }

    /// Adds a block of this rank for itself, of the same length on both sides. It is copied after
    /// the other ranks have what they wait for.
    #[inline]
    pub fn keep(&mut self, from: &'a [u8], into: &'a mut [u8]) {
        debug_assert_eq!(from.len(), into.len());
        let bytes = from.len().min(into.len());
        if bytes > 0 {
            let sendings = self.messages.sendings.iter_mut();
            sendings.for_each(|sending| sending.is_own |= std::ptr::eq(sending.bytes, from));
            self.messages.own.push(&from[..bytes], &mut into[..bytes]);
        }
    }

    /// Adds a message from another rank.
    #[inline]
    pub fn receive(&mut self, from: u32, into: &'a mut [u8]) {
        self.receive_tagged(from, 0, into);
    }

    /// Adds one of several messages from another rank.
    #[inline]
    pub(super) fn receive_tagged(&mut self, from: u32, tag: u64, into: &'a mut [u8]) {
        self.expect(from, tag, ReceiveSink::Copy(into));
    }

    #[inline]
    fn expect(&mut self, from: u32, tag: u64, sink: ReceiveSink<'a>) {
        let receivings = &mut self.messages.receivings;
        receivings
            .iter_mut()
            .filter(|earlier| earlier.from == from)
            .for_each(|earlier| earlier.behind += 1);
        receivings.push(Receiving {
            from,
            sink,
            behind: 0,
            tag,
            done: 0,
            finished: false,
            is_joined: false,
        });
    }

    /// Adds a message from another rank that is combined with this rank's contribution, in rank
    /// order.
    pub(super) fn fold(
        &mut self,
        from: u32,
        own: &'a [u8],
        rule: Option<(Arithmetic, DataType)>,
        into: &'a mut [u8],
    ) {
        // A reduction without a rule has no result.
        let Some(rule) = rule else { return };
        let own_is_left = self.rank < from;
        self.expect(from, 0, ReceiveSink::Fold { own, own_is_left, rule, into });
    }

    /// Moves all messages. Returns the first error of a result.
    ///
    /// # Errors
    /// Returns an error if the transfer has ended early.
    #[inline]
    pub(super) fn run(
        &mut self,
        context: &Context,
        rings: &mut RingSet,
        sequence: u64,
        call: Signature,
    ) -> Outcome<Option<Box<Error>>> {
        // The ranks with messages both ways, before any is finished: how a message is cut depends
        // on them, and must not change while it is under way.
        let messages = &mut self.messages;
        let mut mover = PieceMover::new((context, rings), sequence, call, messages.mutual());
        // Sending and receiving alternate, so two ranks that send to each other never wait for each
        // other's rings.
        let mut idle_rounds = 0;
        // A read by another core takes the lines away from this one: a copy of the same bytes takes
        // twice as long afterwards.
        if mover.offers_own(messages) {
            while messages.copy_own() {}
        }
        while !messages.is_empty() {
            // `|` instead of `||`: both directions move in every round.
            let has_moved = mover.send(messages)? | mover.receive(messages)?;
            mover.notify();
            // The receiver idles until the next piece is there, while the own block only delays
            // this rank.
            let is_urgent = has_moved && messages.has_pieces_to_send(mover.mutual);
            let has_moved = !is_urgent && messages.copy_own() || has_moved;
            idle_rounds = if has_moved { 0 } else { idle_rounds + 1 };
            // A short piece that is on its way arrives before a wait could begin.
            if idle_rounds > IDLE_ROUNDS {
                wait(messages, &mut mover)?;
                idle_rounds = 0;
            }
        }
        Ok(messages.failure.take())
    }
}

/// Waits until a piece can be sent or received.
#[cold]
fn wait(messages: &Messages<'_>, mover: &mut PieceMover<'_>) -> Outcome {
    let context = mover.context;
    let sequence = mover.sequence;
    let call = mover.call;
    let broken = mover.rings.broken.clone();
    let check_liveness = || {
        // A rank that ended its transfer early sends no more pieces.
        if broken.is_set() {
            return Err(Error::Broken);
        }
        context.check_liveness(sequence, call, |rank| !messages.awaits(rank))
    };
    // A rank that sleeps while its message is read is woken late, and the next call begins late on
    // both ranks.
    let spin_policy = context.member.node().spin_policy().during_copy(messages.offered_bytes());
    // The wait tests its condition through a shared reference, and a test updates the bound of
    // writable positions. Both happen on this thread.
    let mover = RefCell::new(mover);
    let is_met = || mover.borrow_mut().can_move(messages);
    let can_move = SleepersCondition { word: &context.sleepers.word, is_met };
    let subject = || context.wait_for(sequence);
    wait::until(&can_move, spin_policy, None, subject, || context.progress(), check_liveness)?;
    Ok(())
}
