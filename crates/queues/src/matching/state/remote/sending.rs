//! Sending to ranks on other nodes.

use super::OFFER_CHARGE;
use crate::matching::error::MatchError;
use crate::matching::line::Envelope;
use crate::matching::outgoing::charge_of;
use crate::matching::remote::{REMOTE_RECORD_BYTES, Remote, kind, words_of, words_with};
use crate::matching::slab::Key;
use crate::matching::state::State;
use crate::matching::state::sending::{Part, part_of};

impl State {
    /// Sends a message without a request, if there is space and credit for all of it.
    #[inline]
    pub(in crate::matching::state) fn try_eager_to(
        &mut self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
    ) -> Result<bool, MatchError> {
        let remote = self.remote(to)?;
        if !remote.has_credit(to, bytes.len()) {
            return Ok(false);
        }
        let is_sent = if bytes.len() <= REMOTE_RECORD_BYTES {
            remote.link.put(to, words_with(kind::EAGER, envelope, 0), bytes)
        } else {
            remote.put_long(to, envelope, bytes)
        };
        if is_sent {
            remote.link.publish_soon();
            remote.peers[to as usize].messages.take(charge_of(bytes.len()));
            remote.set_known(to);
        }
        Ok(is_sent)
    }

    /// Returns true if a message needs nothing but space in the send ring.
    pub(in crate::matching::state) fn has_credit_at(
        &mut self,
        to: u32,
        bytes: usize,
    ) -> Result<bool, MatchError> {
        Ok(self.remote(to)?.has_credit(to, bytes))
    }

    /// Sends a short synchronous message, or offers one.
    pub(in crate::matching::state) fn offer_to(
        &mut self,
        to: u32,
        envelope: Envelope,
        send: Key,
        bytes: &[u8],
    ) -> Result<(), MatchError> {
        let remote = self.remote(to)?;
        remote.set_known(to);
        // `has_credit` also refuses if an offer waits: messages of one sender match in their order.
        let is_short = bytes.len() <= REMOTE_RECORD_BYTES && remote.has_credit(to, bytes.len());
        let words = words_with(kind::SYNCHRONOUS, envelope, send.0);
        if is_short && remote.link.put(to, words, bytes) {
            remote.link.publish();
            remote.peers[to as usize].messages.take(charge_of(bytes.len()));
            return Ok(());
        }
        let words = words_with(kind::OFFER, envelope, send.0);
        remote.peers[to as usize].offers.push_back(words);
        remote.set_queued(to);
        self.flush_remote(&None)
    }

    /// Sends what is queued for remote ranks, as far as there is space and credit.
    pub(in crate::matching::state) fn flush_remote(
        &mut self,
        own: &Option<(Key, &[u8])>,
    ) -> Result<(), MatchError> {
        // `swap_remove` brings the last rank to this index, so the index grows only past a rank
        // that stays queued.
        let mut number = 0;
        while let Some(to) = self.remote.as_ref().and_then(|one| one.queued.get(number).copied()) {
            if self.flush_to(to, own) {
                let remote = self.remote(to)?;
                remote.queued.swap_remove(number);
                remote.peers[to as usize].is_queued = false;
            } else {
                number += 1;
            }
        }
        if let Some(remote) = &mut self.remote {
            remote.link.publish();
        }
        Ok(())
    }

