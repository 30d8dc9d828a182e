//! Signals that the launcher passes to the ranks.

use crate::error::{ServiceError, system};
use crate::events::{Events, NodeEvent};
use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The signals, as number and as constant.
const PASSED: [(i32, Signal); 7] = [
    (SIGINT, Signal::INT),
    (SIGTERM, Signal::TERM),
    (SIGHUP, Signal::HUP),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
    (SIGTSTP, Signal::TSTP),
    (SIGCONT, Signal::CONT),
];

/// The handlers of this process. They stay installed, and perform the default action while no
/// [`Signals`] exists.
struct HandlerState {
    count: usize,
    /// True if there are no [`Signals`]; present once the handlers are installed.
    is_default: Option<Arc<AtomicBool>>,
}

static HANDLERS: Mutex<HandlerState> = Mutex::new(HandlerState { count: 0, is_default: None });

/// Catches the signals until it is dropped.
#[derive(Debug)]
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Converts signals to events from now on.
    pub(super) fn catch(events: &Events) -> Result<Self, ServiceError> {
        let failed = "catch signals";
        let ignored = ignored_signals();
        let signals = PASSED
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| ignored >> (number - 1) & 1 == 0);
        let (read, write) = UnixStream::pair().map_err(system(failed))?;
        events.add(&read, NodeEvent::Signal)?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals.clone())
            .map_err(system(failed))?;
        let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
        if handlers.is_default.is_none() {
            let is_default = Arc::new(AtomicBool::new(false));
            for signal in signals {
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_default))
                    .map_err(system(failed))?;
            }
            handlers.is_default = Some(is_default);
        }
        handlers.count += 1;
        handlers.update();
        Ok(Signals { delivery })
    }

    /// Returns the signals since the last call.
    pub(super) fn pending(&mut self) -> Vec<Signal> {
        let numbers: Vec<i32> = self.delivery.pending().collect();
        numbers.into_iter().filter_map(passed).collect()
    }
}

/// Returns the signal with this number, if launchers pass it to ranks.
pub(super) fn passed(number: i32) -> Option<Signal> {
    PASSED.iter().find(|(known, _)| *known == number).map(|(_, signal)| *signal)
}

impl HandlerState {
    /// Publishes whether there are any [`Signals`].
    fn update(&self) {
        if let Some(is_default) = &self.is_default {
            is_default.store(self.count == 0, Ordering::SeqCst);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.count -= 1;
        handlers.update();
    }
}

/// Performs the part of a signal that concerns this process, after the ranks have received it: a
/// launcher with stopped ranks stops too, so that the shell gets the terminal back.
pub(super) fn follow(signal: Signal) {
    if signal == Signal::TSTP {
        // Fails only for a signal without a default action.
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

/// Returns true if the signal ends the job.
pub(super) fn ends(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP].contains(&signal)
}

/// Returns the signals that the parent of this process has set to be ignored (`nohup`), one bit
/// each. The ranks inherit them.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
