//! Input of the simulation for a plan: the operations of all ranks, linked as the engine links
//! them.

use super::graphs::{CollectiveCall, PlanError};
use collectives::Choice;
use goal::compile::compile;
use goal::graph::Access;
use goal::limits;
use goal::link::{Delivery, LinkOptions, Linked, LinkedRank, link_checked};
use goal::schedule::{Kind, ScheduleView};
use models::simulation::{Program, ProgramStep, Rank};

impl CollectiveCall {
    /// Returns the operations of all ranks under the plan. Messages of up to `eager_limit` bytes
    /// are sent before their receives are posted.
    ///
    /// ```
    /// use measure::experiments::algorithms::CollectiveCall;
    /// use collectives::{Algorithm, Choice, Collective};
    ///
    /// let shape = CollectiveCall { operation: Collective::Bcast, ranks: 4, bytes: 100, root: 0 };
    /// let program = shape.program(&Choice::of(Algorithm::Flat), 4096)?;
    /// assert_eq!(program.steps.len(), 6); // three sends and their receives
    /// # Ok::<(), measure::experiments::algorithms::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub fn program(&self, plan: &Choice, eager_limit: u64) -> Result<Program, PlanError> {
        let mut schedules = Vec::new();
        for rank in 0..self.ranks {
            schedules.push(compile(&self.graph(plan, rank)?)?);
        }
        let options = LinkOptions {
            eager_limit,
            staged_bytes: limits::STAGED,
            owner_runs_all: false,
            skip_calc: true,
        };
        Ok(simulated(&link_checked(schedules, options)))
    }
}

/// Translates linked schedules: a step for each operation of each rank, then a step for each
/// posting that enables other operations.
fn simulated(linked: &Linked) -> Program {
    let mut first_steps = Vec::new();
    let mut steps = 0;
    for rank in &linked.ranks {
        first_steps.push(steps);
        steps += rank.links.len();
    }
    let mut program = Program::default();
    for (rank, linked) in linked.ranks.iter().enumerate() {
        add_rank(&mut program, rank, first_steps[rank], linked);
    }
    for (rank, linked) in linked.ranks.iter().enumerate() {
        add_posts(&mut program, rank, first_steps[rank], linked);
    }
    for (rank, linked) in linked.ranks.iter().enumerate() {
        let view = linked.schedule.view();
        let sends = view.operations().iter().zip(&linked.links).enumerate();
        for (operation, (_, link)) in sends.filter(|(_, (record, _))| record.kind() == Kind::Send) {
            if let Some((peer, receive)) = link.partner {
                let send = first_steps[rank] + operation;
                let receive = first_steps[peer as usize] + receive as usize;
                connect(&mut program.steps, send, receive, link.delivery);
            }
        }
    }
    program
}

/// Adds a rank with its operations, not yet connected with those of other ranks.
fn add_rank(program: &mut Program, rank: usize, first: usize, linked: &LinkedRank) {
    let view = linked.schedule.view();
    for (index, (record, link)) in view.operations().iter().zip(&linked.links).enumerate() {
        let copies = match (record.kind(), link.delivery) {
            (Kind::Copy, _) => true,
            (Kind::Send, delivery) => matches!(delivery, Delivery::Immediate | Delivery::Eager),
            (Kind::Receive, delivery) => matches!(delivery, Delivery::Eager | Delivery::Rendezvous),
            _ => false,
        };
        program.steps.push(ProgramStep {
            rank,
            from: rank,
            waits: link.threshold,
            copied: if copies { record.bytes } else { 0 },
            combined: if record.kind() == Kind::Local { record.bytes } else { 0 },
            enables: view.successors(record).map(|next| first + next as usize).collect(),
            completes: vec![first + index],
        });
    }
    program.ranks.push(Rank {
        input: buffer_bytes(&view, &[Access::Input, Access::InOut]),
        output: buffer_bytes(&view, &[Access::Output, Access::InOut]),
        starts: linked.starts.iter().map(|start| first + *start as usize).collect(),
    });
}

/// Returns the total length of the buffers with one of these kinds of access.
fn buffer_bytes(view: &ScheduleView<'_>, kinds: &[Access]) -> u64 {
    let buffers = view.buffers().iter();
    buffers
        .filter(|buffer| kinds.iter().any(|access| buffer.access == *access as u32))
        .map(|buffer| buffer.length)
        .sum()
}

/// Adds the edges from the start of an operation to its successors. The posting of a receive
/// becomes a separate step, because it precedes the arrival of the message.
fn add_posts(program: &mut Program, rank: usize, first: usize, linked: &LinkedRank) {
    let view = linked.schedule.view();
    let operations = view.operations().iter().zip(&linked.links).enumerate();
    for (index, (record, link)) in operations.filter(|(_, (record, _))| record.start_edge_count > 0)
    {
        let started = view.start_successors(record).map(|next| first + next as usize);
        let operation = first + index;
        if link.post.is_none() {
            program.steps[operation].enables.extend(started);
            continue;
        }
        let post = program.steps.len();
        let before = program.steps.iter_mut().filter(|step| step.rank == rank);
        before
            .flat_map(|step| &mut step.enables)
            .filter(|next| **next == operation)
            .for_each(|next| *next = post);
        program.ranks[rank]
            .starts
            .iter_mut()
            .filter(|start| **start == operation)
            .for_each(|start| *start = post);
        program.steps.push(ProgramStep {
            rank,
            from: rank,
            waits: link.local,
            copied: 0,
            combined: 0,
            enables: started.chain([operation]).collect(),
            completes: Vec::new(),
        });
    }
}

/// Adds the dependencies between the two ends of a message.
fn connect(steps: &mut [ProgramStep], send: usize, receive: usize, delivery: Delivery) {
    match delivery {
        Delivery::Immediate => {
            let after = std::mem::take(&mut steps[receive].enables);
            steps[send].enables.extend(after);
            let with_it = std::mem::take(&mut steps[receive].completes);
            steps[send].completes.extend(with_it);
        }
        Delivery::Rendezvous => {
            // The only copy reads from the sender's memory.
            steps[receive].from = steps[send].rank;
            let after = std::mem::replace(&mut steps[send].enables, vec![receive]);
            steps[receive].enables.extend(after);
            let with_it = std::mem::take(&mut steps[send].completes);
            steps[receive].completes.extend(with_it);
        }
        _ => steps[send].enables.push(receive),
    }
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
