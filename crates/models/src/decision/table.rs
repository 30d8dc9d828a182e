//! The decision table: what is kept, its file, and what may be missing from it.

use crate::file::{self, FileError, FileKind};
use crate::machine::Fingerprint;
use crate::machine_file::Engine;
use crate::query::CallForm;
use collectives::{Algorithm, Choice, Collective, Levels};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Which plan to use when, on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct DecisionTable {
    pub(super) fingerprint: Fingerprint,
    pub(super) rows: Vec<Row>,
}

/// The plans for one shape of a collective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The operation.
    pub operation: Collective,
    /// The form of the call.
    pub form: CallForm,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of them on each node.
    pub ranks_per_node: u32,
    /// Relative error of the models that predicted times of this row, if they are known: three
    /// quarters of the times that they were fitted to are nearer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Disturbance of the measurements that the row is from, if there was one.
    // Since version 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The plans by size, ascending.
    pub ranges: Vec<Range>,
}

/// The plan for a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The first size, in bytes.
    pub from: u64,
    /// The first size beyond; `None` if there is no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The plan.
    pub plan: Choice,
    /// The engine between nodes that runs it, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The size that the times hold for, in bytes.
    pub at: u64,
    /// Times of the plan.
    pub time: Times,
    /// The next best at that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUp>,
}

/// A plan that was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    /// The plan.
    pub plan: Choice,
    /// The engine between nodes that runs it, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Its times.
    pub time: Times,
}

/// Times of a plan, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// By the models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<f64>,
    /// By the clock, the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
}

collectives::named_enum! {
    /// Source of the times of a plan.
    pub enum Evidence ("evidence") {
        /// The models alone.
        Predicted = "predicted",
        /// The clock alone.
        Measured = "measured",
        /// Models and clock.
        Both = "both",
    }
}

impl Times {
    /// A time by the models.
    pub const fn predicted(microseconds: f64) -> Self {
        Times { predicted: Some(microseconds), measured: None }
    }

    /// Source of the times; `None` if there are none.
    pub const fn evidence(&self) -> Option<Evidence> {
        match (self.predicted, self.measured) {
            (Some(_), Some(_)) => Some(Evidence::Both),
            (Some(_), None) => Some(Evidence::Predicted),
            (None, Some(_)) => Some(Evidence::Measured),
            (None, None) => None,
        }
    }

    /// The measured time, else the predicted one.
    pub fn known(&self) -> Option<f64> {
        self.measured.or(self.predicted)
    }
}

/// Something that a table does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Gap {
    /// It has no row for the operation.
    #[error("the decision table has no row for {operation}")]
    Collective {
        /// The operation.
        operation: Collective,
    },
    /// It has no row for about so many ranks.
    #[error(
        "the decision table has no row for {operation} among about {ranks} ranks, {ranks_per_node} \
         a node"
    )]
    Ranks {
        /// The operation.
        operation: Collective,
        /// Its ranks.
        ranks: u32,
        /// Its ranks a node.
        ranks_per_node: u32,
    },
    /// A row has no range for some sizes.
    #[error(
        "the decision table's row for {operation} among {ranks} ranks, {ranks_per_node} a node, \
         says nothing about {}",
        sizes(*.from, *.to)
    )]
    Bytes {
        /// The operation.
        operation: Collective,
        /// The row's ranks.
        ranks: u32,
        /// The row's ranks a node.
        ranks_per_node: u32,
        /// The first size that is missing.
        from: u64,
        /// The first size beyond that is there again, if any.
        to: Option<u64>,
    },
}

/// "64 to 127 bytes".
pub(super) fn sizes(from: u64, to: Option<u64>) -> String {
    match to {
        Some(to) => format!("{from} to {} bytes", to - 1),
        None => format!("{from} bytes and more"),
    }
}

/// A table that cannot be, in words that name the row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} (counted from 0), {operation} among {ranks} ranks, {ranks_per_node} a node: {what}"
)]
pub struct TableError {
    row: usize,
    operation: Collective,
    ranks: u32,
    ranks_per_node: u32,
    what: String,
}

impl DecisionTable {
    /// A table of these rows, in any order.
    ///
    /// # Errors
    /// [`TableError`]: a row without ranks, a range without sizes or plan or before its
    /// predecessor's end, a plan with an algorithm that its operation does not have, a time that is
    /// none, or two rows of one shape. Gaps are no error: see [`gaps`](Self::gaps).
    pub fn new(fingerprint: Fingerprint, rows: Vec<Row>) -> Result<Self, TableError> {
        for (index, row) in rows.iter().enumerate() {
            let error = |what| {
                let (operation, ranks, ranks_per_node) =
                    (row.operation, row.ranks, row.ranks_per_node);
                TableError { row: index, operation, ranks, ranks_per_node, what }
            };
            row.check().map_err(error)?;
        }
        let mut shapes: Vec<_> = rows.iter().map(Row::shape).zip(0..).collect();
        shapes.sort();
        for pair in shapes.windows(2) {
            let ((shape, first), (same, row)) = (pair[0], pair[1]);
            if shape == same {
                let (operation, _, ranks, ranks_per_node) = same;
                let what = format!("row {first} is for the same");
                return Err(TableError { row, operation, ranks, ranks_per_node, what });
            }
        }
        Ok(DecisionTable { fingerprint, rows })
    }

    /// The machine that the table was made for.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The same with the rows of a newer table of the same machine, which replace those of the same
    /// shapes.
    #[must_use]
    pub fn replaced_by(mut self, newer: &DecisionTable) -> Self {
        self.rows.retain(|row| newer.rows.iter().all(|other| other.shape() != row.shape()));
        self.rows.extend(newer.rows.iter().cloned());
        self
    }

