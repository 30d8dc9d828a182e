//! Matching of messages with posted receives, in the private memory of the receiver: MPI's rules.
//!
//! A message is matched with the first posted receive that fits, a receive with the first message
//! that fits, where the messages of one sender are in the order in which they were sent.

use super::contexts::Contexts;
use super::line::{Envelope, INLINE_WORDS, MessageHead, Offer};
use super::slab::{Key, Slab};
use shm::published_wait::Wait;
use std::collections::{HashSet, VecDeque};

/// Messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Number of the communicator.
    pub context: u32,
    /// Rank of the sender on the node; `None` accepts all.
    pub source: Option<u32>,
    /// Tag; `None` accepts all.
    pub tag: Option<u32>,
}

impl Pattern {
    /// Returns the wait for a message, as an observer of the job sees it.
    pub(crate) fn wait(&self) -> Wait {
        Wait::Receive { source: self.source, tag: self.tag }
    }

    /// Returns true if the pattern accepts a message from rank `sender` of the node.
    #[inline]
    pub(crate) fn accepts(&self, sender: u32, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == sender)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    /// Length of its buffer in bytes.
    pub(crate) capacity: u64,
    /// Number among all posted receives.
    order: u64,
    pub(crate) state: PostedState,
}

/// State of a posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PostedState {
    /// No message has matched it.
    Waiting,
    /// A message that fits in a line has matched it.
    Short(MessageHead, [u64; INLINE_WORDS]),
    /// A longer message has matched it.
    Matched(Key),
}

/// A message that has arrived, in whole or in part.
#[derive(Debug)]
pub(crate) struct Message {
    /// Rank of its sender on the node.
    pub(crate) sender: u32,
    pub(crate) envelope: Envelope,
    pub(crate) body: Body,
    /// The receive that it has matched.
    pub(crate) posted: Option<Key>,
    /// The synchronous send that is answered when the message is matched.
    pub(crate) unanswered: Option<u64>,
    /// Bytes of credit that it holds until it is delivered.
    pub(crate) charge: u64,
}

impl Message {
    /// Returns the sender and the description.
    pub(crate) fn head(&self) -> MessageHead {
        MessageHead { sender: self.sender, envelope: self.envelope }
    }
}

/// Bytes of a message.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Short([u64; INLINE_WORDS]),
    /// All of it.
    Whole(Vec<u8>),
    /// Its lines are on their way: so far these have arrived. At most `keep` bytes are kept.
    Arriving { data: Vec<u8>, keep: u64 },
    /// As `Arriving`, into the buffer of the receive, which a call of its owner holds.
    Direct,
    /// All of it is in the buffer of the receive.
    Delivered,
    /// It lies in the memory of its sender.
    Offered(Offer),
    /// A thread of this process reads it from there.
    Reading,
    /// Its sender has been asked for it.
    Requested,
    /// Its sender could not read it any more.
    Lost,
}

/// Posted receives, and messages that none has matched.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub(crate) posted: Slab<Posted>,
    pub(crate) messages: Slab<Message>,
    /// Waiting receives that name a sender, by its rank on the node.
    waiting_for: Vec<VecDeque<Key>>,
    /// Waiting receives from any sender.
    waiting_for_any: VecDeque<Key>,
    /// Unexpected messages by the sender's rank.
    unexpected: Vec<VecDeque<Key>>,
    /// Ranks with unexpected messages, those first of which a message was taken longest ago.
    with_unexpected: VecDeque<u32>,
    /// Number of waiting receives.
    waiting: usize,
    next_order: u64,
    /// Communicators for which receives may follow.
    contexts: Contexts,
    /// Communicators and ranks that are no members of them and have sent messages there.
    refused: HashSet<(u32, u32)>,
    /// Unexpected messages for which no receive follows.
    unwanted: Vec<Key>,
}

impl Matcher {
    /// Creates a matcher for messages of so many ranks.
    pub(crate) fn new(ranks: u32, contexts: Contexts) -> Self {
        let none = || (0..ranks).map(|_| VecDeque::new()).collect();
        Matcher {
            posted: Slab::new(),
            messages: Slab::new(),
            waiting_for: none(),
            waiting_for_any: VecDeque::new(),
            unexpected: none(),
            with_unexpected: VecDeque::new(),
            waiting: 0,
            next_order: 0,
            contexts,
            refused: HashSet::new(),
            unwanted: Vec::new(),
        }
    }

    /// Returns true if no receive waits.
    #[inline]
    pub(crate) fn none_waits(&self) -> bool {
        self.waiting == 0
    }

    /// Returns true if no message of this sender is unexpected.
    #[inline]
    pub(crate) fn none_unexpected(&self, sender: u32) -> bool {
        self.unexpected[sender as usize].is_empty()
    }

    /// Posts a receive.
    pub(crate) fn post(&mut self, pattern: Pattern, capacity: u64) -> Key {
        // One order for both kinds of lists, by which `match_message` compares the first entry of
        // each.
        let order = self.next_order;
        self.next_order += 1;
        self.waiting += 1;
        let key =
            self.posted.insert(Posted { pattern, capacity, order, state: PostedState::Waiting });
        match pattern.source {
            Some(source) => self.waiting_for[source as usize].push_back(key),
            None => self.waiting_for_any.push_back(key),
        }
        key
    }

    /// Removes a receive, unless it has been matched.
    pub(crate) fn unpost(&mut self, key: Key) -> bool {
        // As MPI cancels: a receive that has matched keeps its message.
        let is_waiting = |posted: &Posted| matches!(posted.state, PostedState::Waiting);
        if !self.posted.get(key).is_some_and(is_waiting) {
            return false;
        }
        self.withdraw_waiting(key);
        self.posted.remove(key);
        true
    }

