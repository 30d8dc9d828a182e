//! Receiving end of a queue.

use super::flow::Flow;
use super::kind::{Closing, QueueKind};
use super::memory::RingMemory;
use crate::consumers::{Consumers, Multi};
use crate::error::RecvError;
use crate::message::ExpressMessage;
use crate::one_poll::Polled;
use crate::remote_waits::{RemoteWaits, wait_beside};
use crate::sync::Ordering;
use shm::event::{Event, Notify};
use shm::liveness::{PeerExit, RankLiveness, RankWatch};
use shm::published_wait::Wait;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receiver of a queue. A [`Multi`] receiver can be cloned, one clone for each thread.
pub struct Receiver<K: QueueKind, C: Consumers = Multi> {
    ring: RingMemory<K::RingSlot>,
    state: K::ReceiverState,
    flow: Flow,
    watched: RankWatch,
    remote: Option<RemoteSenders>,
    /// See [`set_wakeup_interval`](Self::set_wakeup_interval).
    interval_us: u32,
    form: PhantomData<C>,
}

/// State of a receiver that has senders on other nodes.
#[derive(Debug, Clone)]
struct RemoteSenders {
    /// Event of the node service, which waits for free space.
    space: Event,
    waits: Arc<dyn RemoteWaits>,
}

impl<K: QueueKind, C: Consumers> Receiver<K, C> {
    pub(super) fn of(ring: RingMemory<K::RingSlot>) -> Self {
        Receiver {
            ring,
            state: K::ReceiverState::default(),
            flow: Flow::of_slots(size_of::<K::RingSlot>()),
            watched: RankWatch::default(),
            remote: None,
            interval_us: 0,
            form: PhantomData,
        }
    }

    /// Sets what connects the queue with senders on other nodes: the event of the node service,
    /// which is notified of free space on request, and its marks of waiting threads.
    #[must_use]
    pub fn with_remote_senders(mut self, space: Event, waits: Arc<dyn RemoteWaits>) -> Self {
        self.remote = Some(RemoteSenders { space, waits });
        self
    }

    /// Notifies waiting senders of free space.
    #[inline(always)]
    fn announce_space(&self) {
        self.ring.announce_space();
        if let Some(remote) = &self.remote {
            // The slots were released before the light fence in `announce_space`; the node service
            // requests, passes the heavy one and tries once more.
            let half = self.ring.slots.len() as u64 / 2;
            let is_half_free = || !K::holds(&self.ring, half + 1);
            let is_due = || self.ring.is_space_due() || is_half_free();
            self.ring.space_request().serve(is_due, || remote.space.notify());
        }
    }

    /// Limits the wake-ups of this receiver to one in an interval: a wait that finds no message
    /// sleeps for so long first, and can be woken only after that. A message that arrives meanwhile
    /// costs its sender no system call, and waits for the rest of the interval, which counts in
    /// whole microseconds. None by default.
    pub fn set_wakeup_interval(&mut self, interval: Duration) {
        self.interval_us = u32::try_from(interval.as_micros()).unwrap_or(u32::MAX);
    }

    /// Sleeps for the interval, or until the deadline, without a registration that senders see.
    #[cold]
    fn sleep_for_interval(
        &mut self,
        deadline: Option<Instant>,
    ) -> Option<<Self as Waiter>::Output> {
        if let Some(received) = (0..SpinPolicy::MESSAGE.eager).find_map(|_| self.poll()) {
            return Some(received);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let interval = Duration::from_micros(self.interval_us.into());
        std::thread::sleep(left.map_or(interval, |left| left.min(interval)));
        None
    }

    /// Waits for a message until the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> Option<Result<K::Item, RecvError>> {
        if self.interval_us != 0
            && let Some(received) = self.sleep_for_interval(deadline)
        {
            return Some(received);
        }
        let Some(RemoteSenders { waits, .. }) = self.remote.clone() else {
            return wait(self, SpinPolicy::MESSAGE, deadline);
        };
        wait_beside(&*waits, self, deadline)
    }

    /// Adds a liveness check: waiting ends when it reports that no sender is left. The check is
    /// dropped with the last clone of the receiver.
    #[must_use]
    pub fn watching(mut self, senders: Arc<dyn RankLiveness>) -> Self {
        self.watched = std::mem::take(&mut self.watched).and(senders);
        self
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// [`RecvError`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<K::Item>, RecvError> {
        // A receiver never occupies a slot, so one that is killed here loses at most the message
        // that it has just taken, and blocks no other thread.
        let received = K::try_recv::<C>(&self.ring, &mut self.state);
        if let Ok(Some(_)) = received {
            self.announce_space();
        }
        received
    }

    /// Receives the next message, or the Empty message if there is none or the queue is closed. The
    /// result can always be dispatched.
    #[inline]
    pub fn recv_or_empty(&mut self) -> K::Item {
        match self.try_recv() {
            Ok(Some(message)) => message,
            _ => self.empty_message(),
        }
    }

