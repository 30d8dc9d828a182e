//! Active messages: a table of functions, indexed by the handler number of a message.

use crate::id::SourceName;
use crate::message::ExpressMessage;

/// Function for a message: its arguments are the receiver's state, the sender of the message, and
/// its bytes. A handler may send.
pub type Handler<C> = fn(&mut C, SourceName, &[u8]);

/// 256 handlers over a state `C`. A message without a handler, such as the empty one of
/// `recv_or_empty`, is ignored.
///
/// ```
/// use queues::{express::ExpressMessage, handlers::Handlers, id::SourceName};
///
/// let mut handlers = Handlers::<u64>::new();
/// handlers.set(3, |sum, _source, data| *sum += u64::from(data[0]));
/// let mut sum = 0;
/// handlers.dispatch(&mut sum, ExpressMessage::new(SourceName::default(), 3, [7, 0, 0, 0, 0]));
/// handlers.dispatch(&mut sum, ExpressMessage::default());
/// assert_eq!(sum, 7);
/// ```
pub struct Handlers<C> {
    table: Box<[Handler<C>; 256]>,
}

impl<C> Handlers<C> {
    /// Creates a table without handlers.
    #[must_use]
    pub fn new() -> Self {
        Handlers { table: Box::new([nothing::<C>; 256]) }
    }

    /// Sets the handler of messages with this number.
    pub fn set(&mut self, number: u8, handler: Handler<C>) {
        self.table[usize::from(number)] = handler;
    }

    /// Calls the handler of a message.
    #[inline]
    pub fn dispatch(&self, state: &mut C, message: ExpressMessage) {
        self.table[usize::from(message.handler())](state, message.source(), &message.data());
    }
}

fn nothing<C>(_state: &mut C, _source: SourceName, _data: &[u8]) {}

impl<C> Default for Handlers<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> std::fmt::Debug for Handlers<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handlers").finish_non_exhaustive()
    }
}
