//! The conditional fetch: a request that completes when a word of the window has reached a value.

use super::condition::Condition;
use super::error::WindowError;
use super::memory::WindowMemory;
use super::remote::{Place, RemoteWindow};
use goal::arithmetic::DataType;
use shm::liveness::ProcessWatch;
use shm::published_wait::Wait;
use shm::wait::{PeerWaitError, SpinPolicy, wait_for_peer};
use std::time::{Duration, Instant};

/// A started conditional fetch. Dropping it cancels the request.
///
/// Every command of [`RemoteWindow`] that changes the word, including the owner's, wakes the waits
/// for it.
#[derive(Debug)]
#[must_use = "nothing is fetched until the request is tested or waited for"]
pub struct FetchRequest<'window, B> {
    window: &'window RemoteWindow,
    condition: Condition,
    from: u64,
    into: B,
}

/// Result of a test of a request.
#[derive(Debug)]
pub enum Fetch<'window, B> {
    /// The condition was true; the fetched bytes.
    Complete(B),
    /// The condition is not true yet; the request, to be tested again.
    Pending(FetchRequest<'window, B>),
}

impl RemoteWindow {
    /// Starts a fetch of as many bytes as `into` has, from byte `from` of the window on, as soon as
    /// the condition is true. Returns at once; the request returns `into` when it has completed. A
    /// fetch with an empty `into` only waits.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`] or [`WindowError::Misaligned`] for the range or the word,
    /// [`WindowError::Withdrawn`].
    ///
    /// # Examples
    /// ```
    /// # use queues::window::Window;
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use queues::window::{Condition, Fetch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::create(&arena, 64)?;
    /// let remote = window.local();
    /// let request = remote.fetch_when(Condition { at: 0, at_least: 1 }, 8, [0; 8])?;
    /// let Fetch::Pending(request) = request.test()? else { panic!("the flag is still 0") };
    /// remote.put_value(8, 2.5_f64)?;
    /// remote.put_value(0, 1_u64)?;
    /// assert_eq!(request.wait()?, 2.5_f64.to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_when<B: AsMut<[u8]>>(
        &self,
        condition: Condition,
        from: u64,
        mut into: B,
    ) -> Result<FetchRequest<'_, B>, WindowError> {
        self.check_elements(condition.at, DataType::U64, 8)?;
        self.check(from, into.as_mut().len() as u64)?;
        Ok(FetchRequest { window: self, condition, from, into })
    }
}

impl<'window, B: AsMut<[u8]>> FetchRequest<'window, B> {
    /// Returns the bytes if the condition is true.
    ///
    /// # Errors
    /// [`WindowError::Withdrawn`] if the condition is not true and the window was withdrawn; of a
    /// window of another node also [`WindowError::RankExited`], [`WindowError::NodeServiceEnded`].
    #[inline]
    pub fn test(self) -> Result<Fetch<'window, B>, WindowError> {
        // The load acquires what the writer of the word stored before, so the bytes that `fetch`
        // reads are at least as new as the condition.
        let is_true = self.window.is_reached(self.condition)?;
        self.tested(is_true)
    }

    /// Waits until the condition is true: spins briefly, then sleeps.
    ///
    /// # Errors
    /// [`WindowError::Withdrawn`], and [`WindowError::OwnerGone`] if the window's owner has ended; of a
    /// window of another node [`WindowError::RankExited`], [`WindowError::NodeServiceEnded`].
    #[inline]
    pub fn wait(self) -> Result<B, WindowError> {
        // Without a deadline it cannot pass.
        while !self.until_true(None)? {}
        self.fetch()
    }

    /// Waits until the condition is true, at most for `timeout`.
    ///
    /// # Errors
    /// Those of [`FetchRequest::wait`].
    #[inline]
    pub fn wait_timeout(self, timeout: Duration) -> Result<Fetch<'window, B>, WindowError> {
        let is_true = self.until_true(Instant::now().checked_add(timeout))?;
        self.tested(is_true)
    }

    /// Waits until the condition is true, or until the deadline.
    ///
    /// # Errors
    /// Those of [`FetchRequest::wait`].
    #[inline]
    pub fn wait_deadline(self, deadline: Instant) -> Result<Fetch<'window, B>, WindowError> {
        let is_true = self.until_true(Some(deadline))?;
        self.tested(is_true)
    }

    /// Waits. Returns false if the deadline has passed.
    #[inline]
    fn until_true(&self, deadline: Option<Instant>) -> Result<bool, WindowError> {
        let memory = match self.window.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => return window.wait(self.condition, deadline),
        };
        for _ in 0..SpinPolicy::CHANNEL.eager {
            if self.condition.is_true(memory) {
                return Ok(true);
            }
        }
        self.sleep_until_true(memory, deadline)
    }

    #[cold]
    fn sleep_until_true(
        &self,
        memory: &WindowMemory,
        deadline: Option<Instant>,
    ) -> Result<bool, WindowError> {
        let window = self.window;
        let Condition { at, at_least } = self.condition;
        let poll = || {
            let gone = || memory.processes().is_closed().then(|| Err(window.withdrawn()));
            // The condition comes first: a window that is withdrawn after it came true completes the
            // fetch, because its memory stays allocated while this handle is attached.
            if self.condition.is_true(memory) { Some(Ok(true)) } else { gone() }
        };
        match wait_for_peer(
            memory.wakeup_of(at / 8),
            &mut ProcessWatch::default(),
            || memory.owner(),
            deadline,
            Wait::Peer,
            poll,
        ) {
            Ok(outcome) => outcome,
            Err(PeerWaitError::Timeout) => Ok(false),
            Err(PeerWaitError::PeerExited(owner)) => {
                Err(WindowError::OwnerGone { window: window.offset(), owner, at, at_least })
            }
        }
    }

    #[inline]
    fn tested(self, is_true: bool) -> Result<Fetch<'window, B>, WindowError> {
        if is_true { Ok(Fetch::Complete(self.fetch()?)) } else { Ok(Fetch::Pending(self)) }
    }

    #[inline]
    fn fetch(self) -> Result<B, WindowError> {
        let mut into = self.into;
        self.window.load(self.from, into.as_mut())?;
        Ok(into)
    }
}
