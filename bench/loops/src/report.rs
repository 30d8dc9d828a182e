//! The command line, times of all ranks brought together, and one JSON line for each row.

use crate::Failure;
use crate::measure::{percentile, sort};
use crate::processor::Processor;
use crate::row::Row;
use std::fmt::Write;
use tradewind::{Communicator, Job, Op};

/// Options that all rows share.
pub struct Options {
    /// For each measurement of a row.
    pub budget_us: f64,
    /// The state the skews come from; each rank adds its number to the seed.
    pub random: u64,
    /// The largest skew, in percent of the computation.
    pub skew_percent: u64,
    /// `true` if the buffers lie in the segment.
    pub owned: bool,
    /// Processor time of this rank.
    pub processor: Processor,
}

impl Options {
    /// BUFFERS BUDGET-MS SEED SKEW-PERCENT, as far as they come before the rows.
    pub fn read<'a>(arguments: &'a [String], job: &Job) -> Result<(Self, &'a [String]), Failure> {
        let [buffers, budget, seed, skew, rows @ ..] = arguments else {
            return Err("give PROGRAM private|alloc BUDGET-MS SEED SKEW-PERCENT OPERATION:BYTES:COMPUTATION...".into());
        };
        let options = Self {
            budget_us: budget.parse::<f64>()? * 1e3,
            random: seed.parse::<u64>()?.wrapping_add(u64::from(job.world().rank())),
            skew_percent: skew.parse()?,
            owned: match buffers.as_str() {
                "private" => false,
                "alloc" => true,
                other => return Err(format!("'{other}': the buffers are private or alloc").into()),
            },
            processor: Processor::of(job),
        };
        Ok((options, rows))
    }
}

/// Each repetition's value over all ranks: the largest (times) or the sum (processor time).
pub fn combine(world: &Communicator, values: &mut Vec<f64>, how: Op) -> Result<(), Failure> {
    let mut combined = vec![0.0; values.len()];
    world.allreduce(&*values, &mut combined, how)?;
    *values = combined;
    Ok(())
}

/// The largest value any rank has, for all: counts derived from it are the same everywhere.
pub fn agree(world: &Communicator, mine: f64) -> Result<f64, Failure> {
    let mut largest = [0.0];
    world.allreduce(&[mine], &mut largest, Op::Maximum)?;
    Ok(largest[0])
}

/// The line of one row, printed by rank 0.
pub struct Line {
    text: String,
    printed: bool,
}

impl Line {
    /// A line that says what was measured.
    pub fn begin(program: &str, row: Row, world: &Communicator) -> Self {
        let op = row.name;
        let bytes = row.bytes;
        let ranks = world.size();
        let text =
            format!(r#"{{"program":"{program}","op":"{op}","bytes":{bytes},"ranks":{ranks}"#);
        Self { text, printed: world.rank() == 0 }
    }

    /// Adds "name":[median, p10, p90, count] of the values, which it sorts.
    pub fn add_summary(&mut self, name: &str, values: &mut [f64]) -> Result<(), Failure> {
        sort(values);
        let [median, p10, p90] = [50, 10, 90].map(|percent| percentile(values, percent));
        write!(self.text, r#","{name}":[{median:.5},{p10:.5},{p90:.5},{}]"#, values.len())?;
        Ok(())
    }

    /// Prints it.
    pub fn end(self) {
        if self.printed {
            println!("{}}}", self.text);
        }
    }
}
