//! Messages that arrive before their receive is posted: matching compared with a simple model,
//! memory bounds, large numbers.

use goal::compile::compile;
use goal::graph::{Access, Block, Graph};
use interpreter::{Effect, Event, Handle, Interpreter, Limits, Packet};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::collections::HashMap;
use std::sync::Arc;

fn interpreter(graph: &Graph, limits: Limits) -> Interpreter {
    Interpreter::new(Arc::new(compile(graph).expect("the graph is valid")), limits)
        .expect("it fits into memory")
}

fn eager(source: u32, tag: u32, ordinal: u32, payload: Vec<u8>) -> Event {
    Event::Packet { source, packet: Packet::Eager { tag, ordinal, payload } }
}

/// Source and tag of a receive.
type ReceivePattern = (Option<u32>, Option<u32>);

/// A message: source, tag, ordinal.
type MessageId = (u32, u32, u32);

/// The matching rule, implemented as linear searches.
#[derive(Default)]
struct Model {
    receives: Vec<ReceivePattern>,
    /// Posted receives without a message, in vertex order.
    posted: Vec<usize>,
    /// Unmatched messages in arrival order, with their payload.
    arrived: Vec<(MessageId, u64)>,
    taken: HashMap<usize, u64>,
}

impl Model {
    /// Returns whether a receive admits a message: a naming receive the one with its ordinal, a
    /// wildcard receive those left for wildcards.
    fn admits(&self, receive: usize, (source, tag, ordinal): MessageId) -> bool {
        let named = |wanted: &&ReceivePattern| **wanted == (Some(source), Some(tag));
        let claimed = self.receives.iter().filter(named).count() as u32;
        match self.receives[receive] {
            (Some(from), Some(with)) => {
                let number = self.receives[..receive].iter().filter(named).count() as u32;
                (from, with) == (source, tag) && ordinal == number
            }
            (from, with) => {
                ordinal >= claimed
                    && from.is_none_or(|from| from == source)
                    && with.is_none_or(|with| with == tag)
            }
        }
    }

    fn post(&mut self, receive: usize) {
        match self.arrived.iter().position(|(name, _)| self.admits(receive, *name)) {
            Some(place) => {
                self.taken.insert(receive, self.arrived.remove(place).1);
            }
            None => {
                self.posted.push(receive);
                self.posted.sort_unstable();
            }
        }
    }

    fn arrive(&mut self, name: MessageId, word: u64) {
        match self.posted.iter().position(|receive| self.admits(*receive, name)) {
            Some(place) => {
                self.taken.insert(self.posted.remove(place), word);
            }
            None => self.arrived.push((name, word)),
        }
    }
}

/// Drives an interpreter in which each receive is posted when its own computation finishes.
struct Driver {
    interpreter: Interpreter,
    /// The computation of each receive.
    triggers: Vec<Handle>,
    held: HashMap<MessageId, Vec<u8>>,
    /// Payloads of this driver's requests to send, by handle.
    requested: Vec<u64>,
}

impl Driver {
    fn new(receives: &[ReceivePattern], limits: Limits) -> Self {
        let mut graph = Graph::new(0, 4);
        let output = graph.buffer(Access::Output, 8 * receives.len() as u64);
        let vertices: Vec<_> = (0..)
            .zip(receives)
            .map(|(index, (source, tag))| graph.receive(output.part(8 * index, 8), *source, *tag))
            .collect();
        for (number, receive) in (0..).zip(vertices) {
            let calc = graph.calc(number);
            graph.requires(receive, calc);
        }
        let mut interpreter = interpreter(&graph, limits);
        interpreter
            .start(vec![vec![0xff; 8 * receives.len()]], 0)
            .expect("the buffer is as declared");
        let mut triggers = vec![Handle(0); receives.len()];
        while let Some(effect) = interpreter.poll() {
            if let Effect::Calc { operation, nanoseconds, .. } = effect {
                triggers[nanoseconds as usize] = operation;
            }
        }
        Driver { interpreter, triggers, held: HashMap::new(), requested: Vec::new() }
    }

    fn post(&mut self, receive: usize) {
        let operation = self.triggers[receive];
        self.interpreter.handle(Event::CalcFinished { operation }, 0).expect("it has begun");
        self.effects();
    }

    /// Returns whether the message was accepted.
    fn arrive(
        &mut self,
        (source, tag, ordinal): MessageId,
        word: u64,
        by_rendezvous: bool,
    ) -> bool {
        let packet = if by_rendezvous {
            self.requested.push(word);
            Packet::RequestToSend {
                tag,
                ordinal,
                bytes: 8,
                send: Handle(self.requested.len() as u32 - 1),
            }
        } else {
            Packet::Eager { tag, ordinal, payload: word.to_le_bytes().to_vec() }
        };
        let taken = self.interpreter.handle(Event::Packet { source, packet }, 0).is_ok();
        self.effects();
        taken
    }

