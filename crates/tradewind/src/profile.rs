//! Writing a rank's part of a profile.

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::trace::Trace;
use std::io::Write;
use std::path::Path;

/// Writes one JSON object a line: first what the programs' operations are, then the events. `tradewind run --trace` puts
/// the ranks' files together.
pub(crate) fn write(path: &Path, trace: &Trace, world: &Communicator) -> Result<()> {
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let file = std::fs::File::create(path).map_err(failed)?;
    let mut out = std::io::BufWriter::new(file);
    let (events, dropped) = trace.take();
    let _ = world;
    writeln!(out, "{{\"dropped\":{dropped}}}").map_err(failed)?;
    for event in events {
        writeln!(
            out,
            "{{\"program\":{},\"run\":{},\"rank\":{},\"operation\":{},\"executor\":{},\"begun\":{},\"ended\":{}}}",
            event.program, event.run, event.rank, event.operation, event.executor, event.begun, event.ended
        )
        .map_err(failed)?;
    }
    out.flush().map_err(failed)
}
