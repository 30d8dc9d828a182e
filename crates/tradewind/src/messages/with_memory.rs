//! Receiving ends that own the memory that they lie in.

use queues::channel::{Channel, Receiver};

/// A receiving end together with the memory that it lies in.
#[derive(Debug)]
pub struct WithMemory<R, M> {
    // Declared first, so that the end is closed before its memory is freed.
    receiver: R,
    _memory: M,
}

/// Receiving end of a channel.
pub type ChannelReceiver<T> = WithMemory<Receiver<T>, Channel<T>>;

impl<R, M> WithMemory<R, M> {
    pub(super) fn new(receiver: R, memory: M) -> Self {
        WithMemory { receiver, _memory: memory }
    }
}

impl<R, M> std::ops::Deref for WithMemory<R, M> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.receiver
    }
}

impl<R, M> std::ops::DerefMut for WithMemory<R, M> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.receiver
    }
}
