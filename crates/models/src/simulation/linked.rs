//! Input of the simulation for a plan: the operations of all ranks, linked as the engine links
//! them.

use super::program::{Program, ProgramStep, Rank};
use collectives::{Choice, Collective, CollectiveError, GraphSpec, Reduction, build};
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::{CompileError, compile};
use goal::graph::Access;
use goal::limits;
use goal::link::{Delivery, LinkOptions, Linked, LinkedRank, link_checked};
use goal::schedule::{Kind, ScheduleView};
use std::num::NonZeroU32;

/// Reason why a plan has no program for a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The algorithm does not support this call.
    #[error(transparent)]
    Shape(#[from] CollectiveError),
    /// Its graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// A call among the ranks of one node, from rank 0; reductions add the longest integers that the bytes
/// divide into, which every algorithm can.
pub fn call(collective: Collective, ranks: u32, bytes: u64) -> GraphSpec {
    let data_type = if bytes.is_multiple_of(8) { DataType::I64 } else { DataType::U8 };
    let reduction = Reduction::new(Arithmetic::Add, data_type);
    let ranks_per_node = NonZeroU32::MIN;
    GraphSpec { collective, rank: 0, ranks, ranks_per_node, root: 0, bytes, reduction }
}

/// Returns the operations of all ranks of a call under the plan, linked as the engine links them.
///
/// ```
/// use collectives::{Algorithm, Choice, Collective};
/// use models::simulation::linked;
///
/// let call = linked::call(Collective::Bcast, 4, 100);
/// let program = linked::program(&call, &Choice::of(Algorithm::Flat))?;
/// assert_eq!(program.steps.len(), 6); // three sends and their receives
/// # Ok::<(), models::simulation::linked::PlanError>(())
/// ```
///
/// # Errors
/// [`PlanError`]: a plan that is none for this call.
pub fn program(call: &GraphSpec, plan: &Choice) -> Result<Program, PlanError> {
    let schedules = (0..call.ranks)
        .map(|rank| Ok(compile(&build(&GraphSpec { rank, ..*call }, plan)?)?))
        .collect::<Result<Vec<_>, PlanError>>()?;
    let options = LinkOptions {
        eager_limit: limits::EAGER_ON_NODE,
        staged_bytes: limits::STAGED,
        owner_runs_all: false,
        skip_calc: true,
    };
    Ok(simulated(&link_checked(schedules, options)))
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
