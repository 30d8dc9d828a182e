//! `tradewind tune --built-in`: the parameters that are built in, measured on this machine.

use crate::commands::measure::suite;
use crate::failure::cannot_write;
use measure::harness::Setting;
use measure::results::Directory;
use models::builtin::{self, NODES_FILE, ONE_NODE_FILE, ROWS_FILE};
use models::decision::rules;
use models::machine_file::Machine;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;

/// Nodes that are made, and ranks on each.
const NODES: (u32, NonZeroU32) = (2, NonZeroU32::new(2).expect("not zero"));

/// Measures one node and two made nodes, and writes the files to `out`. `measurements` keeps what
/// was measured. `tune_nodes` tunes so many made nodes with so many ranks on each; it writes their
/// table to the first path and what was measured to the second.
pub(super) fn execute(
    quick: bool,
    out: &Path,
    measurements: &Path,
    tune_nodes: impl FnOnce((u32, NonZeroU32), &Path, &Path) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(out).map_err(cannot_write(out))?;
    let node = measurements.join("one-node");
    let setting = Setting { quick, ..Setting::default() };
    let place = suite::ResultsLocation { out: node.clone(), again: false, temporary: false };
    let status = suite::quietly("progress", &setting, &place)?;
    if status != ExitCode::SUCCESS {
        return Ok(status);
    }
    let machine = Machine::read(&Directory::create(&node)?.machine())?;
    let cores = machine.cores();
    let one_node = builtin::without_machine(&machine, &format!("one node of {cores} cores"));
    one_node.write(&out.join(ONE_NODE_FILE))?;
    let rows = rules::rows_of(&one_node).map_err(suite::no_table)?;
    rows.write(&out.join(ROWS_FILE))?;

    let nodes = measurements.join("nodes");
    // The table of these nodes is of no use to others.
    let table = measurements.join("decisions.json");
    tune_nodes(NODES, &table, &nodes)?;
    let machine = Machine::read(&Directory::create(&nodes)?.machine())?;
    let words = "nodes on one virtual Ethernet";
    builtin::without_machine(&machine, words).write(&out.join(NODES_FILE))?;
    eprintln!("tradewind: built-in parameters written to {}", out.display());
    Ok(ExitCode::SUCCESS)
}
