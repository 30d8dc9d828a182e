//! Identifiers of destinations and senders.
//!
//! A program sends to a [`QueueName`], which its destination table translates (Ang et al. 1996,
//! section 4.1). A message carries a [`SourceName`], which is a [`QueueName`] of the *receiver's*
//! table: the destination of replies.

use std::fmt;

/// Number of names in a table: 14 bits, the width of the source in an Express word.
pub const NAMES: u16 = 1 << 14;

/// A logical destination: a number below [`NAMES`] that means the same queue in every process of a
/// job.
///
/// ```
/// use queues::id::{NAMES, QueueName};
/// assert_eq!(QueueName::new(7).map(QueueName::number), Some(7));
/// assert!(QueueName::new(NAMES).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueName(u16);

/// Sender of a message, as a name of the receiver's job for replies.
///
/// ```
/// use queues::id::{QueueName, SourceName};
/// let reply_to = QueueName::from(SourceName::new(3).expect("below 16,384"));
/// assert_eq!(reply_to.number(), 3);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceName(u16);

macro_rules! number_below {
    ($name:ident, $number:ty, $limit:ident) => {
        impl $name {
            #[doc = concat!("Returns `None` for a number that is not below [`", stringify!($limit), "`].")]
            #[must_use]
            pub const fn new(number: $number) -> Option<Self> {
                if number < $limit { Some(Self(number)) } else { None }
            }

            /// Returns the identifier in the low bits of a word that another process may have
            /// written.
            #[must_use]
            pub const fn from_bits(word: u64) -> Self {
                Self((word & ($limit as u64 - 1)) as $number)
            }

            /// Returns the number.
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

impl From<SourceName> for QueueName {
    /// Returns the queue to which a reply goes.
    fn from(source: SourceName) -> QueueName {
        QueueName(source.0)
    }
}

impl From<QueueName> for SourceName {
    /// Returns the source name with which replies go to this queue.
    fn from(name: QueueName) -> SourceName {
        SourceName(name.0)
    }
}
