//! The text form of the rows of `tradewind measure collectives`.

use crate::commands::figures::{
    DIFFERENCES, exposed, figure, microseconds, percent_of, processor_time, size, spread,
    table_with, trusted,
};
use comfy_table::Cell;
use measure::experiments::overlap::OverlapRow;
use models::decision::CallForm;

/// The table and how to read it.
pub(super) fn of(ranks: &str, rows: &[(OverlapRow, CallForm)]) -> String {
    let mut table = table_with(&[
        "op",
        "size",
        "engine",
        "algorithm",
        "alone\nµs",
        "compute\nµs",
        "total\nµs",
        "exposed\nµs",
        "10 % .. 90 %\nµs",
        "overlap\n%",
        "unattended\n%",
        "CPU added\nµs",
        "repetitions",
    ]);
    for (row, form) in rows {
        table.add_row([
            Cell::new(row.op.name()),
            figure(size(row.bytes)),
            Cell::new(row.engine_in_words(*form)),
            Cell::new(&row.algorithm),
            figure(microseconds(row.alone_us)),
            figure(microseconds(row.compute_us)),
            figure(microseconds(row.total_us)),
            trusted(exposed(row)),
            figure(spread(row)),
            figure(row.overlap),
            trusted(percent_of(row.unattended)),
            figure(processor_time(row)),
            figure(row.repetitions),
        ]);
    }
    format!("{ranks}\n{table}\n{LEGEND} {DIFFERENCES}")
}

const LEGEND: &str = "\
Trust exposed (what the collective adds to the computation; median over the repetitions of the slowest rank) and unattended
(found complete after the computation, before its rank made any call). Overlap in percent flatters slow collectives.
CPU added is that of all processes together.";
