//! Matching of messages and receives, and the store for unexpected messages.
//!
//! A message belongs to the receive that names its sender, tag and ordinal ([`NamedReceives`]). If
//! the schedule has no such receive, the message is matched with the wildcard receives in arrival
//! order ([`WildcardMatching`]). A message that arrives before its receive is posted is
//! *unexpected*; [`UnexpectedMemory`] bounds the payloads stored for such messages.

use crate::effect::Handle;
use goal::schedule::{Kind, ScheduleView};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// Identity of a message within a run, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageEnvelope {
    pub(crate) source: u32,
    pub(crate) tag: u32,
    pub(crate) ordinal: u32,
    pub(crate) bytes: u64,
}

/// Location of a message's payload.
#[derive(Debug)]
pub(crate) enum PayloadLocation {
    /// In this interpreter.
    Payload(Vec<u8>),
    /// In the sender's buffer until this rank sends [`Packet::ClearToSend`].
    ///
    /// [`Packet::ClearToSend`]: crate::Packet::ClearToSend
    AtSender(Handle),
    /// In this rank's transport, after [`Effect::StoreUnexpected`].
    ///
    /// [`Effect::StoreUnexpected`]: crate::Effect::StoreUnexpected
    AtTransport,
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct ArrivedMessage {
    pub(crate) envelope: MessageEnvelope,
    pub(crate) content: PayloadLocation,
}

/// Account of the memory that stored unexpected payloads take.
#[derive(Debug)]
pub(crate) struct UnexpectedMemory {
    bytes: u64,
    messages: u64,
    used_bytes: u64,
    used_messages: u64,
}

impl UnexpectedMemory {
    pub(crate) fn new(bytes: u64, messages: u64) -> Self {
        UnexpectedMemory { bytes, messages, used_bytes: 0, used_messages: 0 }
    }

    /// Reserves memory for one payload; returns false if the limits do not allow it.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.used_messages < self.messages
            && bytes <= self.bytes.saturating_sub(self.used_bytes);
        if fits {
            self.used_bytes += bytes;
            self.used_messages += 1;
        }
        fits
    }

    /// Releases the memory of a stored message.
    pub(crate) fn release(&mut self, message: &ArrivedMessage) {
        // Only payloads that `reserve` has admitted are stored as `Payload`. All others lie at the
        // transport or at the sender.
        if let PayloadLocation::Payload(payload) = &message.content {
            self.used_bytes -= payload.len() as u64;
            self.used_messages -= 1;
        }
    }

    pub(crate) fn reset(&mut self) {
        self.used_bytes = 0;
        self.used_messages = 0;
    }
}

/// Unexpected messages of naming receives, by the receive's operation.
pub(crate) type UnexpectedNamed = HashMap<u32, ArrivedMessage>;

/// The receives of a schedule that name a sender and a tag. The index is constant for a schedule;
/// the state of a run is kept elsewhere.
#[derive(Debug, Default)]
pub(crate) struct NamedReceives {
    /// Start and number, in `operations`, of the receives for (source, tag).
    groups: HashMap<(u32, u32), (u32, u32)>,
    /// Operations, by group and then by ordinal.
    operations: Vec<u32>,
}

impl NamedReceives {
    /// Indexes a schedule. A valid schedule numbers the receives of each sender and tag from 0
    /// without gaps.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Self {
        let mut found: Vec<(u32, u32, u32, u32)> = Vec::new();
        for (index, record) in view.operations().iter().enumerate() {
            if record.kind() == Kind::Receive
                && let (Some(source), Some(tag)) = (record.peer(), record.tag())
            {
                found.push((source, tag, record.ordinal, index as u32));
            }
        }
        // By source, tag and ordinal: the receives of a group become neighbours, and the ordinal of
        // a receive is its position in the group.
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

    /// Returns the receive that names this message, or `None` if it is left for wildcard receives.
    pub(crate) fn find(&self, source: u32, tag: u32, ordinal: u32) -> Option<u32> {
        let (start, count) = *self.groups.get(&(source, tag))?;
        // A group may have fewer receives than there are messages from this sender with this tag.
        // The later ordinals belong to receives with wildcards.
        if ordinal < count {
            self.operations.get((start + ordinal) as usize).copied()
        } else {
            None
        }
    }
}

/// One value for each class of wildcard receive: any source and tag, any tag of one source, one tag
/// of any source.
#[derive(Debug, Default)]
struct PerWildcardClass<T> {
    any: T,
    source: HashMap<u32, T>,
    tag: HashMap<u32, T>,
}

impl<T: Default> PerWildcardClass<T> {
    /// Returns the value of the class of receives with this source and tag. At least one of them is
    /// a wildcard.
    fn class(&mut self, source: Option<u32>, tag: Option<u32>) -> &mut T {
        match (source, tag) {
            (Some(source), _) => self.source.entry(source).or_default(),
            (None, Some(tag)) => self.tag.entry(tag).or_default(),
            (None, None) => &mut self.any,
        }
    }

