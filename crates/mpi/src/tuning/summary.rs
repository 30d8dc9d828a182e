//! The text about the result of a measurement.

use crate::kind::Kind;
use models::mpi_table::MpiRow;
use shm::process::CoreLoad;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Step of the estimated time for all of a measurement, in seconds.
const STEP: u64 = 30;

/// A measured collective, and the load of the cores beside it.
pub(super) struct Measured {
    pub(super) row: MpiRow,
    pub(super) load: CoreLoad,
}

impl Measured {
    /// Returns whether others used the cores.
    pub(super) fn is_noisy(&self) -> bool {
        self.load.others.max(self.load.stolen) > CoreLoad::LIMIT
    }

    /// The line of the row: the ratios of the times, here to the library, and the sizes taken over.
    fn line(&self) -> String {
        let Measured { row, load: CoreLoad { others, stolen } } = self;
        let mut line = format!("MPI_{:<22}{:>6}  ", row.collective, row.ranks);
        for size in &row.sizes {
            let mark = if size.is_taken() { "*" } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(line, " {}: {:.2}", size.bytes, size.ratio);
            let _ = match size.late {
                Some(late) => write!(line, "/{:.2}{mark}", late.ratio),
                None => write!(line, "{mark}"),
            };
        }
        let mut noise = |share: f64, who: &str| {
            if share > CoreLoad::LIMIT {
                let percent = 100.0 * share;
                let _ = write!(line, "  noisy: other {who} used {percent:.0} % of the cores");
            }
        };
        noise(*others, "processes");
        noise(*stolen, "virtual machines");
        line
    }
}

/// The result of a measurement.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) measured: Vec<Measured>,
    /// The collectives for which the time did not suffice, with the number of ranks.
    pub(super) unreached: Vec<(Kind, usize)>,
    /// Estimated time for all of it.
    pub(super) whole: Duration,
}

impl Summary {
    /// The rows to write: those that nothing has disturbed, and in a quick measurement all.
    pub(super) fn rows(&self, is_quick: bool) -> Vec<MpiRow> {
        let kept = self.measured.iter().filter(|measured| is_quick || !measured.is_noisy());
        kept.map(|measured| measured.row.clone()).collect()
    }

    /// The text. `written` is the table with the rows.
    pub(super) fn text(&self, written: Option<&Path>, is_quick: bool) -> String {
        let mut text = format!("{:<26}{:>6}  bytes: time here / in the MPI library\n", "", "ranks");
        for measured in &self.measured {
            text.push_str(&measured.line());
            text.push('\n');
        }
        text.push_str(match written {
            Some(_) => "* runs on tradewind from now on, as calls do between two such sizes\n",
            None => "* would run on tradewind, as calls would between two such sizes\n",
        });
        text.push_str(
            "MPI_I...: the time inside the start and the completion, beside a computation that takes as \
             long as the call alone; the second ratio is that where a rank is late\n",
        );
        self.add_unreached(&mut text);
        let noisy = self.measured.iter().filter(|measured| measured.is_noisy()).count();
        if noisy > 0 && !is_quick {
            let _ = writeln!(
                text,
                "not written: {noisy} noisy rows; an earlier measurement or the built-in rule decides about \
                 these calls: tune again when less else runs on the machine"
            );
        }
        let _ = match written {
            Some(out) => writeln!(text, "written to {}", out.display()),
            None => {
                writeln!(text, "nothing was written: name a file by --out, or leave out --quick")
            }
        };
        text
    }

    fn add_unreached(&self, text: &mut String) {
        if self.unreached.is_empty() {
            return;
        }
        let name = |(kind, ranks): &(Kind, usize)| format!("MPI_{} ({ranks})", kind.name());
        let names: Vec<String> = self.unreached.iter().map(name).collect();
        let _ = writeln!(
            text,
            "not reached, with the number of ranks: {}\nall of it takes about {} s in this job: set --time",
            names.join(", "),
            self.whole.as_secs().next_multiple_of(STEP).max(STEP)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::mpi_table::MpiSize;

    fn measured(collective: &str, others: f64) -> Measured {
        let row = MpiRow {
            library: "MPICH 5".to_owned(),
            job: 2,
            ranks: 2,
            collective: collective.to_owned(),
            sizes: vec![MpiSize::new(8, (2.0, 1.0), &[0.5])],
        };
        Measured { row, load: CoreLoad { others, stolen: 0.0 } }
    }

    #[test]
    fn noisy_rows_are_named_and_not_written() {
        let barrier = Kind::named("Barrier").expect("it is one");
        let summary = Summary {
            measured: vec![measured("Bcast", 0.01), measured("Reduce", 0.43)],
            unreached: vec![(barrier, 2)],
            whole: Duration::from_secs(100),
        };
        assert_eq!(summary.rows(true).len(), 2);
        let rows = summary.rows(false);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].collective, "Bcast");
        let text = summary.text(Some(Path::new("mpi.json")), false);
        for part in [
            "8: 0.50*  noisy: other processes used 43 % of the cores",
            "not written: 1 noisy rows",
            "MPI_Barrier (2)",
            "about 120 s",
            "written to mpi.json",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let look = summary.text(None, true);
        assert!(look.contains("nothing was written") && !look.contains("from now on"), "{look}");
    }

    #[test]
    fn a_whole_measurement_says_nothing_of_the_rest() {
        let summary = Summary { measured: vec![measured("Bcast", 0.0)], ..Summary::default() };
        let text = summary.text(Some(Path::new("mpi.json")), false);
        assert!(!text.contains("not "), "{text}");
    }
}
