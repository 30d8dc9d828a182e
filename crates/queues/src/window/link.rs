//! The end of a flow of commands on a window, and of the flow of their answers.

use super::SLOTS;
use super::served::{NoCommand, ServedWindow, WindowCommands};
use super::wire::{LINE_BYTES, MAX_LINES};
use crate::error::RecvError;
use crate::internode::{Announcement, Requested, Sink, SinkError, Source};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Access of one rank of another node to a window: the sink of its commands and the source of their
/// answers. The commands are executed as far as they can be answered.
#[derive(Clone, Debug)]
pub struct WindowLink {
    window: Arc<Mutex<ServedWindow>>,
    state: Arc<Mutex<LinkState>>,
}

#[derive(Debug, Default)]
struct LinkState {
    commands: WindowCommands,
    /// The rest of the first command has not arrived.
    is_partial: bool,
    /// The rank takes no answers any more; what it has sent is executed.
    is_orphaned: bool,
    /// The rank has sent what is no command.
    has_failed: bool,
}

impl WindowLink {
    /// Creates the access of a rank that has sent nothing.
    pub fn new(window: &Arc<Mutex<ServedWindow>>) -> Self {
        WindowLink { window: Arc::clone(window), state: Arc::default() }
    }

    /// Returns true if the rank has sent what is no command. Nothing more is executed.
    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    /// Executes nothing more.
    pub fn fail(&self) {
        self.state().fail();
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The window, for a caller with the [state](Self::state): always locked in this order.
    fn window(&self) -> MutexGuard<'_, ServedWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkState {
    /// Executes commands, with answers of at most this many bytes.
    fn execute(
        &mut self,
        window: &ServedWindow,
        limit: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), NoCommand> {
        let before = (self.commands.executed, into.len());
        window.execute(&mut self.commands, limit, into).inspect_err(|_| self.fail())?;
        // As many answers as any command needs were admitted, so only its own rest is missing.
        self.is_partial = before == (self.commands.executed, into.len());
        Ok(())
    }

    /// Returns true if a command has arrived.
    fn has_work(&self) -> bool {
        self.commands.waiting() > 0 && !self.is_partial
    }

    /// Executes the commands of a rank that takes no answers. It waits for nothing.
    fn execute_orphaned(&mut self, window: &ServedWindow) {
        while self.has_work() && !self.has_failed {
            // A failure is reported by the sink.
            let _ = self.execute(window, SLOTS as usize * LINE_BYTES, &mut Vec::new());
        }
        self.commands.forget_awaited();
    }

    fn fail(&mut self) {
        self.has_failed = true;
        self.commands = WindowCommands::default();
    }
}

impl Source for WindowLink {
    fn credit(&self) -> u64 {
        SLOTS * LINE_BYTES as u64
    }

    fn longest(&self) -> usize {
        MAX_LINES as usize * LINE_BYTES
    }

    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        let executed = self.state().execute(&self.window(), limit, into);
        executed.map_err(|NoCommand| RecvError::Corrupt)
    }

    fn is_ready(&self) -> bool {
        let state = self.state();
        state.has_work() || state.commands.is_awaiting() && self.window().is_ready(&state.commands)
    }

    fn close(&mut self) {
        let mut state = self.state();
        state.is_orphaned = true;
        state.execute_orphaned(&self.window());
    }

    fn request(&mut self) -> Requested {
        let state = self.state();
        self.window().request(&state.commands)
    }

    fn announcement(&self) -> Announcement {
        // Commands arrive as records. Ranks of this node change what the rank waits for.
        if self.state().commands.is_awaiting() {
            Announcement::ByPolling
        } else {
            Announcement::ByEvent
        }
    }
}

impl Sink for WindowLink {
    fn credit(&self) -> u64 {
        SLOTS * LINE_BYTES as u64
    }

    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        let mut state = self.state();
        if !bytes.len().is_multiple_of(LINE_BYTES) {
            state.fail();
        }
        if state.has_failed {
            return Err(SinkError::Invalid);
        }
        state.commands.add(bytes);
        state.is_partial = false;
        if state.is_orphaned {
            state.execute_orphaned(&self.window());
        }
        Ok(bytes.len())
    }

    fn released(&mut self, _: u64) -> Result<u64, SinkError> {
        let state = self.state();
        if state.has_failed { Err(SinkError::Closed) } else { Ok(state.commands.executed) }
    }

    fn request(&mut self) -> Requested {
        Requested::Before
    }

    fn fail(&mut self) {
        self.state().fail();
    }

    fn end(&mut self) {
        Source::close(self);
    }

    fn announcement(&self) -> Announcement {
        // The source executes them. It does not execute one of which the rest has not arrived.
        if self.state().has_work() { Announcement::ByPolling } else { Announcement::ByEvent }
    }
}
