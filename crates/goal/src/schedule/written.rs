//! Bytes that a schedule writes.

use super::records::{Kind, SCRATCHPAD};
use super::view::ScheduleView;
use std::ops::Range;

impl ScheduleView<'_> {
    /// The bytes of user buffers that operations write, by buffer and in order; those that touch
    /// are one range.
    ///
    /// ```
    /// use goal::{compile::compile, graph::{Access, Graph}};
    ///
    /// let mut graph = Graph::new(0, 2);
    /// let output = graph.buffer(Access::Output, 50);
    /// graph.receive(output.part(30, 10), 1, 0);
    /// graph.receive(output.part(10, 8), 1, 1);
    /// graph.receive(output.part(18, 12), 1, 2);
    /// assert_eq!(compile(&graph)?.view().written(), [(0, 10..40)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn written(&self) -> Vec<(usize, Range<u64>)> {
        // The list is what a send reads, and what every other operation writes.
        let writers = self.operations().iter().filter(|record| record.kind() != Kind::Send);
        let blocks = writers.flat_map(|record| self.destination(record));
        let mut ranges: Vec<(usize, Range<u64>)> = blocks
            .filter(|block| block.memory != SCRATCHPAD && block.length > 0)
            .map(|block| (block.memory as usize, block.offset..block.offset + block.length))
            .collect();
        ranges.sort_unstable_by_key(|(buffer, bytes)| (*buffer, bytes.start));
        ranges.dedup_by(|(buffer, bytes), (earlier_buffer, earlier)| {
            let touches = buffer == earlier_buffer && bytes.start <= earlier.end;
            if touches {
                earlier.end = earlier.end.max(bytes.end);
            }
            touches
        });
        ranges
    }
}
