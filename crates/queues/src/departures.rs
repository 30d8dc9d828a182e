//! Liveness of the ranks at the other end of a queue.

use std::sync::Arc;

/// Liveness check of peers. A waiting thread calls it about ten times a second, and polls the queue
/// once more before it acts on the result.
///
/// ```
/// use queues::departures::Departures;
/// use queues::express::{ExpressQueue, RecvError};
/// use shm::{arena::Arena, segment::{Backing, Segment}};
/// use std::sync::Arc;
///
/// #[derive(Debug)]
/// struct AllGone;
/// impl Departures for AllGone {
///     fn departed(&self) -> Option<u32> {
///         Some(3)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
/// let queue = ExpressQueue::create(&Arena::new(segment, 0..1 << 20)?, 64, None)?;
/// let mut receiver = queue.receiver()?.watching(Arc::new(AllGone));
/// assert_eq!(receiver.recv(), Err(RecvError::Departed { rank: 3 }));
/// # Ok(())
/// # }
/// ```
pub trait Departures: Send + Sync + std::fmt::Debug {
    /// Returns a rank that has left or failed, if waiting is pointless without it; `None`
    /// otherwise.
    fn departed(&self) -> Option<u32>;
}

/// Optional liveness check.
pub(crate) type Watched = Option<Arc<dyn Departures>>;

/// Calls the check, if there is one.
pub(crate) fn departed(watched: &Watched) -> Option<u32> {
    watched.as_ref().and_then(|departures| departures.departed())
}
