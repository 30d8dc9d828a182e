//! What a schedule between nodes leaves in the profile.

use super::Span;
use engine::call::Call;
use engine::trace::{BETWEEN_NODES, Trace, TraceEvent, TraceStage, TracedProgram};
use goal::schedule::{Kind, Schedule, ScheduleView};
use std::sync::Arc;

/// Where the runs of one schedule are recorded.
#[derive(Debug)]
pub(super) struct Recording {
    trace: Arc<Trace>,
    communicator: u64,
    program: u64,
    rank: u32,
    call: Call,
    schedule: Schedule,
}

impl Recording {
    /// None if this rank records nothing.
    pub(super) fn new(span: &Span, program: u64, schedule: &Schedule, call: Call) -> Option<Self> {
        let trace = Arc::clone(span.group.trace()?);
        let communicator = BETWEEN_NODES | u64::from(span.context.number);
        let (rank, members, schedule) =
            (span.rank(), span.context.members.to_vec(), schedule.clone());
        let partners = vec![None; schedule.view().operations().len()];
        let described = schedule.clone();
        trace.describe(TracedProgram {
            communicator,
            program,
            members,
            rank,
            call,
            schedule: described,
            partners,
        });
        Some(Recording { trace, communicator, program, rank, call, schedule })
    }

    /// A run has been started.
    pub(super) fn begun(&self, sequence: u64) -> u64 {
        self.trace.call_begun(self.communicator, sequence)
    }

    /// Its results are fetched; these are the times at which its operations were executed, if the
    /// engine knows.
    pub(super) fn ended(&self, sequence: u64, begun: u64, times: &[u64]) {
        let Recording { communicator, program, rank, .. } = *self;
        let record = |operation, stage, begun, ended| {
            let (run, executor) = (sequence, rank);
            self.trace.record(TraceEvent {
                communicator,
                program,
                run,
                rank,
                operation,
                executor,
                stage,
                begun,
                ended,
            });
        };
        for (operation, (posted, executed)) in
            (0..).zip(moments(&self.schedule.view(), begun, times))
        {
            if let Some(posted) = posted {
                record(operation, TraceStage::Posted, posted, executed);
            }
            if executed != 0 {
                record(operation, TraceStage::Executed, executed, executed);
            }
        }
        self.trace.call_ended(communicator, sequence, self.call);
    }

    /// Nobody will fetch them.
    pub(super) fn abandoned(&self, sequence: u64) {
        self.trace.call_abandoned(self.communicator, sequence);
    }
}

/// When each operation was executed, and before it, if it is a receive that had to wait, when it
/// could be posted.
fn moments(view: &ScheduleView<'_>, begun: u64, times: &[u64]) -> Vec<(Option<u64>, u64)> {
    let operations = view.operations();
    let is_receive = |operation: usize| operations[operation].kind() == Kind::Receive;
    let mut ready = vec![begun; operations.len()];
    let mut order: Vec<usize> = (0..operations.len().min(times.len())).collect();
    order.sort_by_key(|operation| times[*operation]);
    for operation in order {
        let (record, end) = (&operations[operation], times[operation]);
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
    fn a_receive_is_shown_from_when_it_could_be_posted() {
        let mut graph = Graph::new(0, 2);
        let (first, second) = (graph.scratchpad(8), graph.scratchpad(8));
        let first = graph.receive(first, Some(1), Some(0));
        let second = graph.receive(second, Some(1), Some(1));
        let timestamp = graph.scratchpad(8);
        let timestamp = graph.timestamp(timestamp);
        graph.requires(second, first);
        graph.requires(timestamp, second);
        let schedule = compile(&graph).expect("the graph is right");
        let view = schedule.view();
        let times: Vec<u64> =
            view.operations().iter().map(|record| 100 + 100 * u64::from(record.vertex)).collect();
        let mut moments: Vec<_> = moments(&view, 50, &times);
        moments.sort_by_key(|(_, executed)| *executed);
        assert_eq!(moments, [(Some(50), 100), (Some(100), 200), (None, 300)]);
        assert!(super::moments(&view, 50, &[]).is_empty(), "an engine that does not know");
    }
}
