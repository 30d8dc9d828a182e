//! The receives of a schedule that name a sender and a tag, found by the message they are for.

use crate::error::ScheduleRefused;
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
    /// Collects them, and checks on the way that ordinals number the receives of each sender and tag from 0.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Result<Self, ScheduleRefused> {
        let mut found: Vec<(u32, u32, u32, u32)> = Vec::new();
        for (index, record) in view.operations().iter().enumerate() {
            if record.kind() == Kind::Receive
                && let (Some(source), Some(tag)) = (record.peer(), record.tag())
            {
                found.push((source, tag, record.ordinal, index as u32));
            }
        }
        found.sort_unstable();
        let mut named = NamedReceives { groups: HashMap::new(), operations: Vec::with_capacity(found.len()) };
        for (source, tag, ordinal, operation) in found {
            let start = named.operations.len() as u32;
            let (_, count) = named.groups.entry((source, tag)).or_insert((start, 0));
            if *count != ordinal {
                return Err(ScheduleRefused::Ordinals { operation });
            }
            *count += 1;
            named.operations.push(operation);
        }
        Ok(named)
    }

    /// The receive for this message; `None` when it is left for wildcards.
    pub(crate) fn find(&self, source: u32, tag: u32, ordinal: u32) -> Option<u32> {
        let (start, count) = *self.groups.get(&(source, tag))?;
        if ordinal < count { self.operations.get((start + ordinal) as usize).copied() } else { None }
    }
}
