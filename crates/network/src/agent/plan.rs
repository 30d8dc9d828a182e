//! What a schedule does with its buffers: where they lie in a run's memory, and which bytes it
//! writes.

use goal::graph::Access;
use goal::schedule::{Kind, Schedule};
use std::ops::Range;

/// The buffers of a run. Rank and agent work it out by themselves from the same schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) buffers: Vec<Buffer>,
    /// Bytes of all buffers, each beginning on a cache line.
    pub(crate) bytes: u64,
}

/// One buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Where it begins in the run's memory.
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// Whether its contents matter when the run starts.
    pub(crate) is_read: bool,
    /// What the run writes, in order and apart.
    pub(crate) written: Vec<Range<u64>>,
    /// Whether everything that is sent from it is given to the run, or written by it at some time.
    sends_what_there_is: bool,
}

/// Buffers from this length on stay where the rank has put them; what is shorter is copied, which
/// costs as much.
const LENT: u64 = 16 << 10;

impl Plan {
    pub(crate) fn of(schedule: &Schedule) -> Plan {
        let view = schedule.view();
        let mut bytes = 0u64;
        let mut buffers: Vec<Buffer> = view
            .buffers()
            .iter()
            .map(|record| {
                let at = bytes;
                // Saturating: what does not fit the numbers does not fit into any memory either.
                bytes = bytes.saturating_add(record.length).saturating_add(63) / 64 * 64;
                let is_read = record.access != Access::Output as u32;
                Buffer {
                    at,
                    length: record.length,
                    is_read,
                    written: Vec::new(),
                    sends_what_there_is: true,
                }
            })
            .collect();
        for (number, range) in view.written() {
            if let Some(buffer) = buffers.get_mut(number) {
                buffer.written.push(range);
            }
        }
        for record in view.operations().iter().filter(|record| record.kind() == Kind::Send) {
            for block in view.destination(record) {
                if let Some(buffer) = buffers.get_mut(block.memory as usize) {
                    buffer.sends_what_there_is &=
                        buffer.has(block.offset..block.offset + block.length);
                }
            }
        }
        Plan { buffers, bytes }
    }
}

impl Buffer {
    /// Whether a range is given to the run, or written by it as a whole.
    fn has(&self, range: Range<u64>) -> bool {
        let is_written = || {
            self.written
                .iter()
                .any(|written| written.start <= range.start && range.end <= written.end)
        };
        self.is_read || range.is_empty() || is_written()
    }

    /// Whether the agent uses the rank's memory itself, if nothing is computed on the buffer. Not
    /// where it would send what lay there before the run.
    pub(crate) fn stays_in_place(&self) -> bool {
        self.length >= LENT && self.sends_what_there_is
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use goal::compile::compile;
    use goal::graph::Graph;

    #[test]
    fn what_is_written_is_what_comes_back() {
        let mut graph = Graph::new(0, 2);
        let input = graph.buffer(Access::Input, 100);
        let output = graph.buffer(Access::Output, 50);
        graph.send(input, 1, 0);
        graph.receive(output.part(30, 10), 1, 0);
        graph.receive(output.part(10, 8), 1, 1);
        graph.copy(input.part(0, 12), output.part(18, 12));
        let plan = Plan::of(&compile(&graph).expect("in order"));
        assert_eq!(plan.bytes, 128 + 64);
        assert!(plan.buffers[0].written.is_empty() && plan.buffers[0].is_read);
        assert_eq!(plan.buffers[1].written.as_slice(), std::slice::from_ref(&(10..40)));
        assert_eq!((plan.buffers[1].at, plan.buffers[1].is_read), (128, false));
    }

    #[test]
    fn a_long_buffer_stays_in_place_unless_what_was_there_before_would_be_sent() {
        let plan = |received: u64, access: Access, bytes: u64| {
            let mut graph = Graph::new(0, 2);
            let buffer = graph.buffer(access, bytes);
            let (part, rest) = (buffer.part(0, received), buffer.part(received, bytes - received));
            let (first, second) = (graph.receive(part, 1, 0), graph.receive(rest, 1, 0));
            let send = graph.send(buffer.part(0, LENT - 1), 1, 0);
            graph.requires(send, first);
            graph.requires(send, second);
            Plan::of(&compile(&graph).expect("in order")).buffers[0].clone()
        };
        assert!(plan(100, Access::Output, LENT).stays_in_place(), "two receives fill what is sent");
        assert!(!plan(100, Access::Output, LENT - 1).stays_in_place(), "too short");
        let mut graph = Graph::new(0, 2);
        let buffer = graph.buffer(Access::Output, LENT);
        let receive = graph.receive(buffer.part(0, 100), 1, 0);
        let send = graph.send(buffer.part(90, 20), 1, 0);
        graph.requires(send, receive);
        let plan = Plan::of(&compile(&graph).expect("in order"));
        assert!(!plan.buffers[0].stays_in_place(), "ten bytes are nobody's");
        let mut graph = Graph::new(0, 2);
        let buffer = graph.buffer(Access::Input, LENT);
        graph.send(buffer.part(90, 20), 1, 0);
        assert!(
            Plan::of(&compile(&graph).expect("in order")).buffers[0].stays_in_place(),
            "all of it is given"
        );
    }
}
