//! Channels: opened once between two threads of one or two processes. A send is then one store and
//! a receive two loads.
//!
//! A channel carries one type of value from one [`Sender`] to one [`Receiver`], in order and
//! bounded. It carries nothing else while it is open, so a value needs no header, and the receiver
//! uses it from the slot. Keep a pipeline of channels open for as long as a computation lasts; the
//! set-up is paid once.
//!
//! Every value is combined with a key that changes with every lap around the ring. The receiver
//! remembers the word that it read from a slot one lap ago; a different word is a new value. In the
//! one case of 2⁶⁴ in which a new value looks like the old word, the sender announces it in a word
//! beside the ring, which the receiver loads when a slot has not changed. So every bit pattern of
//! every type can be sent.
//!
//! A waiting end spins for some ten microseconds and then sleeps. The value wakes it; for that the
//! sender loads a line that only sleeping receivers write. The death of the other process ends the
//! wait with an error.
//!
//! After Rosing and Saltz, *Low Latency Messages on Distributed Memory Multiprocessors* (1995),
//! section 4.
//!
//! ```
//! use queues::channel;
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(segment, 0..1 << 20)?);
//! let (mut sender, mut receiver) = channel::pair::<f64>(&arena, 64)?;
//! std::thread::scope(|scope| {
//!     scope.spawn(move || (0..1000).try_for_each(|i| sender.send(f64::from(i))));
//!     let mut sum = 0.0;
//!     while let Ok(value) = receiver.recv() {
//!         sum += value;
//!     }
//!     assert_eq!(sum, 499_500.0);
//! });
//! # Ok(())
//! # }
//! ```

mod carried;
mod create;
pub(crate) mod key;
mod memory;
mod other_node;
mod owner;
mod receiver;
pub(crate) mod ring;
mod sender;
mod value;

pub use crate::error::{RecvError, SendError};
pub use carried::{ChannelSink, ChannelSource};
pub use create::{Channel, pair};
pub(crate) use memory::{observe, slots_for};
pub use other_node::OtherNode;
pub use receiver::Receiver;
pub use sender::Sender;
pub use shm::process_table::End;
pub use value::Value;
