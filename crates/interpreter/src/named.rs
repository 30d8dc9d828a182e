//! The receives of a schedule that name a sender and a tag, found by the message they are for.

use goal::schedule::{Kind, ScheduleView};
use std::collections::HashMap;

/// Fixed for a schedule; what has arrived and what is posted lies elsewhere.
#[derive(Debug, Default)]
pub(crate) struct NamedReceives {
    /// Where the receives for (source, tag) start in `operations`, and how many there are.
    groups: HashMap<(u32, u32), (u32, u32)>,
    /// Operations, by group and then by ordinal.
    operations: Vec<u32>,
}

impl NamedReceives {
    /// Collects them. A valid schedule numbers the receives of each sender and tag from 0 without
    /// gaps.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Self {
        let mut found: Vec<(u32, u32, u32, u32)> = Vec::new();
        for (index, record) in view.operations().iter().enumerate() {
            if record.kind() == Kind::Receive
                && let (Some(source), Some(tag)) = (record.peer(), record.tag())
            {
                found.push((source, tag, record.ordinal, index as u32));
            }
        }
        found.sort_unstable();
        let mut groups: HashMap<(u32, u32), (u32, u32)> = HashMap::new();
        for (start, (source, tag, ..)) in (0..).zip(&found) {
            groups.entry((*source, *tag)).or_insert((start, 0)).1 += 1;
        }
        NamedReceives {
            groups,
            operations: found.into_iter().map(|(.., operation)| operation).collect(),
        }
    }

    /// The receive for this message; `None` when it is left for wildcards.
    pub(crate) fn find(&self, source: u32, tag: u32, ordinal: u32) -> Option<u32> {
        let (start, count) = *self.groups.get(&(source, tag))?;
        if ordinal < count {
            self.operations.get((start + ordinal) as usize).copied()
        } else {
            None
        }
    }
}
