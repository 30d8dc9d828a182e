//! Blocking collectives, back to back: microseconds a call.

use crate::Failure;
use crate::batches::measure_batches;
use crate::collective::Collective;
use crate::memory::Memory;
use crate::operation::Operation;
use crate::report::{Line, Options};

/// Measures one row.
pub fn measure<M: Memory, O: Operation<M>>(
    collective: &mut Collective<O, M>,
    options: &mut Options,
) -> Result<(), Failure> {
    let mut line = Line::begin("blocking", collective.row, collective.world);
    measure_batches(
        collective,
        |collective, root| collective.call_blocking(root),
        options.budget_us,
        &mut line,
        "blocking_us",
    )?;
    line.end();
    Ok(())
}