    /// A newer table of the same machine without its disturbed rows that are undisturbed here.
    #[must_use]
    pub fn unspoilt_by(&self, mut newer: DecisionTable) -> DecisionTable {
        let is_quiet_here = |row: &Row| {
            let same = self.rows.iter().find(|other| other.shape() == row.shape());
            same.is_some_and(|row| row.disturbed.is_none())
        };
        newer.rows.retain(|row| row.disturbed.is_none() || !is_quiet_here(row));
        newer
    }

    /// Reads a table's file, whichever machine it was made for.
    ///
    /// # Errors
    /// [`FileError`], which names the file, the place, and what to do.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        file::read(path, &FileKind::DECISION_TABLE)
    }

    /// Reads the table of this machine.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`FileError::OtherMachine`].
    pub fn read_for(path: &Path, here: &Fingerprint) -> Result<Self, FileError> {
        let table = Self::read(path)?;
        file::belongs(path, &FileKind::DECISION_TABLE, &table.fingerprint, here)?;
        Ok(table)
    }

    /// The table in a file with these bytes; the path is for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        file::parse(path, &FileKind::DECISION_TABLE, bytes)
    }

    /// As [`from_bytes`](Self::from_bytes), for the machine here.
    ///
    /// # Errors
    /// As [`read_for`](Self::read_for).
    pub fn from_bytes_for(
        path: &Path,
        bytes: &[u8],
        here: &Fingerprint,
    ) -> Result<Self, FileError> {
        let table = Self::from_bytes(path, bytes)?;
        file::belongs(path, &FileKind::DECISION_TABLE, &table.fingerprint, here)?;
        Ok(table)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// Errors of the JSON writer.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        file::to_bytes(&FileKind::DECISION_TABLE, self)
    }

    /// Writes the file, whole or not at all: on an error, such as a full disk, the old file is
    /// still there.
    ///
    /// # Errors
    /// [`FileError::Unwritable`].
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        file::write(path, &FileKind::DECISION_TABLE, self)
    }

    /// Returns the gaps of the table: operations without a row, and sizes that a row leaves out.
    /// Decisions for them come from the built-in rules.
    pub fn gaps(&self) -> Vec<Gap> {
        let missing = Collective::ALL
            .iter()
            .filter(|operation| self.rows.iter().all(|row| row.operation != **operation));
        let mut gaps: Vec<Gap> =
            missing.map(|operation| Gap::Collective { operation: *operation }).collect();
        for row in &self.rows {
            gaps.extend(row.gaps());
        }
        gaps
    }
}

impl Row {
    fn shape(&self) -> (Collective, CallForm, u32, u32) {
        (self.operation, self.form, self.ranks, self.ranks_per_node)
    }

    pub(super) fn gap(&self, from: u64, to: Option<u64>) -> Gap {
        let Self { operation, ranks, ranks_per_node, .. } = *self;
        Gap::Bytes { operation, ranks, ranks_per_node, from, to }
    }

    /// The sizes that no range covers.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut covered = Some(0);
        for range in &self.ranges {
            if let Some(covered) = covered.filter(|covered| range.from > *covered) {
                gaps.push(self.gap(covered, Some(range.from)));
            }
            covered = range.to;
        }
        if let Some(covered) = covered {
            gaps.push(self.gap(covered, None));
        }
        gaps
    }

    fn check(&self) -> Result<(), String> {
        if self.ranks == 0 || self.ranks_per_node == 0 {
            return Err("ranks and ranks a node count from 1".to_owned());
        }
        let mut end = Some(0);
        for (index, range) in self.ranges.iter().enumerate() {
            let said = |what: &str| Err(format!("range {index} (counted from 0) {what}"));
            match end {
                Some(end) if range.from >= end => {}
                _ => {
                    return said(
                        "begins before the one before it ends: put ranges in ascending order",
                    );
                }
            }
            if range.to.is_some_and(|to| to <= range.from) {
                return said("ends before it begins");
            }
            let runner_up = range.runner_up.as_ref();
            for plan in [Some(&range.plan), runner_up.map(|next| &next.plan)].into_iter().flatten()
            {
                check_plan(plan, self.operation).or_else(|what| said(&what))?;
            }
            for times in [Some(range.time), runner_up.map(|next| next.time)].into_iter().flatten() {
                let known = [times.predicted, times.measured].into_iter().flatten();
                if known.into_iter().any(|time| !(time >= 0.0 && time.is_finite())) {
                    return said("has a time that is negative or infinite");
                }
            }
            if range.engine.is_some_and(|engine| !engine.is_between_nodes()) {
                return said("has an engine that runs nothing between nodes");
            }
            end = range.to;
        }
        Ok(())
    }
}

fn check_plan(plan: &Choice, operation: Collective) -> Result<(), String> {
    if !operation.algorithms().contains(&plan.algorithm) {
        let known: Vec<&str> =
            operation.algorithms().iter().copied().map(Algorithm::name).collect();
        return Err(format!("has a {} {operation}: use {}", plan.algorithm, known.join(", ")));
    }
    if plan.levels == Levels::Two && !operation.has_two_levels(plan.algorithm) {
        return Err(format!("has a two-level {} {operation}: use one level", plan.algorithm));
    }
    Ok(())
}

/// The form in files, before validation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    fingerprint: Fingerprint,
    rows: Vec<Row>,
}

impl TryFrom<Unchecked> for DecisionTable {
    type Error = TableError;

    fn try_from(Unchecked { fingerprint, rows }: Unchecked) -> Result<Self, Self::Error> {
        DecisionTable::new(fingerprint, rows)
    }
}

impl From<DecisionTable> for Unchecked {
    fn from(DecisionTable { fingerprint, rows }: DecisionTable) -> Self {
        Unchecked { fingerprint, rows }
    }
}