    /// Receives up to `into.len()` available messages with one exchange; returns their number.
    ///
    /// # Errors
    /// [`RecvError`], if no message precedes it.
    pub fn try_recv_many(&mut self, into: &mut [K::Item]) -> Result<usize, RecvError> {
        let Self { ring, state, flow, .. } = self;
        let count = flow.receive(into.len(), || K::try_recv_many::<C>(ring, state, into))?;
        if count != 0 {
            self.announce_space();
        }
        Ok(count)
    }

    /// Receives the next message, waiting for one.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&mut self) -> Result<K::Item, RecvError> {
        loop {
            if let Some(message) = self.wait(None).transpose()? {
                return Ok(message);
            }
        }
    }

    /// Receives the next message, waiting for at most `timeout`; `None` after that.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<K::Item>, RecvError> {
        self.wait(Instant::now().checked_add(timeout)).transpose()
    }

    /// Receives the next message, waiting until `deadline` at the latest; `None` after that.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<K::Item>, RecvError> {
        self.wait(Some(deadline)).transpose()
    }

    /// Closes the queue to senders, as [`Queue::close`](crate::queue::Queue::close) does: what it
    /// holds can still be received, and then [`RecvError::Closed`] is returned.
    pub fn close(&self) -> Closing {
        K::close_for_all(&self.ring)
    }

    /// Returns whether a message waits, or an unpublished slot that blocks later messages and that
    /// further polls will void.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        K::is_ready(&self.ring)
    }

    /// Returns the Empty message. In a new queue: from source 0 for handler 0, with five bytes of
    /// 0.
    #[must_use]
    pub fn empty_message(&self) -> K::Item {
        // Relaxed: the message is the word itself.
        K::of_empty(ExpressMessage::from_bits(
            self.ring.control.settings.empty.load(Ordering::Relaxed),
        ))
    }

    /// Sets the Empty message of the queue, for all its receivers.
    pub fn set_empty_message(&mut self, message: ExpressMessage) {
        self.ring.control.settings.empty.store(message.to_bits(), Ordering::Relaxed);
    }

    /// Requests one notification of the [`Event`](crate::event::Event) of the senders. Returns true
    /// if the condition already holds; then receive first.
    pub fn request_event(&mut self, when: Notify) -> bool {
        self.ring.request_event(Some(when));
        match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => K::holds(&self.ring, self.ring.slots.len() as u64 / 2),
        }
    }

    /// Cancels the request of [`Receiver::request_event`].
    pub fn cancel_event(&mut self) {
        self.ring.request_event(None);
    }
}

impl<K: QueueKind, C: Consumers> Waiter for Receiver<K, C> {
    type Output = Result<K::Item, RecvError>;

    fn sleeper(&self) -> impl Sleeper {
        self.ring.arrival()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.try_recv().transpose()
    }

    fn progress(&self) -> u64 {
        // Relaxed: a hint that other receivers take messages.
        self.ring.control.head.position.load(Ordering::Relaxed)
    }

    fn must_poll(&mut self) -> bool {
        Receiver::is_ready(self)
    }

    fn check(&mut self) -> Option<Self::Output> {
        let exit = self.watched.exited()?;
        // Messages it sent before it left or failed come first.
        Some(self.poll().unwrap_or(Err(exit.into())))
    }

    fn describe(&self) -> Wait {
        Wait::QueueMessage { queue: self.ring.offset() }
    }
}

impl<K: QueueKind> Clone for Receiver<K, Multi> {
    fn clone(&self) -> Self {
        // Fails only when the count is corrupt or at its limit of 2^32; the clone then remains
        // uncounted.
        let _ = self.ring.enter_receiver(false);
        let mut clone = Receiver::of(self.ring.clone());
        clone.watched.clone_from(&self.watched);
        clone.remote.clone_from(&self.remote);
        clone.interval_us = self.interval_us;
        clone
    }
}

impl<K: QueueKind, C: Consumers> Drop for Receiver<K, C> {
    fn drop(&mut self) {
        self.ring.leave_receiver(C::SINGLE);
    }
}

debug_by_offset!("Receiver", K: QueueKind, C: Consumers> std::fmt::Debug for Receiver<K, C>);

impl<K: QueueKind, C: Consumers> Polled for Receiver<K, C> {
    type Item = K::Item;

    #[inline]
    fn take(&mut self) -> Option<K::Item> {
        self.try_recv().ok()?
    }

    #[inline]
    fn is_ready(&self) -> bool {
        Receiver::is_ready(self)
    }

    fn exited(&self) -> Option<PeerExit> {
        self.watched.exited()
    }

    fn remote_waits(&self) -> Option<Arc<dyn RemoteWaits>> {
        self.remote.as_ref().map(|remote| Arc::clone(&remote.waits))
    }
}
