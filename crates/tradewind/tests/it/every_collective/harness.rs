//! Forms in which each rank calls the collectives, and the values that are expected.

use crate::job_kinds::KINDS;
use std::cell::Cell;
use tradewind::{Algorithms, Communicator, Result};

/// Elements of a block: nothing, inside a line, inside a cell, beyond it.
pub(crate) const COUNTS: [usize; 5] = [0, 1, 5, 70, 700];

/// The forms of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Blocking,
    Nonblocking,
    Shared,
    Persistent,
}

/// Manner of a call: the form, and whether in place; another one for every call and, unless it
/// waits, every rank.
#[derive(Debug, Default)]
pub(crate) struct Turn(pub(crate) Cell<usize>);

impl Turn {
    pub(crate) fn next(&self, rank: u32) -> (Form, bool) {
        let turn = self.0.get();
        self.0.set(turn + 1);
        let mixed = turn + rank as usize;
        // A call that waits matches calls that wait; the others match each other.
        let form = match turn % 4 {
            0 => Form::Blocking,
            _ => [Form::Nonblocking, Form::Shared, Form::Persistent][mixed % 3],
        };
        (form, (turn / 4 + rank as usize / 3).is_multiple_of(2))
    }
}

/// Makes a call in a form: `[blocking, nonblocking, persistent]` are the methods, the lists behind them
/// the arguments of calls and of the creation of a persistent one. `$world` allocates. `$input` is none in place,
/// `$output` what the output holds before. Returns what it holds after.
macro_rules! call {
    ($world:ident, $comm:ident.[$blocking:ident, $nonblocking:ident, $persistent:ident]
     |$from:ident, $to:ident| ($($argument:expr),*) ($($of_creation:expr),*),
     $form:expr, $input:expr, $output:expr) => {{
        let input: Option<Vec<_>> = $input;
        let mut output: Vec<_> = $output;
        let shared = |values: &[_]| -> Result<_> {
            let mut buffer = $world.alloc(values.len())?;
            buffer.copy_from_slice(values);
            Ok(buffer)
        };
        match ($form, &input) {
            (Form::Blocking, Some(input)) => {
                let ($from, $to) = (input, &mut output[..]);
                $comm.$blocking($($argument),*)?;
            }
            (Form::Blocking, None) => {
                let ($from, $to) = (InPlace, &mut output[..]);
                $comm.$blocking($($argument),*)?;
            }
            (Form::Nonblocking, Some(input)) => {
                let ($from, $to) = (input, &mut output);
                $comm.$nonblocking($($argument),*)?.wait()?;
            }
            (Form::Nonblocking, None) => {
                let ($from, $to) = (InPlace, &mut output);
                $comm.$nonblocking($($argument),*)?.wait()?;
            }
            (Form::Shared, Some(input)) => {
                let ($from, $to) = (shared(input)?, shared(&output)?);
                let (mut from, to) = $comm.$nonblocking($($argument),*)?.wait()?;
                assert!(from[..] == input[..], "an input is left as it was");
                // The buffer is this rank's again: slower ranks must not see this.
                from.fill(bytemuck::Zeroable::zeroed());
                output.copy_from_slice(&to);
            }
            (Form::Shared, None) => {
                let ($from, $to) = (InPlace, shared(&output)?);
                let ((), mut to) = $comm.$nonblocking($($argument),*)?.wait()?;
                output.copy_from_slice(&to);
                to.fill(bytemuck::Zeroable::zeroed());
            }
            (Form::Persistent, Some(input)) => {
                $comm.$persistent($($of_creation),*)?.start(input, &mut output)?.wait()?;
            }
            (Form::Persistent, None) => {
                $comm.$persistent($($of_creation),*)?.start(InPlace, &mut output)?.wait()?;
            }
        }
        output
    }};
    ($comm:ident.$($rest:tt)*) => { call!($comm, $comm.$($rest)*) };
}

/// Contents of the output before a collective writes.
pub(crate) const UNTOUCHED: u64 = 0x5555_5555_5555_5555;

/// Contribution of `rank`.
pub(crate) fn value(rank: u32, index: usize) -> u64 {
    (u64::from(rank) + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32 % 64)
        ^ index as u64
}

pub(crate) fn values(rank: u32, count: usize) -> Vec<u64> {
    (0..count).map(|index| value(rank, index)).collect()
}

/// The contributions of these ranks combined from the left.
pub(crate) fn combined(
    ranks: impl Iterator<Item = u32>,
    count: usize,
    combine: impl Fn(u64, u64) -> u64,
) -> Vec<u64> {
    let mut contributions = ranks.map(|rank| values(rank, count));
    let first = contributions.next().unwrap_or_else(|| vec![UNTOUCHED; count]);
    contributions.fold(first, |left, right| {
        left.into_iter().zip(right).map(|(a, b)| combine(a, b)).collect()
    })
}

/// The rank's own block at its place in an output, for a call in place.
pub(crate) fn with_own_block(rank: u32, sizes: &[usize]) -> Vec<u64> {
    let block = |other: u32| {
        if other == rank {
            values(rank, sizes[rank as usize])
        } else {
            vec![UNTOUCHED; sizes[other as usize]]
        }
    };
    (0..sizes.len() as u32).flat_map(block).collect()
}

/// Blocks of different sizes, some of them empty.
pub(crate) fn uneven(ranks: u32, count: usize) -> Vec<usize> {
    (0..ranks as usize).map(|rank| if rank % 3 == 1 { 0 } else { count + rank * 2 }).collect()
}

/// Runs a body with the default algorithms on every number of ranks, and with each that is forced
/// on some.
pub(crate) fn every_job<A: Copy + std::fmt::Display + Sync>(
    algorithms: &[A],
    force: impl Fn(A) -> Algorithms + Sync,
    body: impl Fn(&Communicator, &Turn) -> Result<()> + Sync,
) {
    for kind in KINDS {
        for ranks in 1..=9 {
            let run = |world: Communicator| {
                let turn = Turn(Cell::new(ranks as usize));
                body(&world, &turn)?;
                if ![2, 3, 5, 8].contains(&ranks) {
                    return Ok(());
                }
                for algorithm in algorithms {
                    body(&world.with_algorithms(force(*algorithm)), &turn)?;
                }
                Ok(())
            };
            kind.run(ranks, run).unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
        }
    }
}

pub(crate) fn roots(world: &Communicator) -> [u32; 2] {
    [0, world.size() * 2 / 3]
}
