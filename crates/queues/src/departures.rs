//! Asking whether those at the other end of a queue are still there.

use std::sync::Arc;

/// Knows who has gone. Whoever waits at a queue asks about ten times a second, and once more looks
/// at the queue before the answer counts.
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
    /// The rank whose departure leaves nothing to wait for; `None` as long as somebody may still
    /// come.
    fn departed(&self) -> Option<u32>;
}

/// Who is asked, if anybody.
pub(crate) type Watched = Option<Arc<dyn Departures>>;

/// What the one who is asked says.
pub(crate) fn departed(watched: &Watched) -> Option<u32> {
    watched.as_ref().and_then(|departures| departures.departed())
}
