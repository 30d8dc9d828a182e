//! Sends that a run executes when it starts.

use super::records::Kind;
use super::view::ScheduleView;

impl ScheduleView<'_> {
    /// Returns true if a run executes all its sends when it starts: none of them requires, directly
    /// or through other operations, a message, a contribution of another rank, or a time.
    ///
    /// ```
    /// use goal::{compile::compile, graph::{Access, Graph}};
    ///
    /// let mut graph = Graph::new(0, 3);
    /// let (input, output) = (graph.buffer(Access::Input, 8), graph.buffer(Access::Output, 8));
    /// graph.send(input, 1, 0);
    /// let received = graph.receive(output, 2, 0);
    /// assert!(compile(&graph)?.view().sends_at_start());
    /// let passed_on = graph.send(output, 1, 1);
    /// graph.requires(passed_on, received);
    /// assert!(!compile(&graph)?.view().sends_at_start());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sends_at_start(&self) -> bool {
        let mut waits_to_start = vec![false; self.operations().len()];
        // Every edge leads forward, so an operation comes after all that it requires.
        for (operation, record) in self.operations().iter().enumerate() {
            let starts_late = waits_to_start[operation];
            let ends_late = match record.kind() {
                Kind::Send if starts_late => return false,
                Kind::Receive | Kind::Calc | Kind::Join => true,
                Kind::Send | Kind::Local | Kind::Copy | Kind::Timestamp => starts_late,
            };
            let successors = self.successors(record).filter(|_| ends_late);
            let start_successors = self.start_successors(record).filter(|_| starts_late);
            for successor in successors.chain(start_successors) {
                waits_to_start[successor as usize] = true;
            }
        }
        true
    }
}
