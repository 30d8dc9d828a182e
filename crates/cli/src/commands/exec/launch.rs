//! Starting the ranks, and hearing what comes of it.

use super::rank::{self, Report};
use crate::failure::Failure;
use service::launcher::{LaunchOptions, Line, Outcome, Output, Stream, launch};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs this very program as the ranks of the file, until they have ended; gives what rank 0 has
/// reported.
pub(super) fn run(
    file: &Path,
    mut options: LaunchOptions,
) -> Result<(Outcome, Option<Report>), Failure> {
    let heard = Arc::new(Mutex::new(None));
    options.output = Output::Lines(Box::new({
        let heard = Arc::clone(&heard);
        move |line| {
            hear(line, &mut lock(&heard));
            Ok(())
        }
    }));
    let outcome = launch(&OsString::from("/proc/self/exe"), &rank::command_line(file), options)?;
    let report = lock(&heard).take();
    Ok((outcome, report))
}

fn lock(heard: &Mutex<Option<Report>>) -> MutexGuard<'_, Option<Report>> {
    // Written in one step.
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes in a line of a rank's output.
fn hear(line: Line<'_>, heard: &mut Option<Report>) {
    match serde_json::from_slice(line.text) {
        Ok(report) if line.stream == Stream::Output => *heard = Some(report),
        // As text.
        _ => eprintln!("{}", String::from_utf8_lossy(line.text)),
    }
}
