//! Sends of a rank, and the queues in front of its rings.

use super::{PendingSend, State};
use crate::matching::error::MatchError;
use crate::matching::line::{BLOCK_BYTES, Ending, Envelope, INLINE_BYTES, Kind, Line, Offer};
use crate::matching::outgoing::{Corrupt, EAGER_BYTES, Outgoing, Queued, Stream};
use crate::matching::slab::{Key, Slab};
use shm::process_memory::{self, AccessFailure};

/// Bytes of a send that are read at once on their way into a ring: whole blocks.
const CHUNK_BYTES: u64 = 4 * BLOCK_BYTES as u64;

impl State {
    /// Sends an eager message, if its receiver has space and credit.
    #[inline]
    pub(in crate::matching) fn try_eager(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<bool, MatchError> {
        if let Some(remote) = self.remote_rank(to) {
            return self.try_eager_to(remote, envelope, bytes);
        }
        if bytes.len() > EAGER_BYTES {
            return Ok(false);
        }
        let outgoing = self.outgoing(to)?;
        if !outgoing.has_credit(bytes.len()) {
            return Ok(false);
        }
        let is_sent = outgoing
            .put_message(Kind::Eager, envelope, 0, bytes)
            .map_err(|_| MatchError::Corrupt { rank: to })?;
        if is_sent {
            outgoing.notify();
        }
        Ok(is_sent)
    }

    /// Returns true if an eager message of this length waits for nothing but space in the ring.
    pub(in crate::matching) fn has_credit(
        &mut self,
        to: u32,
        bytes: usize,
    ) -> Result<bool, MatchError> {
        if let Some(remote) = self.remote_rank(to) {
            return self.has_credit_at(remote, bytes);
        }
        Ok(bytes <= EAGER_BYTES && self.outgoing(to)?.has_credit(bytes))
    }

    /// Starts a send that completes when its message is matched: synchronous, or without space or
    /// credit for its bytes. The bytes are copied if this process cannot read its own memory: any
    /// thread may have to send them, without the call that holds their buffer.
    pub(in crate::matching) fn start_matched_send(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<Key, MatchError> {
        self.expect_lines();
        let guard = self.guards.pop().unwrap_or_default();
        let owned: Option<Box<[u8]>> = (!self.layout.reads_itself).then(|| bytes.into());
        let address = owned.as_deref().unwrap_or(bytes).as_ptr() as u64;
        // The receiver reads the guard after the bytes and compares it with this value, so it
        // accepts no bytes of a send that has ended meanwhile.
        let offer = guard.published();
        let send = self.sends.insert(PendingSend {
            to,
            address,
            bytes: bytes.len() as u64,
            owned,
            is_dropped: false,
            is_requested: false,
            guard,
            is_complete: false,
        });
        if let Some(remote) = self.remote_rank(to) {
            self.offer_to(remote, envelope, send, bytes)?;
            return Ok(send);
        }
        let corrupt = |_| MatchError::Corrupt { rank: to };
        let outgoing = self.outgoing(to)?;
        let is_short = bytes.len() <= INLINE_BYTES && outgoing.has_credit(bytes.len());
        if is_short
            && outgoing.put_message(Kind::Synchronous, envelope, send.0, bytes).map_err(corrupt)?
        {
            outgoing.notify();
            return Ok(send);
        }
        let offer = Offer { send: send.0, address, guard: offer };
        self.queue(to, Line::new(Kind::Offer, envelope, offer.words()))?;
        Ok(send)
    }

    /// Puts a line into the ring to a rank, or queues it.
    pub(super) fn queue(&mut self, to: u32, line: Line) -> Result<(), MatchError> {
        self.expect_lines();
        if let Some(remote) = self.remote_rank(to) {
            return self.queue_remote(remote, line);
        }
        let outgoing = self.outgoing(to)?;
        outgoing.queue.push_back(Queued::Line(line));
        // A rank is listed once: while its queue is not empty.
        if outgoing.queue.len() == 1 {
            self.queued.push(to);
        }
        self.flush(&None)
    }

    /// Puts queued lines into the rings. `own` is a send from a buffer that the current call holds.
    pub(super) fn flush(&mut self, own: &Option<(Key, &[u8])>) -> Result<(), MatchError> {
        let mut number = 0;
        while let Some(&to) = self.queued.get(number) {
            if self.flush_one(to, own)? {
                self.queued.swap_remove(number);
            } else {
                number += 1;
            }
        }
        Ok(())
    }

    /// As [`flush`](Self::flush), for one ring. Returns true if nothing is queued any more.
    fn flush_one(&mut self, to: u32, own: &Option<(Key, &[u8])>) -> Result<bool, MatchError> {
        let State { peers, sends, chunk, own: mailbox, .. } = self;
        let Some(outgoing) = &mut peers[to as usize].outgoing else { return Ok(true) };
        let mut has_moved = false;
        let mut is_blocked = false;
        while !is_blocked && let Some(first) = outgoing.queue.pop_front() {
            let rest = match first {
                Queued::Line(line) => {
                    let put = outgoing.put(line).map_err(|_| MatchError::Corrupt { rank: to })?;
                    has_moved |= put;
                    (!put).then_some(Queued::Line(line))
                }
                Queued::Stream(mut stream) => {
                    let is_done = stream_bytes(outgoing, &mut stream, sends, own, chunk)
                        .map_err(|_| MatchError::Corrupt { rank: to })?;
                    has_moved = true;
                    if is_done && own.is_none_or(|(send, _)| send != stream.send) {
                        // Another thread may sleep until this send is complete.
                        mailbox.wakeup().notify();
                    }
                    (!is_done).then_some(Queued::Stream(stream))
                }
            };
            if let Some(rest) = rest {
                // A ring is filled in the order of its queue, so the first entry holds up the
                // others.
                outgoing.queue.push_front(rest);
                is_blocked = true;
            }
        }
        if has_moved {
            outgoing.notify();
        }
        Ok(!is_blocked)
    }

    /// Returns true if a send is complete, and then forgets it.
    pub(in crate::matching) fn finish_send(&mut self, send: Key) -> bool {
        if self.sends.get(send).is_some_and(|pending| !pending.is_complete) {
            return false;
        }
        self.forget_send(send);
        true
    }

    /// Returns the place of the receiver of a send that is not complete.
    pub(in crate::matching) fn receiver_of(&self, send: Key) -> Option<u32> {
        self.sends.get(send).map(|pending| pending.to)
    }

    fn forget_send(&mut self, send: Key) {
        if let Some(pending) = self.sends.remove(send) {
            // A receiver that still has the offer must not find the guard's next send.
            pending.guard.withdraw();
            self.guards.push(pending.guard);
        }
    }

    /// Detaches a send from its buffer: its bytes are copied, and it completes by itself.
    pub(in crate::matching) fn drop_send(&mut self, send: Key, bytes: &[u8]) {
        if self.finish_send(send) {
            return;
        }
        if let Some(pending) = self.sends.get_mut(send) {
            pending.is_dropped = true;
            if pending.owned.is_none() {
                pending.owned = Some(bytes.into());
                // Before the caller has its buffer back: a receiver that reads it now fails, and
                // requests the bytes.
                pending.guard.withdraw();
            }
        }
    }

    /// Ends a send after a failure of its wait: it is given up if its receiver takes nothing any
    /// more, and detached from its buffer otherwise.
    pub(in crate::matching) fn fail_send(&mut self, send: Key, bytes: &[u8], error: &MatchError) {
        let to = self.sends.get(send).map(|pending| pending.to);
        match error {
            MatchError::RankExited { rank } | MatchError::Corrupt { rank } if Some(*rank) == to => {
                self.forget_send(send);
            }
            _ => self.drop_send(send, bytes),
        }
    }

    pub(super) fn complete_send(&mut self, send: Key) {
        let Some(pending) = self.sends.get_mut(send) else { return };
        pending.is_complete = true;
        if pending.is_dropped {
            self.forget_send(send);
        }
    }
}

/// Puts the next lines of a requested send into the ring. Returns true if all are there.
fn stream_bytes(
    outgoing: &mut Outgoing,
    stream: &mut Stream,
    sends: &mut Slab<PendingSend>,
    own: &Option<(Key, &[u8])>,
    chunk: &mut Vec<u8>,
) -> Result<bool, Corrupt> {
    // Given up in `fail_send`, because its receiver has exited or its ring is corrupt. Nothing
    // follows in this ring.
    let Some(pending) = sends.get_mut(stream.send) else { return Ok(true) };
    let bytes = pending.bytes;
    if stream.done.is_none() {
        let envelope = Envelope { context: 0, tag: 0, bytes };
        let line = Line::new(Kind::Requested, envelope, [stream.message, 0, 0, 0, 0, 0]);
        if !outgoing.put(line)? {
            return Ok(false);
        }
        stream.done = Some(0);
    }
    let mut done = stream.done.unwrap_or(0);
    while done < bytes {
        let end = bytes.min(done + CHUNK_BYTES);
        let own_bytes = own.filter(|(send, _)| *send == stream.send).map(|(_, own)| own);
        let part = match part_of(pending, own_bytes, done, end, chunk) {
            Part::Bytes(part) => part,
            Part::Lost(part) => {
                stream.is_lost = true;
                part
            }
            // A call that holds the buffer continues.
            Part::Later => {
                stream.done = Some(done);
                return Ok(false);
            }
        };
        // All parts but the last are whole blocks, so a stream that is continued later is cut where
        // its receiver expects it.
        for block in part.chunks(BLOCK_BYTES) {
            if !outgoing.put_bytes(block)? {
                stream.done = Some(done);
                return Ok(false);
            }
            done += block.len() as u64;
        }
    }
    stream.done = Some(done);
    // Also a lost message has all its lines: the receiver counts them to find this one.
    if !outgoing.put(Ending::of_stream(stream.is_lost).line())? {
        return Ok(false);
    }
    // All bytes are in the ring, so the caller may change its buffer.
    pending.is_complete = true;
    if pending.is_dropped {
        sends.remove(stream.send);
    }
    Ok(true)
}

/// Bytes of a send.
pub(super) enum Part<'a> {
    Bytes(&'a [u8]),
    /// They are not there any more; these replace them.
    Lost(&'a [u8]),
    /// They are there, but only a call that holds the buffer can read them.
    Later,
}

/// Returns some bytes of a send; `own` is its buffer, if the current call holds that.
pub(super) fn part_of<'a>(
    pending: &'a PendingSend,
    own: Option<&'a [u8]>,
    done: u64,
    end: u64,
    chunk: &'a mut Vec<u8>,
) -> Part<'a> {
    match (&pending.owned, own) {
        (Some(owned), _) => Part::Bytes(&owned[done as usize..end as usize]),
        (None, Some(own)) => Part::Bytes(&own[done as usize..end as usize]),
        (None, None) => {
            chunk.resize((end - done) as usize, 0);
            // The kernel reads: the program may have forgotten the request and freed its buffer,
            // where another value or nothing lies now.
            let own = std::process::id();
            match process_memory::read(own, pending.address.wrapping_add(done), chunk) {
                Ok(()) => Part::Bytes(chunk),
                Err(AccessFailure::NotMapped { .. }) => Part::Lost(chunk),
                Err(_) => Part::Later,
            }
        }
    }
}
