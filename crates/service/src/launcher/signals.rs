//! Signals that are meant for the ranks.

use crate::error::{ServiceError, system};
use crate::events::{Event, Events};
use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is passed on, by the number that both libraries know it by.
const PASSED: [(i32, Signal); 7] = [
    (SIGINT, Signal::INT),
    (SIGTERM, Signal::TERM),
    (SIGHUP, Signal::HUP),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
    (SIGTSTP, Signal::TSTP),
    (SIGCONT, Signal::CONT),
];

/// Who catches signals in this process. A handler stays once it is installed; between jobs it does
/// what the system would.
struct Catchers {
    count: usize,
    nobody: Option<Arc<AtomicBool>>,
}

static CATCHERS: Mutex<Catchers> = Mutex::new(Catchers { count: 0, nobody: None });

/// Catches the signals as long as it lives.
#[derive(Debug)]
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// From now on a signal is an event.
    pub(super) fn catch(events: &Events) -> Result<Self, ServiceError> {
        let failed = "catch signals";
        let ignored = ignored_signals();
        let signals = PASSED
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| ignored >> (number - 1) & 1 == 0);
        let (read, write) = UnixStream::pair().map_err(system(failed))?;
        events.add(&read, Event::Signal)?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals.clone())
            .map_err(system(failed))?;
        let mut catchers = CATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
        if catchers.nobody.is_none() {
            let nobody = Arc::new(AtomicBool::new(false));
            for signal in signals {
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&nobody))
                    .map_err(system(failed))?;
            }
            catchers.nobody = Some(nobody);
        }
        catchers.count += 1;
        catchers.tell();
        Ok(Signals { delivery })
    }

    /// Those that have come since the last time.
    pub(super) fn pending(&mut self) -> Vec<Signal> {
        let numbers: Vec<i32> = self.delivery.pending().collect();
        let known = |number: i32| {
            PASSED.iter().find(|(known, _)| *known == number).map(|(_, signal)| *signal)
        };
        numbers.into_iter().filter_map(known).collect()
    }
}

impl Catchers {
    fn tell(&self) {
        if let Some(nobody) = &self.nobody {
            nobody.store(self.count == 0, Ordering::SeqCst);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut catchers = CATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
        catchers.count -= 1;
        catchers.tell();
    }
}

/// Does what is left to do in this process when the ranks have the signal: a launcher whose ranks
/// are stopped stops too, so that the shell takes the terminal back.
pub(super) fn follow(signal: Signal) {
    if signal == Signal::TSTP {
        // Without a table entry for it nothing happens, and the launcher goes on.
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

/// Whether the signal asks for the job's end.
pub(super) fn ends(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP].contains(&signal)
}

/// Signals that whoever started this process wants ignored (`nohup`), a bit each. The ranks inherit
/// that.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
