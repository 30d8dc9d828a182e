//! Records of the runs of a schedule between nodes, for the profile.

use engine::communicator::Communicator as NodeCommunicator;
use engine::signature::Signature;
use engine::trace::{BETWEEN_NODES, Trace, TraceEvent, TraceStage, TracedProgram};
use goal::schedule::{Kind, Schedule, ScheduleView};
use network::backend::CommunicatorContext;
use std::sync::Arc;

/// Recorder of the runs of one schedule.
#[derive(Debug)]
pub(super) struct Recording {
    trace: Arc<Trace>,
    communicator: u64,
    rank: u32,
    call: Signature,
    /// The schedule and its number, if the numbers are the same on all ranks.
    program: Option<(u64, Schedule)>,
}

impl Recording {
    /// A recorder of calls and their operations, if this rank records a profile.
    pub(super) fn new(
        group: &NodeCommunicator,
        context: &CommunicatorContext,
        program: u64,
        schedule: &Schedule,
        call: Signature,
    ) -> Option<Self> {
        let recording = Recording::of_calls(group, context, call)?;
        recording.trace.describe(TracedProgram {
            communicator: recording.communicator,
            program,
            members: context.members.to_vec(),
            rank: context.rank,
            call,
            schedule: schedule.clone(),
            partners: vec![None; schedule.view().operations().len()],
        });
        Some(Recording { program: Some((program, schedule.clone())), ..recording })
    }

    /// A recorder of calls, if this rank records a profile.
    pub(super) fn of_calls(
        group: &NodeCommunicator,
        context: &CommunicatorContext,
        call: Signature,
    ) -> Option<Self> {
        let trace = Arc::clone(group.trace()?);
        let communicator = BETWEEN_NODES | u64::from(context.number);
        Some(Recording { trace, communicator, rank: context.rank, call, program: None })
    }

    /// Records the start of a run and returns its time.
    pub(super) fn begun(&self, sequence: u64) -> u64 {
        self.trace.call_begun(self.communicator, sequence)
    }

    /// Records a run after its results were fetched; `times` are the execution times of its operations,
    /// empty if the backend does not measure them.
    pub(super) fn ended(&self, sequence: u64, begun: u64, times: &[u64]) {
        if let Some((program, schedule)) = &self.program {
            self.operations_ended((*program, schedule), (sequence, begun), times);
        }
        self.trace.call_ended(self.communicator, sequence, self.call);
    }

    fn operations_ended(
        &self,
        (program, schedule): (u64, &Schedule),
        (sequence, begun): (u64, u64),
        times: &[u64],
    ) {
        let Recording { communicator, rank, .. } = *self;
        let record = |operation, stage, begun, ended| {
            self.trace.record(TraceEvent {
                communicator,
                program,
                run: sequence,
                rank,
                operation,
                executor: rank,
                stage,
                begun,
                ended,
            });
        };
        let moments = moments(&schedule.view(), begun, times);
        for (operation, (posted, executed)) in (0..).zip(moments) {
            if let Some(posted) = posted {
                record(operation, TraceStage::Posted, posted, executed);
            }
            if executed != 0 {
                record(operation, TraceStage::Executed, executed, executed);
            }
        }
    }

    /// Records that the results of a run will not be fetched.
    pub(super) fn abandoned(&self, sequence: u64) {
        self.trace.call_abandoned(self.communicator, sequence);
    }
}

/// Execution time of each operation; for a receive that had to wait, preceded by the time at which
/// it could be posted.
fn moments(view: &ScheduleView<'_>, begun: u64, times: &[u64]) -> Vec<(Option<u64>, u64)> {
    let operations = view.operations();
    let is_receive = |operation: usize| operations[operation].kind() == Kind::Receive;
    let mut ready = vec![begun; operations.len()];
    let mut order: Vec<usize> = (0..operations.len().min(times.len())).collect();
    order.sort_by_key(|operation| times[*operation]);
    for operation in order {
        let record = &operations[operation];
        let end = times[operation];
        let start = if is_receive(operation) { ready[operation] } else { end };
        let mut after =
            |next: u32, time: u64| ready[next as usize] = ready[next as usize].max(time);
        view.successors(record).for_each(|next| after(next, end));
        view.start_successors(record).for_each(|next| after(next, start));
    }
    let waited = |operation: usize, end: u64| is_receive(operation) && ready[operation] < end;
    let moment = |(operation, end): (usize, &u64)| {
        (waited(operation, *end).then_some(ready[operation]), *end)
    };
    times.iter().enumerate().take(operations.len()).map(moment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use goal::compile::compile;
    use goal::graph::Graph;

    #[test]
    fn a_receive_is_recorded_from_the_time_it_could_be_posted() {
        let mut graph = Graph::new(0, 2);
        let memory = graph.scratchpad(8);
        let first = graph.receive(memory, Some(1), Some(0));
        let memory = graph.scratchpad(8);
        let second = graph.receive(memory, Some(1), Some(1));
        let timestamp = graph.scratchpad(8);
        let timestamp = graph.timestamp(timestamp);
        graph.requires(second, first);
        graph.requires(timestamp, second);
        let schedule = compile(&graph).expect("the graph is valid");
        let view = schedule.view();
        let times: Vec<u64> =
            view.operations().iter().map(|record| 100 + 100 * u64::from(record.vertex)).collect();
        let mut moments: Vec<_> = moments(&view, 50, &times);
        moments.sort_by_key(|(_, executed)| *executed);
        assert_eq!(moments, [(Some(50), 100), (Some(100), 200), (None, 300)]);
        assert!(super::moments(&view, 50, &[]).is_empty(), "a backend that does not measure");
    }
}
