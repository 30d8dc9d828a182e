//! The engine of a rank, as its threads that wait for messages use it.

use crate::direct::background::PAUSE;
use crate::direct::driver::Driver;
use queues::remote_waits::{Drive, Driven, RemoteDriver};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest sleep of a thread while the reason for the end of a connection is not known. The node
/// service reports it within moments, by another way than the connections.
const UNEXPLAINED: Duration = Duration::from_millis(1);

/// The connections of a rank, for its endpoint of messages.
#[derive(Clone, Debug)]
pub struct MessageDriver(Arc<Driver>);

impl MessageDriver {
    pub(in crate::direct) fn new(driver: Arc<Driver>) -> Self {
        MessageDriver(driver)
    }
}

impl RemoteDriver for MessageDriver {
    fn drive(&self, mut drive: Drive, poll: &mut dyn FnMut() -> bool) -> Driven {
        let Some(mut engine) = self.0.try_lock() else { return Driven::Busy };
        self.0.background.disarm();
        if self.0.messages.has_unexplained() {
            let soon = Instant::now() + UNEXPLAINED;
            drive.until = Some(drive.until.map_or(soon, |until| until.min(soon)));
        }
        engine.drive_messages(&drive, poll).unwrap_or_else(|error| {
            if !self.0.messages.has_read_error.swap(true, Ordering::Relaxed) {
                log::warn!("messages make no progress: {error}");
            }
            std::thread::sleep(PAUSE);
            Driven::Idle
        })
    }

    fn begin_sleep(&self) {
        self.0.messages.add_sleeper();
        // The thread that leaves the engine arms the background thread: this one, or the one that
        // has the engine now, which finds this sleeper.
        drop(self.0.try_lock());
    }

    fn end_sleep(&self) {
        self.0.messages.remove_sleeper();
    }

    fn wake(&self) {
        self.0.submissions.notify();
    }
}
