//! The arrows of the picture: dependencies within a rank, and messages.

use super::parts::Parts;
use super::slices::Slice;
use std::collections::HashMap;
use tradewind::profile::{Event, Stage};

/// From one slice to another. Times are nanoseconds on the node's clock, the second not before the
/// first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    pub(super) name: &'static str,
    /// Position of the slice it leaves, and when.
    pub(super) from: (usize, u64),
    /// Position of the slice it reaches, and when.
    pub(super) to: (usize, u64),
}

/// An operation in a run: communicator, program, run, rank, operation.
type Key = (u64, u64, u64, u32, u32);

/// The slices of one operation in one run.
#[derive(Clone, Copy, Debug, Default)]
struct Stages {
    posted: Option<usize>,
    executed: Option<usize>,
    took: Option<usize>,
}

impl Stages {
    /// Its first slice.
    fn first(&self) -> Option<usize> {
        self.posted.or(self.executed).or(self.took)
    }

    /// Its last slice.
    fn last(&self) -> Option<usize> {
        self.took.or(self.executed)
    }
}

/// All arrows between these slices.
pub(super) fn arrows(parts: &Parts, slices: &[Slice]) -> Vec<Arrow> {
    let mut stages: HashMap<Key, Stages> = HashMap::new();
    let shown = || {
        slices.iter().enumerate().filter_map(|(at, slice)| Some((at, &parts.events[slice.event?])))
    };
    for (at, event) in shown() {
        let stages = stages.entry(key(event, event.rank, event.operation)).or_default();
        match event.stage {
            Stage::Executed => stages.executed = Some(at),
            Stage::Posted => stages.posted = Some(at),
            Stage::Took(..) => stages.took = Some(at),
        }
    }
    let of = |event: &Event, rank: u32, operation: u32| {
        stages.get(&key(event, rank, operation)).copied()
    };
    let mut arrows = Vec::new();
    let mut draw = |name, from: Option<usize>, to: Option<usize>| {
        if let (Some(from), Some(to)) = (from, to) {
            arrows.extend(arrow(name, (from, &slices[from]), (to, &slices[to])));
        }
    };
    for (at, event) in shown() {
        let own = of(event, event.rank, event.operation).unwrap_or_default();
        if let Stage::Took(sender, send) = event.stage {
            draw("message", of(event, sender, send).and_then(|send| send.executed), Some(at));
            draw("posted", own.executed, Some(at));
        }
        if own.posted == Some(at) {
            draw("posted", Some(at), own.executed);
        }
        let Some(operation) = parts.operation(event) else { continue };
        let first = |after: &u32| of(event, event.rank, *after).and_then(|after| after.first());
        if own.last() == Some(at) {
            operation.successors.iter().for_each(|after| draw("requires", Some(at), first(after)));
        }
        if own.first() == Some(at) {
            operation
                .start_successors
                .iter()
                .for_each(|after| draw("irequires", Some(at), first(after)));
        }
        // The receive's end of a message has its partner, too; the arrow is added once.
        if let (Some((receiver, receive)), true) =
            (operation.partner, operation.name.starts_with("send"))
        {
            draw(
                "message",
                Some(at),
                of(event, receiver, receive).and_then(|receive| receive.executed),
            );
        }
    }
    arrows
}

/// The same run's operation of this rank.
fn key(event: &Event, rank: u32, operation: u32) -> Key {
    (event.communicator, event.program, event.run, rank, operation)
}

/// Leaves within its first slice, as late as it may, and reaches its second as it begins. What one
/// operation enables may begin before the clock has been read at its end, on another core.
fn arrow(
    name: &'static str,
    (from, before): (usize, &Slice),
    (to, after): (usize, &Slice),
) -> Option<Arrow> {
    let leaves = (before.ended - 1).min(after.begun);
    // Clocks that disagree between cores.
    let contradicts = leaves < before.begun;
    (!contradicts).then_some(Arrow { name, from: (from, leaves), to: (to, after.begun) })
}
