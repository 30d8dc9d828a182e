//! Selection of messages, and what a receive returns.

use crate::communicator::Communicator;
use crate::error::Result;
use bytemuck::Pod;
use queues::matching::MessageHead;

/// The senders that a receive accepts. A `u32` converts to [`Source::Rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// One rank of the communicator.
    Rank(u32),
    /// All ranks of the communicator.
    Any,
}

/// The tags that a receive accepts. A `u32` converts to [`Tag::Is`]. Messages are sent with a `u32`,
/// of which all values are tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// One tag.
    Is(u32),
    /// All tags.
    Any,
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Source::Rank(rank)
    }
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Self {
        Tag::Is(tag)
    }
}

impl Tag {
    pub(super) fn exact(self) -> Option<u32> {
        match self {
            Tag::Is(tag) => Some(tag),
            Tag::Any => None,
        }
    }
}

/// Description of a message that was received or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    source: u32,
    tag: u32,
    bytes: u64,
}

impl Status {
    #[inline]
    pub(super) fn new(communicator: &Communicator, head: MessageHead) -> Result<Self> {
        let source = communicator.sender(head.sender)?;
        Ok(Status { source, tag: head.envelope.tag, bytes: head.envelope.bytes })
    }

    /// The sender.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// The tag.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Length of the message in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of elements of type `T`; `None` if the message is not a whole number of them.
    pub fn count<T: Pod>(&self) -> Option<usize> {
        let size = size_of::<T>() as u64;
        (size > 0 && self.bytes.is_multiple_of(size)).then(|| (self.bytes / size) as usize)
    }
}
