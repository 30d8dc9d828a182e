//! Puts the ranks' profiles together into one file of the Trace Event format, which Perfetto opens.

use crate::failure::Failure;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;

/// One executed operation, as a rank has written it.
#[derive(Deserialize)]
struct Executed {
    program: u64,
    run: u64,
    rank: u32,
    operation: u32,
    executor: u32,
    begun: u64,
    ended: u64,
}

/// Reads `rank-R.json` of every rank in `directory` and writes `file`. A rank that was killed has left nothing.
pub(crate) fn merge(directory: &Path, ranks: u32, file: &Path) -> Result<(), Failure> {
    let mut events = Vec::new();
    for rank in 0..ranks {
        let Ok(text) = std::fs::read_to_string(directory.join(format!("rank-{rank}.json"))) else { continue };
        events.extend(text.lines().filter_map(|line| serde_json::from_str::<Executed>(line).ok()));
    }
    let start = events.iter().map(|event| event.begun).min().unwrap_or(0);
    // The format counts in microseconds.
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    let events: Vec<_> = events
        .iter()
        .map(|event| {
            json!({
                "name": format!("operation {}", event.operation),
                "ph": "X",
                "pid": event.rank,
                "tid": event.program,
                "ts": microseconds(event.begun - start),
                "dur": microseconds(event.ended.saturating_sub(event.begun)),
                "args": { "run": event.run, "executor": event.executor },
            })
        })
        .collect();
    crate::goal_file::write(file, json!({ "traceEvents": events }).to_string().as_bytes())
}