    /// Executes all effects immediately.
    fn effects(&mut self) {
        while let Some(effect) = self.interpreter.poll() {
            let (source, receive, payload) = match effect {
                Effect::StoreUnexpected { source, tag, ordinal, payload } => {
                    self.held.insert((source, tag, ordinal), payload);
                    continue;
                }
                Effect::LoadUnexpected { source, tag, ordinal, receive } => (
                    source,
                    receive,
                    self.held.remove(&(source, tag, ordinal)).expect("it is held"),
                ),
                Effect::Transmit { peer, packet: Packet::ClearToSend { send, receive } } => {
                    (peer, receive, self.requested[send.0 as usize].to_le_bytes().to_vec())
                }
                _ => continue,
            };
            let packet = Packet::Data { receive, payload };
            self.interpreter.handle(Event::Packet { source, packet }, 0).expect("it was requested");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn matching_agrees_with_the_model(
        receives in proptest::collection::vec((prop::option::of(1..3u32), prop::option::of(0..2u32)), 1..12),
        messages in proptest::collection::vec((1..3u32, 0..2u32, any::<bool>()), 0..16),
        order in any::<u64>(),
        unexpected_bytes in prop::sample::select(vec![0, 8, 24, 1000]),
    ) {
        let limits = Limits { unexpected_bytes, unexpected_messages: 2, ..Limits::new(0) };
        let mut driver = Driver::new(&receives, limits);
        let mut model = Model { receives: receives.clone(), ..Model::default() };
        let mut counts: HashMap<(u32, u32), u32> = HashMap::new();
        let arrivals = (0u64..).zip(messages).map(|(word, (source, tag, by_rendezvous))| {
            let count = counts.entry((source, tag)).or_insert(0);
            *count += 1;
            Ok(((source, tag, *count - 1), word, by_rendezvous))
        });
        let mut steps: Vec<_> = arrivals.chain((0..receives.len()).map(Err)).collect();
        steps.shuffle(&mut rand::rngs::StdRng::seed_from_u64(order));
        for step in steps {
            match step {
                Ok((name, word, by_rendezvous)) => {
                    // Exactly the messages that cannot have a receive are refused.
                    if driver.arrive(name, word, by_rendezvous) {
                        model.arrive(name, word);
                    } else {
                        prop_assert!((0..receives.len()).all(|receive| !model.admits(receive, name))
                            || model.arrived.len() + model.taken.len() >= receives.len()
                            || wild_messages(&model) >= wild_receives(&receives));
                    }
                }
                Err(receive) => {
                    driver.post(receive);
                    model.post(receive);
                }
            }
        }
        let buffer = &driver.interpreter.reset()[0];
        for (receive, bytes) in buffer.chunks(8).enumerate() {
            let expected = model.taken.get(&receive).copied().unwrap_or(u64::MAX);
            prop_assert_eq!(bytes, expected.to_le_bytes(), "receive {}", receive);
        }
    }

    #[test]
    fn memory_is_bounded(
        lengths in proptest::collection::vec(0..100usize, 1..40),
        unexpected_bytes in 0..1000u64,
        unexpected_messages in 0..20u64,
    ) {
        let mut graph = Graph::new(0, 2);
        for (tag, length) in (0..).zip(&lengths) {
            let output = graph.buffer(Access::Output, *length as u64);
            if tag % 2 == 0 { graph.receive(output, 1, tag) } else { graph.receive(output, None, tag) };
        }
        let limits = Limits { unexpected_bytes, unexpected_messages, ..Limits::new(0) };
        let mut interpreter = interpreter(&graph, limits);
        let mut stored = Vec::new();
        let mut held = Vec::new();
        for (tag, length) in (0..).zip(&lengths) {
            prop_assert_eq!(interpreter.handle(eager(1, tag, 0, vec![tag as u8; *length]), 0), Ok(()));
            match interpreter.poll() {
                None => stored.push(*length as u64),
                Some(Effect::StoreUnexpected { source: 1, tag: same, ordinal: 0, payload }) if same == tag => {
                    prop_assert!(
                        stored.len() as u64 == unexpected_messages
                            || stored.iter().sum::<u64>() + *length as u64 > unexpected_bytes,
                        "passed to the transport within the limits"
                    );
                    held.push((tag, payload));
                }
                other => prop_assert!(false, "unexpected effect {:?}", other),
            }
            prop_assert!(stored.len() as u64 <= unexpected_messages && stored.iter().sum::<u64>() <= unexpected_bytes);
        }
        // After the start, the receives request exactly the payloads in the transport.
        interpreter.start(lengths.iter().map(|length| vec![0xff; *length]).collect(), 0).expect("as declared");
        let mut requested = Vec::new();
        while let Some(effect) = interpreter.poll() {
            if let Effect::LoadUnexpected { source: 1, tag, ordinal: 0, receive } = effect {
                requested.push((tag, receive));
            }
        }
        prop_assert_eq!(requested.len(), held.len());
        for ((tag, payload), (asked, receive)) in held.into_iter().zip(requested) {
            prop_assert_eq!(tag, asked);
            let event = Event::Packet { source: 1, packet: Packet::Data { receive, payload } };
            prop_assert_eq!(interpreter.handle(event, 0), Ok(()));
        }
        prop_assert!(interpreter.is_over());
        for (tag, (buffer, length)) in (0u8..).zip(interpreter.reset().iter().zip(lengths)) {
            prop_assert_eq!(buffer, &vec![tag; length]);
        }
    }
}

/// Receiving a stored message releases its memory.
#[test]
fn received_messages_release_memory() {
    const ROUNDS: u32 = 20;
    let receives: Vec<ReceivePattern> =
        (0..ROUNDS).map(|tag| (Some(1).filter(|_| tag % 2 == 0), Some(tag))).collect();
    let limits = Limits { unexpected_bytes: 8, unexpected_messages: 1, ..Limits::new(0) };
    let mut driver = Driver::new(&receives, limits);
    for tag in 0..ROUNDS {
        assert!(driver.arrive((1, tag, 0), u64::from(tag), false));
        assert!(driver.held.is_empty(), "the limit is one message");
        driver.post(tag as usize);
    }
    assert!(driver.interpreter.is_over());
}

fn wild_receives(receives: &[ReceivePattern]) -> usize {
    receives.iter().filter(|(source, tag)| source.is_none() || tag.is_none()).count()
}

/// Number of messages left for wildcards so far.
fn wild_messages(model: &Model) -> usize {
    let wild = |receive: &&usize| wild_receives(&model.receives[**receive..=**receive]) > 0;
    let claimed = |(source, tag, ordinal): MessageId| {
        let named = model.receives.iter().filter(|wanted| **wanted == (Some(source), Some(tag)));
        ordinal < named.count() as u32
    };
    model.taken.keys().filter(wild).count()
        + model.arrived.iter().filter(|(name, _)| !claimed(*name)).count()
}

/// A hundred thousand messages arrive in random order before the first receive is posted, half of
/// them for wildcards of every class, under small memory limits. With linear searches this test
/// would not end.
#[test]
fn a_hundred_thousand_unexpected_messages() {
    const COUNT: u64 = 100_000;
    let mut graph = Graph::new(0, 2);
    let output = graph.buffer(Access::Output, 8 * COUNT);
    let slot = |index: u64| -> Block { output.part(8 * index, 8) };
    for index in 0..COUNT {
        let wanted: ReceivePattern = match index % 8 {
            0 => (None, None),
            1 => (Some(1), None),
            2 => (None, Some(1)),
            3 => (None, Some(2)),
            _ => (Some(1), Some(0)),
        };
        graph.receive(slot(index), wanted.0, wanted.1);
    }
    let limits = Limits { unexpected_bytes: 8000, unexpected_messages: 500, ..Limits::new(0) };
    let mut interpreter = interpreter(&graph, limits);
    // Tag 0 is received by name; the others are left for wildcards, each tag as often as any class
    // could need.
    let eighth = COUNT / 8;
    let named = (0..COUNT / 2).map(|ordinal| (0, ordinal));
    let wild = (0..2 * eighth).flat_map(|ordinal| [(1, ordinal), (2, ordinal)]);
    let mut messages: Vec<(u32, u64)> = named.chain(wild).collect();
    messages.shuffle(&mut rand::rngs::StdRng::seed_from_u64(7));
    let word = |tag: u32, ordinal: u64| u64::from(tag) << 32 | ordinal;
    let mut held = HashMap::new();
    for (tag, ordinal) in messages {
        let payload = word(tag, ordinal).to_le_bytes().to_vec();
        interpreter.handle(eager(1, tag, ordinal as u32, payload), 0).expect("it has a receive");
        if let Some(Effect::StoreUnexpected { tag, ordinal, payload, .. }) = interpreter.poll() {
            held.insert((tag, ordinal), payload);
        }
    }
    assert_eq!(held.len() as u64, COUNT - 500);
    interpreter.start(vec![vec![0xff; 8 * COUNT as usize]], 0).expect("the buffer is as declared");
    while let Some(effect) = interpreter.poll() {
        if let Effect::LoadUnexpected { source, tag, ordinal, receive } = effect {
            let payload = held.remove(&(tag, ordinal)).expect("it is held, once");
            let event = Event::Packet { source, packet: Packet::Data { receive, payload } };
            interpreter.handle(event, 0).expect("it was requested");
        }
    }
    assert!(interpreter.is_over() && held.is_empty());
    let buffer = &interpreter.reset()[0];
    let mut words: Vec<u64> = buffer
        .chunks(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
        .collect();
    let by_name = words.chunks(8).flat_map(|words| &words[4..]);
    assert!(
        by_name.copied().eq((0..COUNT / 2).map(|ordinal| word(0, ordinal))),
        "naming receives match by ordinal"
    );
    for words in words.chunks(8) {
        assert_eq!((words[2] >> 32, words[3] >> 32), (1, 2), "receives of one tag");
    }
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len() as u64, COUNT, "every message was received once");
}
