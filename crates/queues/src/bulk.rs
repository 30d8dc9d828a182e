//! Bulk transfers: messages of any length from the memory of one process to that of another, over
//! the fastest available path.
//!
//! | path | used | copies |
//! |---|---|---|
//! | in place | for bytes that already lie in the segment | none: the receiver reads them there |
//! | direct | if the kernel permits at least one of the two processes to access the other's memory | one; if both may, both copy parts of it concurrently |
//! | staged | for messages up to twice the staging area, and if there is no direct path | two, through a staging area in the segment; one process copies in while the other copies out |
//! | carried | between nodes, by [`CarriedSender`] and [`CarriedReceiver`] | in pieces through rings of both nodes |
//!
//! A probe transfer determines whether the direct path exists, because containers and security
//! modules can forbid it in many ways; [`Sender::direct_path`] returns the reason. A [`BulkLink`]
//! connects one [`Sender`] and one [`Receiver`]; messages keep their order.
//!
//! A send returns when its bytes may be modified: a staged message may still lie in the staging
//! area, a direct one is in the receiver's buffer. A waiting end spins briefly and then sleeps; the
//! death of the other process ends the wait.
//!
//! ```
//! use queues::bulk;
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(4 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(segment, 0..4 << 20)?);
//! let (mut sender, mut receiver) = bulk::pair(&arena, bulk::DEFAULT_STAGING_BYTES)?;
//! let message = vec![7; 1 << 20];
//! std::thread::scope(|scope| {
//!     scope.spawn(|| sender.send(&message));
//!     let mut buffer = vec![0; 1 << 20];
//!     let received = receiver.recv(&mut buffer)?;
//!     assert_eq!((received.bytes, &buffer), (1 << 20, &message));
//!     Ok::<(), bulk::BulkError>(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod carried;
mod direct_access;
mod error;
mod header;
mod link;
mod memory;
mod owner;
mod path;
mod receiver;
mod sender;
mod shared_transfer;

pub use carried::{CarriedReceiver, CarriedSender, lines_for};
pub use error::{BulkError, DirectAccessError};
pub use link::{BulkLink, DEFAULT_STAGING_BYTES, pair};
pub use path::{DirectPath, Path, Policy, Received};
pub use receiver::Receiver;
pub use sender::Sender;
pub use shm::process_table::End;
