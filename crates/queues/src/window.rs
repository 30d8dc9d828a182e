//! Windows: memory that a process exposes so that others can work on it with remote memory
//! commands.
//!
//! A [`Window`] is a range of the job's segment with one owner. Others find it at its offset and
//! open a [`RemoteWindow`], on which they write, read, accumulate and wait (see [`crate::remote`])
//! without the owner's processor taking part: it may compute, sleep or be stopped. The owner can
//! work on its own window with the same commands.
//!
//! A window starts as zeros. It needs 2.3 KiB of the segment beside its bytes, most of it for the
//! names of those who use it.
//!
//! ```
//! use queues::remote::RemoteWindow;
//! use queues::window::Window;
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let window = Window::expose(&arena, 4096)?;
//! // Another process maps the same segment and learns the offset.
//! let remote = RemoteWindow::open(&segment, window.offset())?;
//! remote.write(100, b"from far away")?;
//! remote.notify();
//! window.wait_for_notifications(1, None);
//! let mut bytes = [0; 13];
//! window.local().read(100, &mut bytes)?;
//! assert_eq!(&bytes, b"from far away");
//! # Ok(())
//! # }
//! ```

mod error;
pub(crate) mod layout;
pub(crate) mod words;

use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

pub use error::{RemoteError, WindowError};

use crate::patience;
use crate::peer::{Name, Watch};
use crate::remote::RemoteWindow;
use layout::Layout;

/// Memory that this process has exposed. Dropping it withdraws it: commands of others fail from
/// then on. Its memory goes back to the arena if no living process holds a handle; otherwise it
/// stays taken, so that nobody writes where something else lies by then.
#[derive(Debug)]
pub struct Window {
    local: RemoteWindow,
    arena: Arc<Arena>,
}

impl Window {
    /// Exposes `bytes` zeroed bytes of the arena.
    ///
    /// # Errors
    /// [`WindowError::Arena`], [`WindowError::Process`].
    pub fn expose(arena: &Arc<Arena>, bytes: u64) -> Result<Self, WindowError> {
        let footprint = layout::footprint(bytes).unwrap_or(u64::MAX);
        let offset = arena.allocate_zeroed(footprint, 64)?;
        match Layout::create(arena.segment(), offset, bytes) {
            Ok(layout) => {
                Ok(Window { local: RemoteWindow::of_owner(layout), arena: Arc::clone(arena) })
            }
            Err(error) => {
                // It came from this arena just now.
                let _ = arena.free(offset);
                Err(error)
            }
        }
    }

    /// Where it lies; the name by which others open it.
    pub fn offset(&self) -> Offset {
        self.local.offset()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.local.bytes()
    }

    /// The window as others see it, for the owner's own commands.
    pub fn local(&self) -> &RemoteWindow {
        &self.local
    }

    /// How many notifications there were since the window was exposed.
    pub fn notifications(&self) -> u64 {
        self.local.layout().notifications()
    }

    /// Waits until there were `count` notifications since the window was exposed, or until the
    /// deadline: a short look, then sleep. Gives how many there are. Nobody's death ends the wait:
    /// those who may notify are not known here, so give a deadline where they may die.
    pub fn wait_for_notifications(&self, count: u64, deadline: Option<Instant>) -> u64 {
        let layout = self.local.layout();
        let look = || Some(layout.notifications()).filter(|&there| there >= count);
        // Who will notify is not known, so nobody's death ends the wait.
        let waited = patience::wait(
            layout.notification_bell(),
            &mut Watch::default(),
            || Name::NOBODY,
            deadline,
            look,
        );
        waited.unwrap_or_else(|_| layout.notifications())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let layout = self.local.layout();
        layout.withdraw();
        if !layout.users().are_left() {
            layout.erase();
            // The place came from this arena and is freed once, so that this cannot fail.
            let _ = self.arena.free(layout.offset());
        }
    }
}

impl RemoteWindow {
    /// Opens the window at `offset` of the segment.
    ///
    /// # Errors
    /// [`WindowError::NoWindow`], [`WindowError::Withdrawn`], [`WindowError::TooManyHandles`],
    /// [`WindowError::Segment`], [`WindowError::Process`].
    pub fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, WindowError> {
        RemoteWindow::of_other(Layout::open(segment, offset)?)
    }
}
