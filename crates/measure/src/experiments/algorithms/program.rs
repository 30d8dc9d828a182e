//! Input of the simulation for a plan: the operations of all ranks, linked as the engine links
//! them.

use super::graphs::{CollectiveCall, PlanError};
use goal::compile::compile;
use goal::graph::Access;
use goal::matching::{Endpoint, pair};
use goal::schedule::{Kind, OperationRecord, SCRATCHPAD, Schedule, ScheduleView};
use models::decision::Plan;
use models::simulation::{Program, Rank, Step};

/// Private buffers up to this length are staged where others can write them before their rank has
/// started.
const STAGED_BYTES: u64 = 8 << 10;

/// Delivery of a message, decided by the rules of the engine's linker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// With the send.
    Early,
    /// Through memory between the two.
    Mailbox,
    /// With the receive, when both are ready.
    Direct,
}

impl CollectiveCall {
    /// Returns the operations of all ranks under the plan. Messages of up to `eager_limit` bytes
    /// are sent before their receives are posted.
    ///
    /// ```
    /// use measure::experiments::algorithms::{Plan, CollectiveCall};
    /// use collectives::{Algorithm, Collective};
    ///
    /// let shape = CollectiveCall { operation: Collective::Bcast, ranks: 4, bytes: 100, root: 0 };
    /// let program = shape.program(&Plan::of(Algorithm::Flat), 4096)?;
    /// assert_eq!(program.steps.len(), 6); // three sends and their receives
    /// # Ok::<(), measure::experiments::algorithms::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub fn program(&self, plan: &Plan, eager_limit: u64) -> Result<Program, PlanError> {
        let mut schedules = Vec::new();
        for rank in 0..self.ranks {
            schedules.push(compile(&self.graph(plan, rank)?)?);
        }
        Ok(link(&schedules, eager_limit))
    }
}

fn link(schedules: &[Schedule], eager_limit: u64) -> Program {
    let mut first = vec![0];
    for schedule in schedules {
        first.push(first[first.len() - 1] + schedule.view().operations().len());
    }
    let place = |end: &Endpoint| first[end.rank as usize] + end.operation as usize;
    let record =
        |end: &Endpoint| &schedules[end.rank as usize].view().operations()[end.operation as usize];
    let (sends, receives) = endpoints(schedules);
    let pairs = pair(&sends, &receives).pairs;
    let mut deliveries = vec![None; first[schedules.len()]];
    for (send, receive) in &pairs {
        let taken = record(receive);
        let untouched = is_untouched_before(&schedules[receive.rank as usize].view(), taken);
        let delivery = match taken.bytes {
            _ if taken.dependencies == 0 && taken.start_edge_count == 0 && untouched => {
                Delivery::Early
            }
            bytes if bytes <= eager_limit => Delivery::Mailbox,
            _ => Delivery::Direct,
        };
        deliveries[place(send)] = Some(delivery);
        deliveries[place(receive)] = Some(delivery);
    }
    let mut program = Program::default();
    for (rank, schedule) in schedules.iter().enumerate() {
        add_rank(&mut program, rank, first[rank], &schedule.view(), &deliveries[first[rank]..]);
    }
    for (rank, schedule) in schedules.iter().enumerate() {
        add_posts(&mut program, rank, first[rank], &schedule.view());
    }
    for (send, receive) in &pairs {
        connect(&mut program.steps, place(send), place(receive), deliveries[place(send)]);
    }
    program
}

/// A rank with its operations, not yet connected with those of others.
fn add_rank(
    program: &mut Program,
    rank: usize,
    first: usize,
    view: &ScheduleView<'_>,
    deliveries: &[Option<Delivery>],
) {
    let bytes = |wanted: &[Access]| {
        let wanted = view
            .buffers()
            .iter()
            .filter(|buffer| wanted.iter().any(|one| buffer.access == *one as u32));
        wanted.map(|buffer| buffer.length).sum()
    };
    let (input, output) =
        (bytes(&[Access::Input, Access::InOut]), bytes(&[Access::Output, Access::InOut]));
    let mut starts = Vec::new();
    let mut implied = vec![false; view.operations().len()];
    for (index, record) in view.operations().iter().enumerate() {
        let receives = record.kind() == Kind::Receive;
        let early = receives && deliveries[index] == Some(Delivery::Early);
        let mut waits = record.dependencies;
        if !implied[index] && !early {
            waits += 1;
            starts.push(first + index);
            implied[index] = true;
        }
        if implied[index] {
            view.successors(record)
                .chain(view.start_successors(record))
                .for_each(|next| implied[next as usize] = true);
        }
        let moves = match (record.kind(), deliveries[index]) {
            (Kind::Copy, _) => true,
            (Kind::Send, Some(delivery)) => delivery != Delivery::Direct,
            (Kind::Receive, Some(delivery)) => delivery != Delivery::Early,
            _ => false,
        };
        program.steps.push(Step {
            rank,
            from: rank,
            // Its message, whether it comes to the receive or takes it along.
            waits: waits + u32::from(receives),
            copied: if moves { record.bytes } else { 0 },
            combined: if record.kind() == Kind::Local { record.bytes } else { 0 },
            enables: view.successors(record).map(|next| first + next as usize).collect(),
            completes: vec![first + index],
        });
    }
    program.ranks.push(Rank { input, output, starts });
}