    /// Removes a receive from those that wait; it stays in `posted`.
    pub(crate) fn withdraw_waiting(&mut self, key: Key) {
        let Some(posted) = self.posted.get(key) else { return };
        let list = match posted.pattern.source {
            Some(source) => &mut self.waiting_for[source as usize],
            None => &mut self.waiting_for_any,
        };
        // The callers pass receives that wait, so the count below stays that of the lists.
        list.retain(|other| *other != key);
        self.waiting -= 1;
    }

    /// Takes the first waiting receive that accepts a message. The caller sets its state.
    #[inline]
    pub(crate) fn match_message(&mut self, sender: u32, envelope: &Envelope) -> Option<Key> {
        if self.waiting == 0 || self.is_refused(sender, envelope) {
            return None;
        }
        let posted = &self.posted;
        let first = |list: &VecDeque<Key>| {
            list.iter().enumerate().find_map(|(place, key)| {
                let found = posted.get(*key)?;
                found.pattern.accepts(sender, envelope).then_some((found.order, place, *key))
            })
        };
        let named = first(&self.waiting_for[sender as usize]);
        let any = first(&self.waiting_for_any);
        // MPI: of all receives that accept the message, the one that was posted first takes it,
        // whether or not it names the sender.
        let (place, key, list) = match (named, any) {
            (Some((order, place, key)), other)
                if other.is_none_or(|(other_order, ..)| order < other_order) =>
            {
                (place, key, &mut self.waiting_for[sender as usize])
            }
            (_, Some((_, place, key))) => (place, key, &mut self.waiting_for_any),
            _ => return None,
        };
        list.remove(place);
        self.waiting -= 1;
        Some(key)
    }

    /// Returns the first unexpected message that a pattern accepts.
    pub(crate) fn find_message(&self, pattern: &Pattern) -> Option<Key> {
        let first = |sender: u32| {
            let accepted = |key: &&Key| {
                let message = self.messages.get(**key);
                message.is_some_and(|message| {
                    // A refused one may not be discarded yet.
                    pattern.accepts(sender, &message.envelope)
                        && !self.is_refused(sender, &message.envelope)
                })
            };
            self.unexpected[sender as usize].iter().find(accepted).copied()
        };
        match pattern.source {
            Some(source) => first(source),
            None => self.with_unexpected.iter().find_map(|sender| first(*sender)),
        }
    }

    /// Adds a message that no receive has matched.
    pub(crate) fn add_unexpected(&mut self, message: Message) -> Key {
        let sender = message.sender;
        let is_unwanted = !self.contexts.accepts(message.envelope.context)
            || self.is_refused(sender, &message.envelope);
        let key = self.messages.insert(message);
        if is_unwanted {
            self.unwanted.push(key);
        }
        let list = &mut self.unexpected[sender as usize];
        if list.is_empty() {
            self.with_unexpected.push_back(sender);
        }
        list.push_back(key);
        key
    }

    /// Removes a message from the unexpected ones; it stays in `messages`.
    pub(crate) fn take_unexpected(&mut self, key: Key) {
        let Some(message) = self.messages.get(key) else { return };
        let sender = message.sender;
        let list = &mut self.unexpected[sender as usize];
        if list.front() == Some(&key) {
            list.pop_front();
        } else {
            list.retain(|other| *other != key);
        }
        // Its next message comes behind one of each other sender, for receives and probes from any
        // source: a sender with a list that never becomes empty would keep all others from its
        // receiver.
        let is_empty = list.is_empty();
        let place = self.with_unexpected.iter().position(|other| *other == sender);
        if let Some(place) = place {
            self.with_unexpected.remove(place);
        }
        if !is_empty {
            self.with_unexpected.push_back(sender);
        }
    }

    /// Takes an unexpected message for which no receive follows, if there is one.
    pub(crate) fn take_unwanted(&mut self) -> Option<Key> {
        let key = self.unwanted.pop()?;
        self.take_unexpected(key);
        Some(key)
    }

    /// Notes that a rank is no member of a communicator, and adds its messages there to the unwanted
    /// ones.
    pub(crate) fn refuse(&mut self, context: u32, sender: u32) {
        // Its messages that arrive later are found in `add_unexpected`.
        if self.refused.insert((context, sender)) {
            let messages = self.unexpected.get(sender as usize).into_iter().flatten();
            let is_of = |key: &&Key| {
                self.messages.get(**key).is_some_and(|one| one.envelope.context == context)
            };
            self.unwanted.extend(messages.filter(is_of));
        }
    }

    /// Returns true if a rank is refused in the communicator of a message.
    #[inline]
    pub(crate) fn is_refused(&self, sender: u32, envelope: &Envelope) -> bool {
        !self.refused.is_empty() && self.refused.contains(&(envelope.context, sender))
    }

    /// Changes the communicators for which messages are received, and adds the messages of all
    /// others to the unwanted ones. Those that arrive later are found in `add_unexpected`.
    pub(crate) fn change_contexts(&mut self, change: impl FnOnce(&mut Contexts)) {
        change(&mut self.contexts);
        self.refused.retain(|(context, _)| self.contexts.accepts(*context));
        let is_unwanted = |key: &&Key| {
            let message = self.messages.get(**key);
            message.is_some_and(|message| !self.contexts.accepts(message.envelope.context))
        };
        self.unwanted.extend(self.unexpected.iter().flatten().filter(is_unwanted));
    }
}
