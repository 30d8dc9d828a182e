//! Messages that arrived and wait for their receive, and the bound on the memory they take.

use crate::effect::Handle;
use std::collections::HashMap;

/// What identifies a message within a run, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) source: u32,
    pub(crate) tag: u32,
    pub(crate) ordinal: u32,
    pub(crate) bytes: u64,
}

/// Where a message's payload is.
#[derive(Debug)]
pub(crate) enum Content {
    /// Here.
    Payload(Vec<u8>),
    /// With the sender, who waits for a request.
    Announced(Handle),
    /// With this rank's transport, which was told to hold it back.
    Held,
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) envelope: Envelope,
    pub(crate) content: Content,
}

/// Memory for payloads that arrive early.
#[derive(Debug)]
pub(crate) struct Allowance {
    bytes: u64,
    messages: u64,
    used_bytes: u64,
    used_messages: u64,
}

impl Allowance {
    pub(crate) fn new(bytes: u64, messages: u64) -> Self {
        Allowance { bytes, messages, used_bytes: 0, used_messages: 0 }
    }

    /// Takes memory for one payload if there is enough.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let fits = self.used_messages < self.messages
            && bytes <= self.bytes.saturating_sub(self.used_bytes);
        if fits {
            self.used_bytes += bytes;
            self.used_messages += 1;
        }
        fits
    }

    /// Gives back the memory of a message that was kept.
    pub(crate) fn give_back(&mut self, message: &Message) {
        if let Content::Payload(payload) = &message.content {
            self.used_bytes -= payload.len() as u64;
            self.used_messages -= 1;
        }
    }

    pub(crate) fn reset(&mut self) {
        (self.used_bytes, self.used_messages) = (0, 0);
    }
}

/// Unexpected messages by the receive that names them.
pub(crate) type UnexpectedNamed = HashMap<u32, Message>;
