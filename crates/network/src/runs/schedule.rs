//! Schedules that a rank has registered, and the layout of the buffers of their runs.

use crate::backend::CommunicatorContext;
use crate::error::{Error, system};
use crate::transport::frame::{MAX_MESSAGE, MAX_OPERATIONS};
use crate::transport::payloads::PLACED;
use goal::graph::Access;
use goal::schedule::{BufferRecord, Kind, OperationRecord, Schedule};
use interpreter::{Interpreter, Limits};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Largest number of interpreters that a schedule keeps for its next runs, and the largest ones.
const IDLE_RUNS: usize = 64;
const IDLE_BYTES: u64 = 1 << 20;

/// A schedule that the host has validated and copied.
#[derive(Debug)]
pub(crate) struct RegisteredSchedule {
    pub(crate) communicator: u32,
    /// Digest of the call, in 24 bits.
    pub(crate) signature: u32,
    /// This rank of the communicator.
    pub(crate) rank: u32,
    /// Ranks of the job, by rank of the communicator.
    pub(crate) members: Vec<u32>,
    /// Their nodes.
    pub(crate) nodes: Vec<u32>,
    /// Bytes of the host's memory in use.
    pub(crate) weight: u64,
    /// Number of operations that send a message or contribute to a join.
    pub(crate) sends: u32,
    /// Number of joins.
    pub(crate) joins: u32,
    /// True if it receives messages of [`PLACED`] bytes or more.
    pub(crate) receives_long: bool,
    pub(crate) layout: BufferLayout,
    schedule: Arc<Schedule>,
    /// Interpreters without a run, each with its buffers.
    idle: Mutex<Vec<IdleRun>>,
}

/// An interpreter without a run, and its buffers; empty ones for those that are borrowed.
pub(crate) type IdleRun = (Interpreter, Vec<Vec<u8>>);

impl RegisteredSchedule {
    /// A schedule of rank `rank` of the communicator with these members on these nodes.
    pub(crate) fn new(
        schedule: Schedule,
        [communicator, signature, rank]: [u32; 3],
        members: Vec<u32>,
        nodes: Vec<u32>,
        weight: u64,
    ) -> Self {
        let sends = |record: &&OperationRecord| matches!(record.kind(), Kind::Send | Kind::Join);
        let is_join = |record: &&OperationRecord| record.kind() == Kind::Join;
        let is_long = |record: &OperationRecord| {
            record.kind() == Kind::Receive && record.bytes >= PLACED as u64
        };
        RegisteredSchedule {
            communicator,
            signature: signature & 0xff_ffff,
            rank,
            members,
            nodes,
            weight,
            sends: schedule.view().operations().iter().filter(sends).count() as u32,
            joins: schedule.view().operations().iter().filter(is_join).count() as u32,
            receives_long: schedule.view().operations().iter().any(is_long),
            layout: BufferLayout::of(&schedule),
            schedule: Arc::new(schedule),
            idle: Mutex::default(),
        }
    }

    /// Nodes of the ranks with which it exchanges messages. A contribution to a join goes to all.
    pub(crate) fn peer_nodes(&self) -> BTreeSet<u32> {
        let view = self.schedule.view();
        let operations = view.operations();
        if operations.iter().any(|record| record.kind() == Kind::Join) {
            return self.nodes.iter().copied().collect();
        }
        let is_message =
            |record: &&OperationRecord| matches!(record.kind(), Kind::Send | Kind::Receive);
        let peers = operations.iter().filter(is_message).map(|record| record.peer);
        peers.filter_map(|peer| self.nodes.get(peer as usize)).copied().collect()
    }

    /// Takes an interpreter with its buffers, or makes them.
    pub(crate) fn take_idle(&self, limits: Limits) -> Result<IdleRun, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let interpreter = Interpreter::new(Arc::clone(&self.schedule), limits)
            .map_err(|error| Error::Operation(error.to_string()))?;
        let buffers = self.layout.allocate()?;
        Ok((interpreter, buffers))
    }

    /// Keeps an interpreter without a run for the next one, unless there are many or its memory is
    /// large.
    pub(crate) fn put_idle(&self, interpreter: Interpreter, buffers: Vec<Vec<u8>>) {
        // A run that has failed before its start returns no buffers, and the next one needs all.
        if buffers.len() != self.layout.buffers.len() {
            return;
        }
        let scratchpad = self.schedule.view().header().scratchpad_bytes;
        // All of it is allocated, so the sum cannot overflow.
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>() + scratchpad;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_RUNS && (bytes <= IDLE_BYTES || idle.is_empty()) {
            idle.push((interpreter, buffers));
        }
    }
}

