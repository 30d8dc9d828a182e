//! Active messages: a table of what to do with a message, by the handler number that it carries.

use crate::cache_line::CacheLineMessage;
use crate::message::Message;
use crate::name::SourceName;

/// What to do with a message: it is given the receiver's state, who has sent the message, and its
/// bytes (five of an Express message, as many as were sent of a wide one). A handler may send.
pub type Handler<C> = fn(&mut C, SourceName, &[u8]);

/// 256 handlers over a state `C`. Numbers that were not set, and so the Empty message of a queue,
/// do nothing.
///
/// ```
/// use queues::{express::Message, handlers::Handlers, name::SourceName};
///
/// let mut handlers = Handlers::<u64>::new();
/// handlers.set(3, |sum, _source, data| *sum += u64::from(data[0]));
/// let mut sum = 0;
/// handlers.dispatch(&mut sum, Message::new(SourceName::default(), 3, [7, 0, 0, 0, 0]));
/// handlers.dispatch(&mut sum, Message::default());
/// assert_eq!(sum, 7);
/// ```
pub struct Handlers<C> {
    table: Box<[Handler<C>; 256]>,
}

impl<C> Handlers<C> {
    /// A table that does nothing with any message.
    #[must_use]
    pub fn new() -> Self {
        Handlers { table: Box::new([nothing::<C>; 256]) }
    }

    /// Says what to do with messages that carry `number`.
    pub fn set(&mut self, number: u8, handler: Handler<C>) {
        self.table[usize::from(number)] = handler;
    }

    /// Runs the handler of an Express message.
    #[inline]
    pub fn dispatch(&self, state: &mut C, message: Message) {
        self.table[usize::from(message.handler())](state, message.source(), &message.data());
    }

    /// Runs the handler of a wide message.
    #[inline]
    pub fn dispatch_wide(&self, state: &mut C, message: &CacheLineMessage) {
        let header = message.header();
        self.table[usize::from(header.handler)](state, header.source, message.data());
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
