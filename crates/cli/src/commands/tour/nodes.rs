//! A collective between two nodes that are made for it, with and without overlap.

use crate::commands::figures::{
    exposed, figure, microseconds, processor_time, size, table_with, trusted,
};
use crate::commands::measure::made_nodes::MadeNodes;
use anyhow::Context;
use comfy_table::Cell;
use measure::experiments::overlap::{Case, Collective, OverlapRow, Progress};
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZeroU32;
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
    let (collective, bytes) = COLLECTIVE;
    let case = Case::new(collective, bytes).to_string();
    let progress = Progress::usual(true).map(Progress::name).join(",");
    let mut words = Vec::from(["measure", "collectives", "--unseen", "--out"].map(OsString::from));
    words.push(directory.path().into());
    words.extend(["--op", &case, "--engine", &progress].map(OsString::from));
    made.start("direct", &words)?;
    let mut rows = OverlapRow::in_directory(directory.path())?.into_iter();
    let mut row = || rows.next().context("the ranks on the nodes have measured nothing");
    Ok(BetweenNodes { link: link.to_string(), blocking: row()?, nonblocking: row()? })
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
