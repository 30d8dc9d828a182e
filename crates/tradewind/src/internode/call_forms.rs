//! Detection of ranks that call a collective in different forms: blocking calls run on another
//! backend than nonblocking ones, so each form waits for the other in vain.

use crate::error::Result;
use goal::compile::compile;
use goal::graph::{Blocks, Graph};
use network::backend::{Backend, CommunicatorContext};
use network::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for a run that ends at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the mismatch if `backend` has messages for a run that this rank executes on another
/// backend. Reports it to the ranks with runs on `backend`. `signature` is different from that of
/// every call.
pub(super) fn mismatch(
    backend: &Arc<dyn Backend>,
    context: &CommunicatorContext,
    sequence: u64,
    signature: u32,
) -> Result<Option<Error>> {
    if !backend.has_unexpected(context, sequence) {
        return Ok(None);
    }
    // A run with that number and another signature: it meets the messages, fails, and reports the
    // failure to all ranks of the communicator.
    let mut graph = Graph::new(context.rank, context.members.len() as u32);
    for other in (0..context.members.len() as u32).filter(|other| *other != context.rank) {
        graph.receive(Blocks::none(), other, 0);
    }
    let schedule = compile(&graph)?;
    let failed = || -> std::result::Result<(), Error> {
        let id = backend.register(context, &schedule, signature)?;
        let run = backend.start(id, sequence, &[]);
        backend.release(id);
        let run = run?;
        if backend.wait(run, Some(Instant::now() + TIMEOUT))? {
            return backend.fetch(run, &mut []);
        }
        backend.discard(run);
        Ok(())
    };
    Ok(failed().err())
}