/// Returns true if frames can carry the messages of a schedule.
pub(crate) fn is_supported(schedule: &Schedule) -> bool {
    let view = schedule.view();
    let longest = view.operations().iter().map(|record| record.bytes).max().unwrap_or(0);
    view.header().operation_count < MAX_OPERATIONS && longest <= MAX_MESSAGE
}

/// Checks that a schedule is for this rank of the communicator, and supported.
///
/// # Errors
/// [`Error::Operation`] or [`Error::TooLarge`].
pub(crate) fn check_context(
    backend: &'static str,
    context: &CommunicatorContext,
    schedule: &Schedule,
) -> Result<(), Error> {
    let header = *schedule.view().header();
    if (header.rank, header.ranks as usize) != (context.rank, context.members.len()) {
        let why = format!(
            "the schedule is for rank {} of {}, the communicator has this process as rank {} of {}",
            header.rank,
            header.ranks,
            context.rank,
            context.members.len()
        );
        return Err(Error::Operation(why));
    }
    if !is_supported(schedule) {
        return Err(Error::TooLarge {
            backend,
            what: "the schedule's operations".into(),
            needed: u64::from(header.operation_count),
            limit: u64::from(MAX_OPERATIONS),
            way_out: "cut the collective into several, and messages to less than 1 TiB",
        });
    }
    Ok(())
}

/// The buffers of a run in the shared region. Rank and agent derive it from the same schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferLayout {
    /// The schedule's own records, for checks of lengths.
    pub(crate) records: Vec<BufferRecord>,
    pub(crate) buffers: Vec<BufferUse>,
    /// Bytes of all buffers, each of which begins on a cache line.
    pub(crate) bytes: u64,
}

/// One buffer of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferUse {
    /// Offset in the run's memory.
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// True if the run reads the contents from before its start.
    pub(crate) is_read: bool,
    /// Ranges that the run writes, in order and disjoint.
    pub(crate) written: Vec<Range<u64>>,
    /// True if everything that is sent, copied or computed from it is provided by the rank or
    /// written by the run.
    sends_only_own: bool,
}

/// Buffers of this length and above are borrowed; copying shorter ones costs as little.
const BORROWED: u64 = 16 << 10;

impl BufferLayout {
    /// The layout of the schedule's buffers.
    pub(crate) fn of(schedule: &Schedule) -> BufferLayout {
        let view = schedule.view();
        let mut bytes = 0u64;
        let mut buffers: Vec<BufferUse> = view
            .buffers()
            .iter()
            .map(|record| {
                let at = bytes;
                // Saturating: a sum that does not fit a u64 does not fit any memory either.
                bytes = bytes.saturating_add(record.length).saturating_add(63) / 64 * 64;
                let is_read = record.access != Access::Output as u32;
                BufferUse {
                    at,
                    length: record.length,
                    is_read,
                    written: Vec::new(),
                    sends_only_own: true,
                }
            })
            .collect();
        for (number, range) in view.written() {
            if let Some(buffer) = buffers.get_mut(number) {
                buffer.written.push(range);
            }
        }
        for record in view.operations() {
            let read = match record.kind() {
                Kind::Send => [view.destination(record), &[]],
                Kind::Copy => [view.left(record), &[]],
                Kind::Local => [view.left(record), view.right(record)],
                _ => continue,
            };
            for block in read.into_iter().flatten() {
                if let Some(buffer) = buffers.get_mut(block.memory as usize) {
                    // A range that neither the rank nor the run defines would send bytes of an
                    // earlier run, because the memory is reused.
                    buffer.sends_only_own &=
                        buffer.is_defined(block.offset..block.offset + block.length);
                }
            }
        }
        BufferLayout { records: view.buffers().to_vec(), buffers, bytes }
    }

    /// Makes buffers for an interpreter, empty ones for those that are borrowed.
    fn allocate(&self) -> Result<Vec<Vec<u8>>, Error> {
        let own =
            |buffer: &BufferUse| allocate(if buffer.is_borrowed() { 0 } else { buffer.length });
        self.buffers.iter().map(own).collect()
    }
}

impl BufferUse {
    /// Returns true if the rank provides the range, or the run writes all of it.
    fn is_defined(&self, range: Range<u64>) -> bool {
        let is_written = || {
            self.written
                .iter()
                .any(|written| written.start <= range.start && range.end <= written.end)
        };
        self.is_read || range.is_empty() || is_written()
    }

    /// Returns true if the agent may use the rank's memory itself. Bytes from before the run must
    /// not be sent from there.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.length >= BORROWED && self.sends_only_own
    }
}

