//! A collective between two nodes that are made for it, with and without overlap.

use crate::commands::figures::{
    exposed, figure, microseconds, processor_time, size, table_with, trusted,
};
use crate::commands::measure::collectives::rank::{Way, arguments};
use crate::commands::measure::made_nodes::MadeNodes;
use crate::failure::cannot_read;
use comfy_table::Cell;
use measure::experiments::overlap::{Case, Collective, OverlapRow};
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::Path;
use virtual_nodes::LinkRate;

const NODES: u32 = 2;
const LINK: &str = "1gbit";
const COLLECTIVE: (Collective, u64) = (Collective::Allreduce, 256 << 10);

/// The collective, called after the computation and started before it.
#[derive(Debug, Serialize)]
pub(super) struct BetweenNodes {
    link: String,
    blocking: OverlapRow,
    nonblocking: OverlapRow,
}

/// Makes the nodes and measures.
pub(super) fn measure() -> anyhow::Result<BetweenNodes> {
    let link: LinkRate = LINK.parse()?;
    let made = MadeNodes::new(NODES, NonZeroU32::MIN, Some(link))?;
    let directory = tempfile::tempdir()?;
    let report = directory.path().join("row.json");
    let (collective, bytes) = COLLECTIVE;
    let case = Case::new(collective, bytes);
    let blocking = row(&made, &case, true, &report)?;
    // Over the same computation.
    let case = Case { computation_us: Some(blocking.compute_us), ..case };
    let nonblocking = row(&made, &case, false, &report)?;
    Ok(BetweenNodes { link: link.to_string(), blocking, nonblocking })
}

fn row(made: &MadeNodes, case: &Case, in_calls: bool, report: &Path) -> anyhow::Result<OverlapRow> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut words = Vec::from(["internal", "rank", "collectives"].map(OsString::from));
    words.extend(arguments(case, Way::BetweenNodes { in_calls, report }, cores));
    made.start("direct", &words)?;
    let bytes = std::fs::read(report).map_err(cannot_read(report))?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The table, under a sentence about its rows.
pub(super) fn describe(measured: &BetweenNodes) -> String {
    let BetweenNodes { link, blocking, nonblocking } = measured;
    let mut table = table_with(&["", "alone\nµs", "exposed\nµs", "CPU added\nµs"]);
    for (how, row) in
        [("called after the computation", blocking), ("started before it", nonblocking)]
    {
        table.add_row([
            Cell::new(how),
            figure(microseconds(row.alone_us)),
            trusted(exposed(row)),
            figure(processor_time(row)),
        ]);
    }
    format!(
        "Between {NODES} nodes of this machine with links of {link}: {} of {}, with a computation of {} µs.\n{table}",
        blocking.op,
        size(blocking.bytes),
        microseconds(blocking.compute_us),
    )
}
