//! Figures of one collective, from its rows.

use super::collective::Collective;
use crate::rows::{Measurements, Quantity, Row, RowsError, What};
use models::decision::CallForm;
use models::machine_file::Engine;
use models::statistics::Deciles;
use serde::Serialize;
use std::path::Path;

/// Measurement of one collective of one size; the [module](super) defines the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverlapRow {
    /// The collective.
    pub op: Collective,
    /// The algorithm.
    pub algorithm: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Size, as [`Collective`] counts it.
    pub bytes: u64,
    /// The engine that ran the operations.
    pub engine: Engine,
    /// Start and wait with nothing between them, in microseconds.
    pub alone_us: f64,
    /// The computation alone, in microseconds.
    pub compute_us: f64,
    /// Start, computation and wait, in microseconds.
    pub total_us: f64,
    /// Time that the collective adds to the computation, in microseconds. Below zero, it is lost in
    /// the noise.
    pub exposed_us: f64,
    /// The share of the collective that was hidden, in percent.
    pub overlap: f64,
    /// The share found complete before the rank had made any call, from 0 to 1.
    pub unattended: f64,
    /// Processor time that the collective took from the machine, in microseconds.
    pub stolen_us: f64,
    /// Repetitions of each kind.
    pub repetitions: u32,
    /// A tenth of the exposed times lies below, in microseconds.
    pub p10_us: f64,
    /// A tenth of the exposed times lies above, in microseconds.
    pub p90_us: f64,
}

impl OverlapRow {
    /// The figures of all collectives in rows of [`measure`](super::measure), with the form of their
    /// calls. A collective of which a row is missing is left out.
    pub fn all<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<(OverlapRow, CallForm)> {
        let rows: Vec<&Row> = rows.into_iter().collect();
        rows.windows(4).filter_map(OverlapRow::of).collect()
    }

    /// The figures of all collectives in the rows of a directory.
    ///
    /// # Errors
    /// A file of rows that cannot be read.
    pub fn in_directory(directory: &Path) -> Result<Vec<OverlapRow>, RowsError> {
        let measured = Measurements::read(directory)?;
        let rows = OverlapRow::all(measured.runs.iter().flat_map(|run| run.rows()));
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    /// The engine in words, with calls of this form.
    pub fn engine_in_words(&self, form: CallForm) -> String {
        match form {
            CallForm::Blocking => format!("{} in calls", self.engine),
            CallForm::Nonblocking => self.engine.to_string(),
        }
    }

    /// The figures of four rows in the order in which they are measured.
    pub(super) fn of(rows: &[&Row]) -> Option<(OverlapRow, CallForm)> {
        let [alone, computation, over, exposed] = rows else { return None };
        let is_exposed = exposed.quantity == Quantity::Exposed && over.quantity == Quantity::Over;
        if !is_exposed || computation.what != What::Computation || alone.what != exposed.what {
            return None;
        }
        let op = *Collective::ALL.iter().find(|one| one.what() == exposed.what)?;
        let alone_us = alone.median();
        let added = Deciles::of(&exposed.times);
        let row = OverlapRow {
            op,
            algorithm: exposed.algorithm?.algorithm.name().to_owned(),
            ranks: exposed.ranks,
            bytes: exposed.bytes,
            engine: exposed.engine?,
            alone_us: to_nanoseconds(alone_us),
            compute_us: to_nanoseconds(computation.median()),
            total_us: to_nanoseconds(over.median()),
            exposed_us: to_nanoseconds(added.median),
            overlap: overlap_percent(added.median, alone_us),
            unattended: (exposed.unattended? * 1e4).round() / 1e4,
            stolen_us: to_nanoseconds(exposed.processor?),
            repetitions: exposed.times.len() as u32,
            p10_us: to_nanoseconds(added.p10),
            p90_us: to_nanoseconds(added.p90),
        };
        Some((row, exposed.form?))
    }
}

/// Microseconds with three decimals: a clock has no more.
fn to_nanoseconds(microseconds: f64) -> f64 {
    (microseconds * 1e3).round() / 1e3
}

/// The share of the collective that the computation hides, in percent, with one decimal.
fn overlap_percent(exposed_us: f64, alone_us: f64) -> f64 {
    if alone_us <= 0.0 {
        return 0.0;
    }
    ((1.0 - exposed_us / alone_us).clamp(0.0, 1.0) * 1000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn overlap_is_a_percentage(exposed_us in -1e3..1e6, alone_us in 0.0..1e6) {
            prop_assert!((0.0..=100.0).contains(&overlap_percent(exposed_us, alone_us)));
        }
    }

    #[test]
    fn overlap_is_the_hidden_share() {
        assert_eq!(overlap_percent(1.0, 4.0), 75.0);
        assert_eq!(overlap_percent(5.0, 4.0), 0.0);
        assert_eq!(overlap_percent(-0.1, 4.0), 100.0);
        assert_eq!(overlap_percent(0.0, 0.0), 0.0);
    }
}
