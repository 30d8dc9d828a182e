//! Names: what a program calls a queue, what a message calls its sender, and where a queue really
//! is.
//!
//! A program sends to a [`QueueName`], which means the same in every process of its job. The
//! transmit queue's destination table turns it into a place: a node and a [`QueueIndex`] on it (Ang
//! et al. 1996, section 4.1). A message carries a [`SourceName`], which is a [`QueueName`] of the
//! *receiver's* job: the way back.

use std::fmt;

/// How many names a table holds: 14 bits, as many as an Express word spends on its source.
pub const NAMES: u16 = 1 << 14;

/// How many queues a node has at most: 20 bits.
pub const QUEUES: u32 = 1 << 20;

/// How many nodes there are at most: 12 bits.
pub const NODES: u16 = 1 << 12;

/// A logical destination: a number below [`NAMES`] that means the same queue in every process of a
/// job.
///
/// ```
/// use queues::name::{NAMES, QueueName};
/// assert_eq!(QueueName::new(7).map(QueueName::number), Some(7));
/// assert!(QueueName::new(NAMES).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueName(u16);

/// Who has sent a message, as a name of the receiver's job to which it may answer.
///
/// ```
/// use queues::name::{QueueName, SourceName};
/// let reply_to = QueueName::from(SourceName::new(3).expect("below 16,384"));
/// assert_eq!(reply_to.number(), 3);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceName(u16);

/// A machine of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeName(u16);

/// A receive queue of a node, by its number there. Only the post office and the tables that it
/// writes speak of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueIndex(u32);

macro_rules! number_below {
    ($name:ident, $number:ty, $limit:ident) => {
        impl $name {
            #[doc = concat!("`None` for a number that is not below [`", stringify!($limit), "`].")]
            #[must_use]
            pub const fn new(number: $number) -> Option<Self> {
                if number < $limit { Some(Self(number)) } else { None }
            }

            /// The low bits of a word that another process may have written.
            #[must_use]
            pub(crate) const fn from_bits(word: u64) -> Self {
                Self((word & ($limit as u64 - 1)) as $number)
            }

            /// The number.
            #[must_use]
            pub const fn number(self) -> $number {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number_below!(QueueName, u16, NAMES);
number_below!(SourceName, u16, NAMES);
number_below!(NodeName, u16, NODES);
number_below!(QueueIndex, u32, QUEUES);

impl From<SourceName> for QueueName {
    /// The queue to which an answer goes.
    fn from(source: SourceName) -> QueueName {
        QueueName(source.0)
    }
}

impl From<QueueName> for SourceName {
    /// The sender whose answers go to this queue.
    fn from(name: QueueName) -> SourceName {
        SourceName(name.0)
    }
}
