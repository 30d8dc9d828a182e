//! Creation of channels.

use super::memory::{ChannelHeader, ChannelMemory};
use super::other_node::OtherNode;
use super::owner::ChannelOwner;
use super::receiver::Receiver;
use super::ring;
use super::sender::Sender;
use super::value::Value;
use shm::arena::Arena;
use shm::object::CreateError;
use shm::segment::Offset;
use std::marker::PhantomData;
use std::sync::Arc;

/// A channel as its creator sees it: memory with two ends, to each of which one process connects.
///
/// When the channel is dropped, an end that is still free can no longer be connected to, and
/// appears as closed to the other one. The memory returns to the arena once both ends are closed or
/// their processes dead.
///
/// ```
/// use queues::channel::{Channel, Receiver, Sender};
/// use shm::{arena::Arena, segment::{Backing, Segment}};
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
/// let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
/// let channel = Channel::<u32>::create(&arena, 100)?;
/// // Other processes map the same segment and receive the offset.
/// let mut sender = Sender::<u32>::connect(&segment, channel.offset())?;
/// let mut receiver = Receiver::<u32>::connect(&segment, channel.offset())?;
/// assert!(Sender::<u32>::connect(&segment, channel.offset()).is_err(), "once only");
/// sender.send(7)?;
/// assert_eq!(receiver.recv()?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Channel<T: Value> {
    owner: Arc<ChannelOwner>,
    carries: PhantomData<T>,
}

impl<T: Value> Channel<T> {
    /// Creates a channel that holds at least `capacity` values.
    ///
    /// # Errors
    /// [`CreateError::Size`], [`CreateError::Arena`].
    pub fn create(arena: &Arc<Arena>, capacity: u64) -> Result<Self, CreateError> {
        let memory = ChannelMemory::create::<T>(arena, capacity)?;
        let owner = Arc::new(ChannelOwner { memory, arena: Arc::clone(arena) });
        Ok(Channel { owner, carries: PhantomData })
    }

    /// Returns the offset of the channel in the segment, to which both ends connect.
    pub fn offset(&self) -> Offset {
        self.owner.memory.offset()
    }

    /// Returns the number of values that the channel holds at least.
    pub fn capacity(&self) -> u64 {
        ring::capacity(self.owner.memory.slots())
    }

    /// Returns the number of bytes that the channel occupies in the segment.
    pub fn bytes(&self) -> u64 {
        size_of::<ChannelHeader>() as u64 + self.owner.memory.slots() * T::WORDS * 8
    }

    /// Connects this process to the sending end of a channel that leads to another node. The memory
    /// stays allocated for as long as the end.
    ///
    /// # Errors
    /// Those of [`Sender::connect`].
    pub fn sender_to(self, other: OtherNode) -> Result<Sender<T>, CreateError> {
        let memory = &self.owner.memory;
        let mut sender = Sender::connect(memory.segment(), memory.offset())?;
        sender.keep_owner(self.owner);
        sender.set_other(other);
        Ok(sender)
    }

    /// Connects this process to the receiving end of a channel that comes from another node.
    ///
    /// # Errors
    /// Those of [`Receiver::connect`].
    pub fn receiver_from(&self, other: OtherNode) -> Result<Receiver<T>, CreateError> {
        let memory = &self.owner.memory;
        let mut receiver = Receiver::connect(memory.segment(), memory.offset())?;
        receiver.set_other(other);
        Ok(receiver)
    }

    /// Returns the code of the type of the values, which both ends must have in common.
    pub fn kind() -> u8 {
        T::KIND
    }
}

/// Creates a channel and connects both ends in this process, for two of its threads.
///
/// # Errors
/// [`CreateError::Size`], [`CreateError::Arena`], [`CreateError::Process`].
pub fn pair<T: Value>(
    arena: &Arc<Arena>,
    capacity: u64,
) -> Result<(Sender<T>, Receiver<T>), CreateError> {
    let channel = Channel::<T>::create(arena, capacity)?;
    let mut sender = Sender::connect(arena.segment(), channel.offset())?;
    let mut receiver = Receiver::connect(arena.segment(), channel.offset())?;
    receiver.keep_owner(Arc::clone(&channel.owner));
    sender.keep_owner(channel.owner);
    Ok((sender, receiver))
}
