//! Ranks that are processes of a launcher.

use service::launcher::{LaunchOptions, Outcome, Output, Stream, launch};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tradewind::EngineKind;

/// Starts ranks that run a part of the tests, and returns the outcome with the ranks that have printed
/// "finished".
pub(crate) fn ranks_of(ranks: u32, part: &str) -> (Outcome, Vec<u32>) {
    let finished = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&finished);
    let mut options =
        LaunchOptions::new(ranks, EngineKind::Peers).expect("an untouched environment");
    // Tests run on several threads of one process; signals are one process's.
    options.passes_signals = false;
    // The other ranks end by themselves.
    options.grace = Duration::from_secs(60);
    options.limit = Some(Duration::from_secs(120));
    options.output = Output::Lines(Box::new(move |line| {
        if line.stream == Stream::Output && line.text == b"finished" {
            copy.lock().expect("no panic holds it").push(line.rank);
        } else {
            eprintln!("{}: {}", line.rank, String::from_utf8_lossy(line.text));
        }
        Ok(())
    }));
    let command = testing::part(part);
    let arguments: Vec<OsString> = command.get_args().map(Into::into).collect();
    let outcome = launch(command.get_program(), &arguments, options).expect("the job starts");
    let mut finished = finished.lock().expect("no panic holds it").clone();
    finished.sort_unstable();
    (outcome, finished)
}
