//! Receives that take any source or any tag, and the messages left for them: matched in arrival
//! order.

use crate::unexpected::Message;
use goal::schedule::{Kind, ScheduleView};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// One thing for each class of receive with a wildcard: any message, any tag of one source, one tag
/// of any source.
#[derive(Debug, Default)]
struct ByClass<T> {
    any: T,
    source: HashMap<u32, T>,
    tag: HashMap<u32, T>,
}

impl<T: Default> ByClass<T> {
    /// The class of receives that name this source and tag, not both of them.
    fn class(&mut self, source: Option<u32>, tag: Option<u32>) -> &mut T {
        match (source, tag) {
            (Some(source), _) => self.source.entry(source).or_default(),
            (None, Some(tag)) => self.tag.entry(tag).or_default(),
            (None, None) => &mut self.any,
        }
    }

    /// The classes whose receives admit a message from this source with this tag.
    fn admitting(&mut self, source: u32, tag: u32) -> [Option<&mut T>; 3] {
        [Some(&mut self.any), self.source.get_mut(&source), self.tag.get_mut(&tag)]
    }

    fn all(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.any).chain(self.source.values_mut()).chain(self.tag.values_mut())
    }
}

/// The state of wildcard matching in one run.
#[derive(Debug, Default)]
pub(crate) struct Wildcards {
    /// How many receives of each class the schedule has. Fixed.
    receives: ByClass<u32>,
    /// How many there are altogether. Fixed.
    total: usize,
    /// Every message that was left for wildcards in this run, to know one that arrives twice.
    seen: HashSet<(u32, u32, u32)>,
    /// Posted receives: vertex, by which they are ordered, and operation.
    posted: ByClass<BinaryHeap<Reverse<(u32, u32)>>>,
    /// Messages without a receive by arrival; `None` once taken.
    messages: Vec<Option<Message>>,
    /// Indices into `messages`, earliest first. A message stands in one queue of each class; those
    /// taken through another queue are skipped when they come to the front.
    queues: ByClass<VecDeque<u32>>,
}

/// Why a message is refused.
pub(crate) enum Refusal {
    NoReceive,
    Duplicate,
}

impl Wildcards {
    /// The wildcard receives of a schedule, nothing posted and nothing arrived.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Self {
        let mut wildcards = Wildcards::default();
        for record in view.operations().iter().filter(|record| record.kind() == Kind::Receive) {
            if record.peer().is_none() || record.tag().is_none() {
                *wildcards.receives.class(record.peer(), record.tag()) += 1;
                wildcards.total += 1;
            }
        }
        wildcards
    }

    /// Notes the arrival of a message, if the schedule can have a receive for it.
    pub(crate) fn arrive(&mut self, source: u32, tag: u32, ordinal: u32) -> Result<(), Refusal> {
        if self.seen.contains(&(source, tag, ordinal)) {
            return Err(Refusal::Duplicate);
        }
        let admitted =
            self.receives.admitting(source, tag).into_iter().flatten().any(|count| *count > 0);
        if !admitted || self.seen.len() == self.total {
            return Err(Refusal::NoReceive);
        }
        self.seen.insert((source, tag, ordinal));
        Ok(())
    }

    /// Takes the first posted receive, in vertex order, that admits the message.
    pub(crate) fn take_posted(&mut self, source: u32, tag: u32) -> Option<u32> {
        let heaps = self.posted.admitting(source, tag).into_iter().flatten();
        let first =
            heaps.filter(|heap| !heap.is_empty()).max_by_key(|heap| heap.peek().copied())?;
        first.pop().map(|Reverse((_, operation))| operation)
    }

    /// Keeps a message for which no receive is posted.
    pub(crate) fn keep(&mut self, message: Message) {
        let (index, envelope) = (self.messages.len() as u32, message.envelope);
        self.messages.push(Some(message));
        self.queues.any.push_back(index);
        self.queues.source.entry(envelope.source).or_default().push_back(index);
        self.queues.tag.entry(envelope.tag).or_default().push_back(index);
    }

    /// Takes the earliest message that a receive of this source and tag admits.
    pub(crate) fn take_message(
        &mut self,
        source: Option<u32>,
        tag: Option<u32>,
    ) -> Option<Message> {
        let queue = self.queues.class(source, tag);
        while let Some(index) = queue.pop_front() {
            let message = self.messages.get_mut(index as usize).and_then(Option::take);
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// Posts a receive for which no message is there.
    pub(crate) fn post(
        &mut self,
        source: Option<u32>,
        tag: Option<u32>,
        vertex: u32,
        operation: u32,
    ) {
        self.posted.class(source, tag).push(Reverse((vertex, operation)));
    }

    /// Forgets the run, not the schedule.
    pub(crate) fn reset(&mut self) {
        if self.total > 0 {
            self.seen.clear();
            self.messages.clear();
            self.posted.all().for_each(BinaryHeap::clear);
            self.queues.all().for_each(VecDeque::clear);
        }
    }
}
