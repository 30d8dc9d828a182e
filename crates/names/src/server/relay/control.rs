//! Commands for the thread of a link or of a listener.

use crate::server::relay_request::Opener;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is complete.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command.
#[derive(Debug)]
pub(super) enum Command {
    /// Opens a stream.
    Open(Opener),
    /// Ends the thread.
    Stop,
}

#[derive(Debug, Default)]
struct Commands {
    queue: VecDeque<Command>,
    is_stopped: bool,
    is_closed: bool,
}

/// The way to a thread.
#[derive(Debug)]
pub(super) struct Control {
    commands: Mutex<Commands>,
    event: OwnedFd,
}

impl Control {
    pub(super) fn new() -> std::io::Result<Control> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Control { commands: Mutex::default(), event })
    }

    /// Sends a command, and returns it if the thread opens no streams any more.
    pub(super) fn try_send(&self, command: Command) -> Result<(), Command> {
        let mut commands = lock(&self.commands);
        match command {
            Command::Stop => commands.is_stopped = true,
            command if commands.is_closed => return Err(command),
            command => commands.queue.push_back(command),
        }
        // A full counter wakes the thread as well.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Sends a command to a thread that cannot refuse it: a new one, or any one that is to end.
    pub(super) fn send(&self, command: Command) {
        let _ = self.try_send(command);
    }

    /// Takes the next client that opens a stream, and consumes the wake-up.
    pub(super) fn next_opener(&self) -> Option<Opener> {
        let mut commands = lock(&self.commands);
        // The read resets the counter for all commands so far; the callers take commands until none
        // is left. A command that is sent later waits for the lock, and then writes the counter
        // again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        match commands.queue.pop_front()? {
            Command::Open(opener) => Some(opener),
            Command::Stop => None,
        }
    }

    /// Ends the thread's part if no command is left: later ones are returned to their senders.
    pub(super) fn close_if_empty(&self) -> bool {
        // One step under the lock. With a test of the queue before it, a client could be queued
        // between the two, and the thread that has to answer it would end.
        let mut commands = lock(&self.commands);
        commands.is_closed |= commands.queue.is_empty();
        commands.is_closed
    }

    /// Takes no openers any more: later ones are returned to their senders. Returns those that
    /// wait.
    pub(super) fn close(&self) -> Vec<Opener> {
        let mut commands = lock(&self.commands);
        commands.is_closed = true;
        let opener = |command| match command {
            Command::Open(opener) => Some(opener),
            Command::Stop => None,
        };
        commands.queue.drain(..).filter_map(opener).collect()
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.commands).is_stopped
    }

    /// Returns a descriptor that is readable after a command.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
