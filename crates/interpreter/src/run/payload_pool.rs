//! Memory of messages that have arrived, for those that the next sends copy.

use goal::schedule::{Kind, OperationRecord, ScheduleView};

/// Largest number of payload buffers in the pool.
const SPARE_PAYLOADS: usize = 64;
/// Largest capacity of a payload buffer in the pool.
const SPARE_BYTES: u64 = 64 << 10;

/// Payload buffers that no message uses. A run may receive more than it sends, in every run again,
/// so the pool has at most the buffers that the sends of one run take.
#[derive(Debug)]
pub(super) struct PayloadPool {
    buffers: Vec<Vec<u8>>,
    /// Number of sends that take a buffer, and the longest message among them.
    sends: usize,
    longest: usize,
}

/// Returns true if a send copies its message to a payload buffer; those of `in_place` bytes and more
/// are sent from a single block.
pub(super) fn is_copied(view: &ScheduleView<'_>, send: &OperationRecord, in_place: u64) -> bool {
    send.bytes < in_place || view.destination(send).len() != 1
}

impl PayloadPool {
    /// The empty pool of the runs of a schedule.
    pub(super) fn of(view: &ScheduleView<'_>, in_place: u64) -> Self {
        let operations = view.operations().iter();
        let sends = operations.filter(|record| record.kind() == Kind::Send);
        let copied = sends.filter(|send| is_copied(view, send, in_place)).map(|send| send.bytes);
        let (sends, longest) =
            copied.fold((0, 0), |(sends, longest), bytes| (sends + 1, bytes.max(longest)));
        PayloadPool {
            buffers: Vec::new(),
            sends: SPARE_PAYLOADS.min(sends),
            longest: longest.min(SPARE_BYTES) as usize,
        }
    }

    /// Returns an empty buffer with space for `bytes` bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut payload = self.buffers.pop().unwrap_or_default();
        payload.clear();
        payload.reserve_exact(bytes);
        payload
    }

    /// Keeps a buffer, or frees it.
    pub(super) fn put(&mut self, payload: Vec<u8>) {
        if self.buffers.len() < self.sends && (1..=self.longest).contains(&payload.capacity()) {
            self.buffers.push(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use goal::compile::compile;
    use goal::graph::{Access, Graph};

    /// The pool of a rank that sends messages of these lengths, and its bytes after it has received
    /// many of others.
    fn kept(sent: &[u64], received: usize) -> usize {
        let mut graph = Graph::new(0, 2);
        for bytes in sent {
            let input = graph.buffer(Access::Input, *bytes);
            graph.send(input, 1, 0);
        }
        let schedule = compile(&graph).expect("the graph is valid");
        let mut pool = PayloadPool::of(&schedule.view(), 16 << 10);
        (0..1000).for_each(|_| pool.put(vec![7; received]));
        pool.buffers.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn what_arrives_is_kept_for_the_sends_of_one_run_and_not_beyond() {
        assert_eq!(kept(&[], 100), 0, "nothing is sent");
        assert_eq!(kept(&[100, 1000, 10], 100), 300);
        assert_eq!(kept(&[100], 101), 0, "no send needs so much");
        assert_eq!(kept(&[1 << 20, 1 << 20], 32 << 10), 0, "long messages are sent in place");
        assert_eq!(kept(&[100; 1000], 100), 100 * SPARE_PAYLOADS);
        assert_eq!(kept(&[0, 0], 0), 0);
    }

    #[test]
    fn a_send_takes_what_was_kept() {
        let mut graph = Graph::new(0, 2);
        let input = graph.buffer(Access::Input, 100);
        graph.send(input, 1, 0);
        let schedule = compile(&graph).expect("the graph is valid");
        let mut pool = PayloadPool::of(&schedule.view(), u64::MAX);
        let arrived = vec![7; 90];
        let memory = arrived.as_ptr();
        pool.put(arrived);
        let taken = pool.take(80);
        assert_eq!((taken.as_ptr(), taken.len()), (memory, 0));
        assert_eq!((pool.take(80).capacity(), pool.buffers.len()), (80, 0));
    }
}