    /// As [`flush_remote`](Self::flush_remote), for one rank. True if nothing is queued any more.
    fn flush_to(&mut self, to: u32, own: &Option<(Key, &[u8])>) -> bool {
        /// Bytes of parts after which the transport gets them: it sends them while the next are
        /// copied.
        const PUBLISHED_BYTES: u64 = 256 << 10;
        let mut unpublished = 0;
        let State { remote, sends, chunk, own: mailbox, .. } = self;
        let Some(Remote { link, peers, credit, .. }) = remote.as_deref_mut() else { return true };
        let peer = &mut peers[to as usize];
        // Nothing that is queued for an exited rank can arrive.
        if peer.exit.is_some() {
            peer.control.clear();
            peer.offers.clear();
            peer.streams.clear();
            return true;
        }
        // Answers, requests and credit come first and need no credit: two ranks that both wait for
        // credit still return what they hold.
        while let Some(words) = peer.control.front() {
            if !link.put(to, *words, &[]) {
                return false;
            }
            peer.control.pop_front();
        }
        while let Some(words) = peer.offers.front() {
            if !peer.messages.has(OFFER_CHARGE, *credit) || !link.put(to, *words, &[]) {
                // Streams go on: the receiver has requested their bytes, so it takes them even if
                // it matches no further message.
                break;
            }
            peer.messages.take(OFFER_CHARGE);
            peer.offers.pop_front();
        }
        while let Some(stream) = peer.streams.front_mut() {
            let Some(pending) = sends.get_mut(stream.send) else {
                // It was given up after a failure of this rank.
                if !link.put(to, words_of(kind::LOST, stream.send.0, 0), &[]) {
                    return false;
                }
                peer.streams.pop_front();
                continue;
            };
            let all = pending.bytes;
            let mut is_lost = false;
            // A message is complete with its last part, so an empty one has a part too.
            if all == 0 && !link.put(to, words_of(kind::PART, stream.send.0, 0), &[]) {
                return false;
            }
            while stream.done < all {
                let end = all.min(stream.done + REMOTE_RECORD_BYTES as u64);
                let length = end - stream.done;
                // The space before the bytes are read: `part_of` may copy them through the kernel,
                // and a part that is not put would be copied again.
                if !peer.parts.has(length, *credit) || !link.has_space(to, 1, length as usize, 0) {
                    return false;
                }
                let own_bytes = own.filter(|(send, _)| *send == stream.send).map(|(_, own)| own);
                let part = match part_of(pending, own_bytes, stream.done, end, chunk) {
                    Part::Bytes(part) => part,
                    Part::Lost(_) => {
                        is_lost = true;
                        break;
                    }
                    // A call that holds the buffer continues.
                    Part::Later => return false,
                };
                if !link.put(to, words_of(kind::PART, stream.send.0, 0), part) {
                    return false;
                }
                peer.parts.take(length);
                stream.done = end;
                unpublished += length;
                if unpublished >= PUBLISHED_BYTES {
                    link.publish();
                    unpublished = 0;
                }
            }
            if is_lost && !link.put(to, words_of(kind::LOST, stream.send.0, 0), &[]) {
                return false;
            }
            let send = stream.send;
            peer.streams.pop_front();
            pending.is_complete = true;
            if pending.is_dropped {
                sends.remove(send);
            }
            if own.is_none_or(|(own, _)| own != send) {
                // Another thread may sleep until this send is complete.
                mailbox.wakeup().notify();
                link.wake();
            }
        }
        peer.offers.is_empty() && peer.streams.is_empty()
    }
}

impl Remote {
    /// Returns true if a message may be sent without a request, as far as its receiver is
    /// concerned.
    #[inline]
    fn has_credit(&self, to: u32, bytes: usize) -> bool {
        let peer = &self.peers[to as usize];
        // Behind an offer that waits nothing may pass it.
        peer.offers.is_empty()
            && peer.messages.has(charge_of(bytes), self.credit)
            && bytes as u64 <= self.longest()
    }

    /// Puts a message in parts on the way, if there is space for all of it.
    fn put_long(&mut self, to: u32, envelope: Envelope, bytes: &[u8]) -> bool {
        let parts = bytes.chunks(REMOTE_RECORD_BYTES);
        // No state is kept from which a later call could continue. So there must be space for all
        // of it before the receiver can see its first record. The space stays until it is used: the
        // caller has this rank's lock, and nothing else uses it.
        if !self.link.has_space(to, parts.len() + 1, REMOTE_RECORD_BYTES, 0) {
            return false;
        }
        let number = self.next_long();
        let mut is_put = self.link.put(to, words_with(kind::LONG, envelope, number), &[]);
        for part in parts {
            is_put &= self.link.put(to, words_of(kind::PART, number, 0), part);
            // The transport begins with the first parts while the last are copied.
            self.link.publish();
        }
        debug_assert!(is_put, "there is space for all parts");
        // In any case: the head is on its way, and a receiver refuses a second one.
        true
    }
}
