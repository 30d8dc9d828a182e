//! The decision table of a job.
//!
//! The process that creates the job reads the file, so that all ranks have the same table
//! ([`engine::Decisions`]).

use engine::Decisions;
use engine::node::Node;
use models::decision::DecisionTable;
use models::file::FileError;
use models::machine::Topology;
use std::path::Path;
use std::sync::Arc;

/// The decision table of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobTable {
    /// There is none.
    None,
    /// There is one.
    Table(UsedTable),
    /// There is one that cannot be used, for this reason.
    Unusable(Arc<str>),
}

/// A decision table that a job uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsedTable {
    /// Path of its file.
    pub(crate) path: Arc<Path>,
    pub(crate) table: Arc<DecisionTable>,
}

impl JobTable {
    /// The table in these bytes, of whichever machine; none if they are no table.
    pub(crate) fn of_bytes(path: &Path, bytes: &[u8]) -> Self {
        match DecisionTable::from_bytes(path, bytes) {
            Ok(table) => JobTable::Table(UsedTable { path: path.into(), table: table.into() }),
            Err(_) => JobTable::None,
        }
    }

    pub(crate) fn table(&self) -> Option<&DecisionTable> {
        match self {
            JobTable::Table(used) => Some(&used.table),
            JobTable::None | JobTable::Unusable(_) => None,
        }
    }
}

/// The job's decision table. Rank 0 warns of one that cannot be used.
pub(crate) fn of_job(node: &Node, rank: u32) -> JobTable {
    let Some(decisions) = node.decisions().ok().flatten() else {
        return JobTable::None;
    };
    let read = table(&decisions);
    let use_it = node.settle_decisions(read.is_ok());
    let warning = warning(&decisions, &read, use_it);
    if rank == 0
        && let Some(warning) = &warning
    {
        log::warn!("{warning}");
    }
    // A rank that sees another topology than the others uses the table that the first rank has
    // accepted: all ranks must select alike.
    let table = match read {
        Err(FileError::OtherMachine { .. }) if use_it => unchecked(&decisions),
        read => read,
    };
    match table {
        Ok(table) if use_it => {
            JobTable::Table(UsedTable { path: decisions.path.into(), table: table.into() })
        }
        _ => JobTable::Unusable(warning.unwrap_or_default().into()),
    }
}

fn table(decisions: &Decisions) -> Result<DecisionTable, FileError> {
    match &decisions.content {
        Ok(bytes) => {
            DecisionTable::from_bytes_for(&decisions.path, bytes, Topology::here().fingerprint())
        }
        Err(_) => unchecked(decisions),
    }
}

/// The table, without a check of its machine.
fn unchecked(Decisions { path, content, .. }: &Decisions) -> Result<DecisionTable, FileError> {
    match content {
        Ok(bytes) => DecisionTable::from_bytes(path, bytes),
        Err(why) => {
            let kind = &models::file::FileKind::DECISION_TABLE;
            let source = std::io::Error::other(why.clone());
            Err(FileError::Unreadable { path: path.clone(), kind, source })
        }
    }
}

/// The problem of a table, in one line with the way out.
fn warning(
    decisions: &Decisions,
    table: &Result<DecisionTable, FileError>,
    use_it: bool,
) -> Option<String> {
    let rules = "built-in parameters choose the algorithms";
    match table {
        Err(_) if use_it => None,
        Err(error) => Some(format!("{error} ({rules})")),
        Ok(_) if !use_it => Some(format!(
            "{}: another rank takes it for that of another machine ({rules})",
            decisions.path.display()
        )),
        Ok(table) => {
            let gaps = table.gaps();
            let first = gaps.first()?;
            let more = if gaps.len() > 1 {
                format!(", and {} gaps more", gaps.len() - 1)
            } else {
                String::new()
            };
            let path = decisions.path.display();
            Some(format!(
                "{path}: {first}{more} ({rules} there): write a whole one with `tradewind tune`"
            ))
        }
    }
}