    /// Returns the values of the classes that admit a message from this source with this tag.
    fn admitting(&mut self, source: u32, tag: u32) -> [Option<&mut T>; 3] {
        [Some(&mut self.any), self.source.get_mut(&source), self.tag.get_mut(&tag)]
    }

    fn all(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.any).chain(self.source.values_mut()).chain(self.tag.values_mut())
    }
}

/// State of wildcard matching in one run.
#[derive(Debug, Default)]
pub(crate) struct WildcardMatching {
    /// Number of the schedule's receives of each class. Constant.
    receives: PerWildcardClass<u32>,
    /// Number of the schedule's wildcard receives. Constant.
    total: usize,
    /// Every message left for wildcards in this run. Detects duplicates.
    seen: HashSet<(u32, u32, u32)>,
    /// Posted receives: vertex, by which they are ordered, and operation.
    posted: PerWildcardClass<BinaryHeap<Reverse<(u32, u32)>>>,
    /// Unmatched messages in arrival order; `None` once taken.
    messages: Vec<Option<ArrivedMessage>>,
    /// Indices into `messages`, earliest first. Every message is in three queues, one of each class;
    /// entries taken through another queue are skipped at the front.
    queues: PerWildcardClass<VecDeque<u32>>,
}

/// Reason for refusing a message that is left for wildcard receives.
pub(crate) enum WildcardRefusal {
    NoReceive,
    Duplicate,
}

impl WildcardMatching {
    /// Collects the wildcard receives of a schedule. No receive is posted and no message has arrived.
    pub(crate) fn of(view: &ScheduleView<'_>) -> Self {
        let mut wildcards = WildcardMatching::default();
        for record in view.operations().iter().filter(|record| record.kind() == Kind::Receive) {
            if record.peer().is_none() || record.tag().is_none() {
                *wildcards.receives.class(record.peer(), record.tag()) += 1;
                wildcards.total += 1;
            }
        }
        wildcards
    }

    /// Records the arrival of a message if the schedule can have a receive for it.
    pub(crate) fn arrive(
        &mut self,
        source: u32,
        tag: u32,
        ordinal: u32,
    ) -> Result<(), WildcardRefusal> {
        if self.seen.contains(&(source, tag, ordinal)) {
            return Err(WildcardRefusal::Duplicate);
        }
        let admitted =
            self.receives.admitting(source, tag).into_iter().flatten().any(|count| *count > 0);
        // Every wildcard receive takes one message, so more messages than receives cannot match.
        // This also bounds `seen` and `messages` against a peer that sends without end.
        if !admitted || self.seen.len() == self.total {
            return Err(WildcardRefusal::NoReceive);
        }
        self.seen.insert((source, tag, ordinal));
        Ok(())
    }

    /// Takes the first posted receive, in vertex order, that admits the message.
    pub(crate) fn take_posted(&mut self, source: u32, tag: u32) -> Option<u32> {
        let heaps = self.posted.admitting(source, tag).into_iter().flatten();
        let first =
            // `peek` returns the smallest vertex in `Reverse`, so the greatest key is the first vertex.
            heaps.filter(|heap| !heap.is_empty()).max_by_key(|heap| heap.peek().copied())?;
        first.pop().map(|Reverse((_, operation))| operation)
    }

    /// Stores a message for which no receive is posted.
    pub(crate) fn store(&mut self, message: ArrivedMessage) {
        let index = self.messages.len() as u32;
        let envelope = message.envelope;
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
    ) -> Option<ArrivedMessage> {
        let queue = self.queues.class(source, tag);
        // A message that was taken through another queue leaves an entry here. Each entry is
        // removed once, so the skips of a run are at most three a message.
        while let Some(index) = queue.pop_front() {
            let message = self.messages.get_mut(index as usize).and_then(Option::take);
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// Posts a receive for which no message has arrived.
    pub(crate) fn post(
        &mut self,
        source: Option<u32>,
        tag: Option<u32>,
        vertex: u32,
        operation: u32,
    ) {
        // Ordered by vertex and not by the time of posting: among the receives that admit a
        // message, the first one of the schedule takes it.
        self.posted.class(source, tag).push(Reverse((vertex, operation)));
    }

    /// Discards the state of the run and keeps the index of the schedule.
    pub(crate) fn reset(&mut self) {
        // Without wildcard receives `arrive` admits no message, so nothing was stored.
        if self.total > 0 {
            self.seen.clear();
            self.messages.clear();
            self.posted.all().for_each(BinaryHeap::clear);
            self.queues.all().for_each(VecDeque::clear);
        }
    }
}
