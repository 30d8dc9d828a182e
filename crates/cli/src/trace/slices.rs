//! The slices of the profile, and their tracks.

use super::parts::Parts;
use serde::Serialize;
use std::collections::HashMap;
use tradewind::profile::{Call, Event, Stage};

/// A bar. Times are nanoseconds on the node's clock; it ends later than it begins.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) name: String,
    /// The rank of its process.
    pub(super) rank: u32,
    pub(super) track: Track,
    /// Distinguishes the tracks of a rank.
    pub(super) thread: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) details: Details,
    /// The event it shows, by its position; a call has none.
    pub(super) event: Option<usize>,
}

/// A line of a process. Slices that would overlap there get further lines of the
/// same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Track {
    /// The rank's calls.
    Collectives(u32),
    /// The rank's operations that it executed itself.
    Own(u32),
    /// The rank's operations that this rank executed.
    Other(u32, u32),
}

/// Details of a selected slice.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Details {
    Operation {
        communicator: u64,
        program: u64,
        call: String,
        run: u64,
        operation: u32,
        cpu: u8,
        nic: u8,
    },
    Call {
        communicator: u64,
        sequence: u64,
    },
}

/// All slices, in the order in which they begin.
pub(super) fn slices(parts: &Parts, ranks: u32) -> Vec<Slice> {
    let events =
        parts.events.iter().enumerate().map(|(index, event)| of_event(parts, index, event));
    let calls = parts.calls.iter().map(|(rank, call)| of_call(*rank, call));
    let mut slices: Vec<Slice> = events.chain(calls).collect();
    slices.sort_by_key(|slice| (slice.begun, std::cmp::Reverse(slice.ended)));
    spread(&mut slices, u64::from(ranks));
    slices
}

fn of_event(parts: &Parts, index: usize, event: &Event) -> Slice {
    let Event { communicator, program, run, rank, operation, executor, stage, begun, ended } =
        *event;
    let known = parts.operation(event);
    let name = known.map_or_else(|| format!("operation {operation}"), |known| known.name.clone());
    let name = match stage {
        Stage::Executed if known.is_some_and(is_wildcard) => format!("post {name}"),
        Stage::Executed => name,
        Stage::Posted => format!("post {name}"),
        Stage::Took(sender, _) => format!("{name}, taken from {sender}"),
    };
    let (cpu, nic) = known.map_or((0, 0), |known| (known.cpu, known.nic));
    let call = parts.program(event).map_or_else(String::new, |program| program.call.clone());
    Slice {
        name,
        rank,
        track: if executor == rank { Track::Own(rank) } else { Track::Other(rank, executor) },
        thread: 0,
        begun,
        ended: ended.max(begun + 1),
        details: Details::Operation { communicator, program, call, run, operation, cpu, nic },
        event: Some(index),
    }
}

/// A receive with a partner that is found during the run.
fn is_wildcard(operation: &tradewind::profile::Operation) -> bool {
    operation.name.starts_with("recv") && operation.message.is_none()
}

fn of_call(rank: u32, call: &Call) -> Slice {
    let Call { communicator, sequence, name, begun, ended } = call.clone();
    let details = Details::Call { communicator, sequence };
    let track = Track::Collectives(rank);
    let ended = ended.max(begun + 1);
    Slice { name, rank, track, thread: 0, begun, ended, details, event: None }
}

/// Assigns every slice a line on which it overlaps no other, unless one lies within the other.
fn spread(slices: &mut [Slice], ranks: u64) {
    let mut lines: HashMap<Track, Vec<Vec<u64>>> = HashMap::new();
    for slice in slices {
        let lines = lines.entry(slice.track).or_default();
        // A line is the ends of the slices that are under way on it, outermost first.
        let line = lines.iter_mut().position(|ends| {
            while ends.last().is_some_and(|end| *end <= slice.begun) {
                ends.pop();
            }
            ends.last().is_none_or(|end| slice.ended <= *end)
        });
        let line = line.unwrap_or_else(|| {
            lines.push(Vec::new());
            lines.len() - 1
        });
        lines[line].push(slice.ended);
        // Calls first, then what the rank did itself, then what others did for it, line by line. 0
        // would be taken for an idle thread.
        let kind = match slice.track {
            Track::Collectives(_) => 0,
            Track::Own(_) => 1,
            Track::Other(_, executor) => 2 + u64::from(executor),
        };
        slice.thread = 1 + kind + line as u64 * (ranks + 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(begun: u64, ended: u64) -> (u32, Call) {
        (0, Call { communicator: 0, sequence: begun, name: "barrier".into(), begun, ended })
    }

    #[test]
    fn slices_that_overlap_lie_on_different_lines() {
        let calls = vec![call(0, 10), call(2, 5), call(5, 12), call(10, 20), call(12, 13)];
        let parts = Parts { calls, ..Parts::default() };
        let threads: Vec<u64> = slices(&parts, 4).iter().map(|slice| slice.thread).collect();
        // The second lies within the first, the third reaches beyond it; the fourth has space
        // again.
        assert_eq!(threads, [1, 1, 7, 1, 1]);
    }
}