fn allocate(length: u64) -> Result<Vec<u8>, Error> {
    let mut bytes: Vec<u8> = Vec::new();
    // A rank must not bring down the agent of all ranks by a length for which there is no memory.
    let is_reserved =
        usize::try_from(length).is_ok_and(|length| bytes.try_reserve_exact(length).is_ok());
    if !is_reserved {
        let what = format!("take {length} bytes for a buffer of a run");
        return Err(system(&what, "the node service has no memory left; use smaller buffers"));
    }
    bytes.resize(length as usize, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use goal::compile::compile;
    use goal::graph::Graph;

    fn registered(graph: &Graph) -> RegisteredSchedule {
        let schedule = compile(graph).expect("in order");
        RegisteredSchedule::new(schedule, [0; 3], vec![0, 1], vec![0, 1], 0)
    }

    #[test]
    fn an_interpreter_without_its_buffers_is_not_kept() {
        let mut graph = Graph::new(0, 2);
        let block = graph.buffer(Access::Input, 100);
        graph.send(block, 1, 0);
        let schedule = registered(&graph);
        let limits = Limits::new(16 << 10);
        let (mut interpreter, _) = schedule.take_idle(limits).expect("memory");
        let of_no_run = interpreter.reset();
        schedule.put_idle(interpreter, of_no_run);
        let (interpreter, buffers) = schedule.take_idle(limits).expect("memory");
        assert_eq!(buffers, [[0; 100]]);
        schedule.put_idle(interpreter, vec![vec![7; 100]]);
        assert_eq!(schedule.take_idle(limits).expect("memory").1, [[7; 100]], "kept");
    }

    #[test]
    fn one_interpreter_with_a_large_scratchpad_is_kept() {
        let kept = |scratchpad: u64| {
            let mut graph = Graph::new(0, 2);
            let input = graph.buffer(Access::Input, 100);
            let block = graph.scratchpad(scratchpad);
            graph.copy(input, block.part(0, 100));
            let schedule = registered(&graph);
            let take = |_| schedule.take_idle(Limits::new(16 << 10)).expect("memory");
            let taken = [0; 3].map(take);
            taken.into_iter().for_each(|(interpreter, buffers)| {
                schedule.put_idle(interpreter, buffers);
            });
            schedule.idle.lock().expect("no panic").len()
        };
        assert_eq!((kept(100), kept(IDLE_BYTES)), (3, 1));
    }

    #[test]
    fn only_written_ranges_are_results() {
        let mut graph = Graph::new(0, 2);
        let input = graph.buffer(Access::Input, 100);
        let output = graph.buffer(Access::Output, 50);
        graph.send(input, 1, 0);
        graph.receive(output.part(30, 10), 1, 0);
        graph.receive(output.part(10, 8), 1, 1);
        graph.copy(input.part(0, 12), output.part(18, 12));
        let layout = BufferLayout::of(&compile(&graph).expect("in order"));
        assert_eq!(layout.bytes, 128 + 64);
        assert!(layout.buffers[0].written.is_empty() && layout.buffers[0].is_read);
        assert_eq!(layout.buffers[1].written.as_slice(), std::slice::from_ref(&(10..40)));
        assert_eq!((layout.buffers[1].at, layout.buffers[1].is_read), (128, false));
    }

    #[test]
    fn a_long_buffer_is_borrowed_unless_it_would_send_bytes_from_before_the_run() {
        let layout = |received: u64, access: Access, bytes: u64| {
            let mut graph = Graph::new(0, 2);
            let buffer = graph.buffer(access, bytes);
            let (part, rest) = (buffer.part(0, received), buffer.part(received, bytes - received));
            let (first, second) = (graph.receive(part, 1, 0), graph.receive(rest, 1, 0));
            let send = graph.send(buffer.part(0, BORROWED - 1), 1, 0);
            graph.requires(send, first);
            graph.requires(send, second);
            BufferLayout::of(&compile(&graph).expect("in order")).buffers[0].clone()
        };
        assert!(
            layout(100, Access::Output, BORROWED).is_borrowed(),
            "two receives fill what is sent"
        );
        assert!(!layout(100, Access::Output, BORROWED - 1).is_borrowed(), "too short");
        let mut graph = Graph::new(0, 2);
        let buffer = graph.buffer(Access::Output, BORROWED);
        let receive = graph.receive(buffer.part(0, 100), 1, 0);
        let send = graph.send(buffer.part(90, 20), 1, 0);
        graph.requires(send, receive);
        let layout = BufferLayout::of(&compile(&graph).expect("in order"));
        assert!(!layout.buffers[0].is_borrowed(), "nothing writes ten of its bytes");
        let mut graph = Graph::new(0, 2);
        let buffer = graph.buffer(Access::Input, BORROWED);
        graph.send(buffer.part(90, 20), 1, 0);
        assert!(
            BufferLayout::of(&compile(&graph).expect("in order")).buffers[0].is_borrowed(),
            "the rank provides all of it"
        );
    }
}