/// Adds the edges from the start of an operation to its successors. The start of a receive becomes
/// a separate step, because it precedes the arrival of the message.
fn add_posts(program: &mut Program, rank: usize, first: usize, view: &ScheduleView<'_>) {
    for (index, record) in
        view.operations().iter().enumerate().filter(|(_, record)| record.start_edge_count > 0)
    {
        let started: Vec<usize> =
            view.start_successors(record).map(|next| first + next as usize).collect();
        let operation = first + index;
        if record.kind() != Kind::Receive {
            program.steps[operation].enables.extend(started);
            continue;
        }
        let post = program.steps.len();
        let waits = std::mem::replace(&mut program.steps[operation].waits, 2) - 1;
        let before = program.steps[..post].iter_mut().filter(|step| step.rank == rank);
        before
            .flat_map(|step| &mut step.enables)
            .filter(|next| **next == operation)
            .for_each(|next| *next = post);
        program.ranks[rank]
            .starts
            .iter_mut()
            .filter(|start| **start == operation)
            .for_each(|start| *start = post);
        let enables = started.into_iter().chain([operation]).collect();
        program.steps.push(Step {
            rank,
            from: rank,
            waits,
            copied: 0,
            combined: 0,
            enables,
            completes: Vec::new(),
        });
    }
}

/// Adds the dependencies between the two ends of a message.
fn connect(steps: &mut [Step], send: usize, receive: usize, delivery: Option<Delivery>) {
    // The copy reads from the sender's memory only if the delivery is direct.
    let from = steps[send].rank;
    let to = steps[receive].rank;
    steps[receive].from = if delivery == Some(Delivery::Direct) { from } else { to };
    match delivery {
        Some(Delivery::Early) => {
            let after = std::mem::take(&mut steps[receive].enables);
            steps[send].enables.extend(after);
            let with_it = std::mem::take(&mut steps[receive].completes);
            steps[send].completes.extend(with_it);
        }
        Some(Delivery::Direct) => {
            let after = std::mem::replace(&mut steps[send].enables, vec![receive]);
            steps[receive].enables.extend(after);
            let with_it = std::mem::take(&mut steps[send].completes);
            steps[receive].completes.extend(with_it);
        }
        _ => steps[send].enables.push(receive),
    }
}

/// The message ends of all ranks in vertex order: sends, receives.
fn endpoints(schedules: &[Schedule]) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (rank, schedule) in (0..).zip(schedules) {
        let view = schedule.view();
        let mut order: Vec<(u32, &OperationRecord)> = (0..).zip(view.operations()).collect();
        order.sort_by_key(|(_, record)| record.vertex);
        for (operation, record) in order {
            let end = Endpoint {
                rank,
                operation,
                peer: record.peer(),
                tag: record.tag(),
                bytes: record.bytes,
            };
            match record.kind() {
                Kind::Send => sends.push(end),
                Kind::Receive => receives.push(end),
                _ => {}
            }
        }
    }
    (sends, receives)
}

/// Returns whether a receive's destination may be written before its rank has started.
fn is_untouched_before(view: &ScheduleView<'_>, record: &OperationRecord) -> bool {
    view.destination(record).iter().all(|block| {
        let output = |index: usize| {
            let buffer = view.buffers().get(index);
            buffer.is_some_and(|buffer| {
                buffer.access == Access::Output as u32 && buffer.length <= STAGED_BYTES
            })
        };
        block.memory == SCRATCHPAD || output(block.memory as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::Collective;
    use models::simulation::{Constants, Curve, KNOTS, bounds, run};

    const CONSTANTS: Constants = Constants {
        start: 1.0,
        operation: 0.5,
        crossing: 0.25,
        switch: 2.0,
        copy: Curve([0.1; KNOTS.len()]),
        fetch: Curve([0.05; KNOTS.len()]),
        combine: 1e-4,
    };

    /// Every algorithm of every operation, short and long messages: each process comes to its end,
    /// at a time that is no shorter than the bounds. A step that nothing sets going would leave its
    /// rank waiting for ever, at time zero.
    #[test]
    fn every_program_comes_to_its_end() {
        for operation in Collective::ALL {
            for (ranks, bytes) in [(2, 8), (3, 100), (4, 5000), (5, 20_000), (8, 100_000)] {
                let shape = CollectiveCall { operation: *operation, ranks, bytes, root: ranks - 1 };
                for plan in shape.plans(&[std::num::NonZeroU64::MIN.saturating_add(4095)]) {
                    let program = shape.program(&plan, 4096).expect("it was among the plans");
                    for cores in [1, 2, 8] {
                        let time = run(&program, cores, &CONSTANTS).microseconds;
                        let bounds = bounds(&program, cores, &CONSTANTS);
                        assert!(
                            time >= bounds.work - 1e-6,
                            "{shape} by {plan} on {cores}: {time} below {bounds:?}"
                        );
                        assert!(
                            time >= bounds.chain - 1e-6,
                            "{shape} by {plan} on {cores}: {time} below {bounds:?}"
                        );
                    }
                }
            }
        }
    }
}
