//! Tag-On: a cache-line message with a reference to data that already lies in the segment.
//!
//! The header passes through a [cache-line queue](crate::cache_line); the data stays in place. So
//! a multicast stores the data once for any number of receivers, which read the same bytes. A
//! receiver takes the header first, like any other message, and opens the data later
//! ([`TagOnPools::open`]). The buffer is free again when the last receiver has dropped its
//! reference, in any order.
//!
//! Any number of threads take buffers from one pool, without a lock. Memory: 64 bytes, and for each
//! buffer its bytes and 8 more. The references of a receiver that dies stay counted, in its memory
//! and in its queue; [`TagOnPool::is_idle`] reports whether any reference is left.
//!
//! **Between nodes** a multicast stores the data once for each node ([`LandingPool`]): in a window of one
//! of the receivers there, from which all of them read it. The headers follow through cache-line
//! queues. The sender frees the buffers of receivers that have failed or ended
//! ([`LandingPool::reclaim`]).
//!
//! After Ang et al. 1996, section 5.2. Only between processes of one job: a receiver reads memory
//! that its sender could modify.
//!
//! ```
//! use queues::{cache_line::{CacheLineHeader, CacheLineQueue}, tag_on::{TagOnPool, TagOnPools}};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let queues = [CacheLineQueue::create(&arena, 8, None)?, CacheLineQueue::create(&arena, 8, None)?];
//! let pool = TagOnPool::create(&arena, 4, 65536)?;
//!
//! let mut buffer = pool.take()?;
//! buffer[..5].copy_from_slice(b"hello");
//! let data = buffer.finish(5);
//! for queue in &queues {
//!     data.send(&queue.sender(), CacheLineHeader::default(), b"a greeting")?;
//! }
//! drop(data);
//!
//! // Another process does the same with its own mapping of the segment.
//! let mut pools = TagOnPools::new(&segment);
//! for queue in &queues {
//!     let message = queue.receiver()?.try_recv()?.expect("it was sent");
//!     assert_eq!(TagOnPools::note(&message), b"a greeting");
//!     assert_eq!(&pools.open(&message)?[..], b"hello");
//! }
//! assert!(pool.is_idle(), "both references are dropped");
//! # Ok(())
//! # }
//! ```

pub(crate) mod references;

mod landing;
mod marks;
mod pool;
mod pools;
mod sizes;

pub use landing::{Landed, LandingPlace, LandingPool, ReceiverState};
pub use pool::{BufferMut, NOTE_BYTES, SharedBuffer, TagOnError, TagOnPool};
pub use pools::{ReceivedBuffer, TagOnPools};
pub use sizes::{LandingSizes, MAX_BUFFERS};
