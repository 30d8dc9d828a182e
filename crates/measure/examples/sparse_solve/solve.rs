//! The two ways to solve: row by row, each as soon as its values have come, or level by level, with
//! a barrier between them.

use super::plan::{Fetch, Plan};
use queues::window::{self, Condition};
use tradewind::messages::Windows;
use tradewind::{Communicator, Result};

/// Bytes of a published value: first the number of the solve that it is of, then the value. They
/// lie in one line, so that a rank that reads the number has the value too.
const PAIR: u64 = 16;
const VALUE: u64 = 8;

/// Number of polls for a value in a row, about a microsecond, and number of times that a rank then
/// yields its processor before it sleeps: with more ranks than processors, the owner may be the
/// next to run, and one after another they are soon through.
const LOOKS: u32 = 200;
const YIELDS: u32 = 10;

/// One rank's part of the solves of one version, over windows of its own.
pub(crate) struct Solver<'a> {
    world: &'a Communicator,
    plan: &'a Plan,
    windows: Windows,
    /// The number of the solve.
    solve: u64,
    /// The right-hand side of the plan's steps.
    right_hand_side: Vec<f64>,
    /// This rank's unknowns, in the order of its steps, and those that it has fetched.
    known: Vec<f64>,
}

impl<'a> Solver<'a> {
    pub(crate) fn new(world: &'a Communicator, plan: &'a Plan) -> Result<Self> {
        let windows = world.windows(plan.published[world.rank() as usize] * PAIR)?;
        let steps = plan.steps.len();
        let all = steps + plan.fetches.len();
        Ok(Solver {
            world,
            plan,
            windows,
            solve: 0,
            right_hand_side: vec![0.0; steps],
            known: vec![f64::NAN; all],
        })
    }

    /// Begins with another right-hand side, and forgets what is known.
    pub(crate) fn prepare(&mut self, right_hand_side: &[f64]) {
        self.solve += 1;
        self.known.fill(f64::NAN);
        let steps = self.right_hand_side.iter_mut().zip(&self.plan.steps);
        steps.for_each(|(value, step)| *value = right_hand_side[step.row]);
    }

    /// Solves every row when the values that it depends on are there: a conditional fetch completes
    /// when the owner has published the value.
    pub(crate) fn by_fetches(&mut self) -> Result<()> {
        for step in 0..self.plan.steps.len() {
            self.step(step, Self::fetch)?;
        }
        Ok(())
    }

    /// Fetches a value on condition that it is of this solve.
    #[inline]
    fn fetch(&self, Fetch { owner, place }: Fetch) -> Result<f64> {
        let condition = Condition { at: place * PAIR, at_least: self.solve };
        let mut request =
            self.windows.all[owner].fetch_when(condition, place * PAIR + VALUE, [0; 8])?;
        for look in 0..LOOKS + YIELDS {
            match request.test()? {
                window::Fetch::Complete(value) => return Ok(f64::from_le_bytes(value)),
                window::Fetch::Pending(pending) => request = pending,
            }
            if look >= LOOKS {
                std::thread::yield_now();
            }
        }
        Ok(f64::from_le_bytes(request.wait()?))
    }

    /// Solves level after level. A barrier lies between them, so that nothing has to be asked
    /// before a value is read.
    pub(crate) fn by_levels(&mut self) -> Result<()> {
        let mut begin = 0;
        for (level, &end) in self.plan.levels.iter().enumerate() {
            if level > 0 {
                self.world.barrier()?;
            }
            for step in begin..end {
                self.step(step, |solver, Fetch { owner, place }| {
                    Ok(solver.windows.all[owner].get_value(place * PAIR + VALUE)?)
                })?;
            }
            begin = end;
        }
        Ok(())
    }

    /// Fetches what a row needs, solves it, and publishes its unknown if another rank needs that.
    #[inline(always)]
    fn step(&mut self, number: usize, fetch: impl Fn(&Self, Fetch) -> Result<f64>) -> Result<()> {
        let plan = self.plan;
        let step = &plan.steps[number];
        for index in step.fetches.clone() {
            self.known[plan.steps.len() + index] = fetch(self, plan.fetches[index])?;
        }
        let value = plan.part.solve_row(number, self.right_hand_side[number], &self.known);
        self.known[number] = value;
        if let Some(place) = step.publish {
            let window = self.windows.own.local();
            window.put_value(place * PAIR + VALUE, value)?;
            window.put_value(place * PAIR, self.solve)?;
        }
        Ok(())
    }

    /// Returns the number of this rank's unknowns that differ from the serial solution.
    pub(crate) fn wrong(&self, expected: &[f64]) -> u64 {
        let pairs = self.known.iter().zip(&self.plan.steps);
        pairs.filter(|(known, step)| known.to_bits() != expected[step.row].to_bits()).count() as u64
    }
}
