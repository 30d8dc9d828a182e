//! An engine in memory: the interpreters of all ranks over a network that delivers in random order.

use crate::external_buffer::SharedBuffer;
use goal::compile::compile;
use goal::graph::{Graph, JoinMode};
use goal::join;
use goal::schedule::Schedule;
use interpreter::{Effect, Event, Handle, Incoming, Interpreter, Limits, Outgoing, Packet};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use testing::conformance::{Capabilities, Engine, Failure, Fault, Round, RoundOutcome};

/// Runs every program with other limits and in another order of delivery.
pub(crate) struct AdversarialNetwork {
    seed: Cell<u64>,
}

impl AdversarialNetwork {
    /// The first program runs with this seed, the second with the next.
    pub(crate) fn new(seed: u64) -> Self {
        AdversarialNetwork { seed: Cell::new(seed) }
    }
}

impl Engine for AdversarialNetwork {
    fn name(&self) -> &str {
        "interpreters over an adversarial network"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { random_programs: 256, ..Capabilities::default() }
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let seed = self.seed.replace(self.seed.get() + 1);
        let mut network = Network::new(program, inputs, seed)?;
        network.run().map_err(|failure| match failure {
            Failure::Stuck(text) => {
                Failure::Stuck(format!("seed {seed}, limits {:?}: {text}", network.limits))
            }
            other => other,
        })?;
        Ok(network.outcomes)
    }
}

/// A run of a rank: round and rank.
type RunKey = (usize, usize);

/// A step that can be taken next.
enum Step {
    /// A rank starts a round.
    Start,
    /// An event reaches a run, started or not.
    Event(Event),
    /// A message reaches a run from the memory of another one.
    InPlace { source: usize, packet: Packet, send: Handle, bytes: u64 },
}

/// A message stored by the transport: run of the receiver, source, tag, ordinal.
type StoredMessage = (RunKey, u32, u32, u32);

struct Network<'a> {
    program: &'a [Graph],
    inputs: &'a [Round],
    schedules: Vec<Arc<Schedule>>,
    limits: Limits,
    random: StdRng,
    /// Interpreters by run, created for the first event. Those of finished runs move to `idle`.
    running: BTreeMap<RunKey, Interpreter>,
    /// Interpreters for reuse, by rank.
    idle: Vec<Vec<Interpreter>>,
    /// Buffers that current runs borrow.
    borrowed: HashMap<RunKey, Vec<(usize, SharedBuffer)>>,
    pending: Vec<(RunKey, Step)>,
    held: HashMap<StoredMessage, Vec<u8>>,
    joins: HashMap<(usize, u32), Join>,
    outcomes: Vec<RoundOutcome>,
    clock: u64,
    finished: usize,
}

/// The ranks that have entered a join.
#[derive(Default)]
struct Join {
    contributions: BTreeMap<u32, Vec<u8>>,
    waiting: Vec<(RunKey, Handle, JoinMode)>,
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
    from[random.random_range(0..from.len())]
}

impl<'a> Network<'a> {
    fn new(program: &'a [Graph], inputs: &'a [Round], seed: u64) -> Result<Self, Failure> {
        let mut random = StdRng::seed_from_u64(seed);
        let limits = Limits {
            eager_limit: pick(&mut random, &[0, 8, 100, 10_000, 1 << 30]),
            unexpected_bytes: pick(&mut random, &[0, 8, 64, 1000, 1 << 30]),
            unexpected_messages: pick(&mut random, &[0, 1, 5, 1 << 20]),
            in_place: pick(&mut random, &[0, 8, 100, u64::MAX]),
        };
        let schedules: Result<Vec<_>, _> =
            program.iter().map(|graph| compile(graph).map(Arc::new)).collect();
        let blank = RoundOutcome { buffers: vec![Vec::new(); program.len()], faults: Vec::new() };
        Ok(Network {
            program,
            inputs,
            schedules: schedules.map_err(other)?,
            limits,
            random,
            running: BTreeMap::new(),
            idle: program.iter().map(|_| Vec::new()).collect(),
            borrowed: HashMap::new(),
            pending: (0..program.len()).map(|rank| ((0, rank), Step::Start)).collect(),
            held: HashMap::new(),
            joins: HashMap::new(),
            outcomes: vec![blank; inputs.len()],
            clock: 0,
            finished: 0,
        })
    }

    /// Takes the pending steps one after the other, in random order, until none is left.
    fn run(&mut self) -> Result<(), Failure> {
        while !self.pending.is_empty() {
            let index = self.random.random_range(0..self.pending.len());
            let (run, pending) = self.pending.swap_remove(index);
            self.clock += 1;
            let clock = self.clock;
            let (round, rank) = run;
            let mut interpreter = self.interpreter(run)?;
            match pending {
                Step::Start => {
                    let buffers = self.buffers(run, &mut interpreter)?;
                    interpreter.start(buffers, clock).map_err(other)?;
                }
                Step::Event(event) => {
                    let again = self.random.random_ratio(1, 8).then(|| event.clone());
                    interpreter.handle(event, clock).map_err(other)?;
                    // A duplicate event must be refused and change nothing.
                    if let Some(event) = again
                        && interpreter.handle(event.clone(), clock).is_ok()
                    {
                        return Err(Failure::Other(format!("{event:?} was accepted twice")));
                    }
                }
                Step::InPlace { source, packet, send, bytes } => {
                    self.transfer(run, &mut interpreter, (source, send), packet, bytes)?;
                }
            }
            let mut over = false;
            while let Some(effect) = interpreter.poll() {
                over |= matches!(effect, Effect::Completed(_));
                self.effect(run, effect)?;
            }
            if over {
                let mut buffers = interpreter.reset();
                for (number, buffer) in self.borrowed.remove(&run).unwrap_or_default() {
                    buffers[number] = std::mem::take(&mut buffer.bytes());
                }
                self.outcomes[round].buffers[rank] = buffers;
                self.idle[rank].push(interpreter);
                self.finished += 1;
            } else {
                self.running.insert(run, interpreter);
            }
        }
        if self.finished < self.inputs.len() * self.program.len() {
            return Err(Failure::Stuck(self.waiting()));
        }
        if !self.held.is_empty() {
            return Err(Failure::Other(format!(
                "{} stored messages were never loaded",
                self.held.len()
            )));
        }
        Ok(())
    }

    /// Returns the buffers of a run; a random choice of them is borrowed instead.
    fn buffers(
        &mut self,
        run: RunKey,
        interpreter: &mut Interpreter,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let (round, rank) = run;
        let mut buffers = self.inputs[round][rank].clone();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            if self.random.random() {
                let buffer = SharedBuffer(Arc::new(Mutex::new(std::mem::take(buffer))));
                interpreter.borrow_buffer(number, Box::new(buffer.clone())).map_err(other)?;
                self.borrowed.entry(run).or_default().push((number, buffer));
            }
        }
        Ok(buffers)
    }

    /// Returns a copy of a range of a buffer that a run borrows.
    fn borrowed_bytes(
        &self,
        run: RunKey,
        buffer: usize,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Failure> {
        let borrowed = self.borrowed.get(&run).into_iter().flatten();
        let found = borrowed.into_iter().find(|(number, _)| *number == buffer);
        let (_, buffer) = found.ok_or(Failure::Other("the buffer is not borrowed".into()))?;
        Ok(buffer.bytes()[range.start as usize..range.end as usize].to_vec())
    }

    /// Copies a payload from the memory of its sender to that of its receive, or passes it as a
    /// whole.
    fn transfer(
        &mut self,
        run: RunKey,
        interpreter: &mut Interpreter,
        (source, send): (usize, Handle),
        packet: Packet,
        bytes: u64,
    ) -> Result<(), Failure> {
        let sender = (run.0, source);
        let sending = self.running.get(&sender).unwrap_or(interpreter);
        let payload = match sending.outgoing(send) {
            Some(Outgoing::Own(payload)) => payload.to_vec(),
            Some(Outgoing::Borrowed(buffer, range)) => {
                self.borrowed_bytes(sender, buffer, range)?
            }
            None => return Err(Failure::Other("there is nothing to send".into())),
        };
        self.pending.push((sender, Step::Event(Event::Sent { send })));
        let Some(receive) = interpreter.admit(source as u32, &packet, bytes) else {
            let packet = match packet {
                Packet::Eager { tag, ordinal, .. } => Packet::Eager { tag, ordinal, payload },
                Packet::Data { receive, .. } => Packet::Data { receive, payload },
                other => return Err(Failure::Other(format!("{other:?} has no payload"))),
            };
            let event = Event::Packet { source: source as u32, packet };
            self.pending.push((run, Step::Event(event)));
            return Ok(());
        };
        if interpreter.admit(source as u32, &packet, bytes).is_some() {
            return Err(Failure::Other("two messages were admitted to one receive".into()));
        }
        match interpreter.incoming(receive) {
            Some(Incoming::Own(memory)) => memory.copy_from_slice(&payload),
            Some(Incoming::Borrowed(buffer, range)) => {
                let borrowed = self.borrowed.get(&run).into_iter().flatten();
                let buffer = borrowed.into_iter().find(|(number, _)| *number == buffer);
                let (_, buffer) = buffer.ok_or(Failure::Other("it is not borrowed".into()))?;
                buffer.bytes()[range.start as usize..range.end as usize].copy_from_slice(&payload);
            }
            None => return Err(Failure::Other("an admitted message has no place".into())),
        }
        self.pending.push((run, Step::Event(Event::Received { receive })));
        Ok(())
    }

    fn interpreter(&mut self, run: RunKey) -> Result<Interpreter, Failure> {
        if let Some(interpreter) = self.running.remove(&run).or_else(|| self.idle[run.1].pop()) {
            return Ok(interpreter);
        }
        Interpreter::new(self.schedules[run.1].clone(), self.limits).map_err(other)
    }

    fn effect(&mut self, run: RunKey, effect: Effect) -> Result<(), Failure> {
        let (round, rank) = run;
        let source = rank as u32;
        match effect {
            Effect::Transmit { peer, packet } => {
                self.pending
                    .push(((round, peer as usize), Step::Event(Event::Packet { source, packet })));
            }
            Effect::TransmitInPlace { peer, packet, send, bytes } => {
                let step = Step::InPlace { source: rank, packet, send, bytes };
                self.pending.push(((round, peer as usize), step));
            }
            Effect::StoreUnexpected { source, tag, ordinal, payload } => {
                if self.held.insert((run, source, tag, ordinal), payload).is_some() {
                    return Err(Failure::Other("a message was stored twice".into()));
                }
            }
            Effect::LoadUnexpected { source, tag, ordinal, receive } => {
                let payload = self.held.remove(&(run, source, tag, ordinal));
                let payload = payload
                    .ok_or(Failure::Other("a message was loaded that is not stored".into()))?;
                let packet = Packet::Data { receive, payload };
                self.pending.push((run, Step::Event(Event::Packet { source, packet })));
            }
            Effect::Calc { operation, .. } => {
                self.pending.push((run, Step::Event(Event::CalcFinished { operation })));
            }
            Effect::Join { operation, ordinal, mode, contribution } => {
                let join = self.joins.entry((round, ordinal)).or_default();
                join.contributions.insert(source, contribution);
                join.waiting.push((run, operation, mode));
                self.finish_join(round, ordinal)?;
            }
            Effect::Completed(outcome) => {
                match outcome {
                    Ok(()) => {}
                    Err(interpreter::Failure::DivisionByZero { rank, vertex, .. }) => {
                        self.outcomes[round].faults.push(Fault { rank, vertex });
                    }
                    Err(failure @ interpreter::Failure::SizesDiffer { .. }) => {
                        return Err(Failure::SizesDiffer(failure.to_string()));
                    }
                }
                if round + 1 < self.inputs.len() {
                    self.pending.push(((round + 1, rank), Step::Start));
                }
            }
        }
        Ok(())
    }

    /// Finishes a join on every rank whose result is available.
    fn finish_join(&mut self, round: usize, ordinal: u32) -> Result<(), Failure> {
        let ranks = self.program.len();
        let Some(join) = self.joins.get_mut(&(round, ordinal)) else { return Ok(()) };
        let complete = join.contributions.len() == ranks;
        // A broadcast uses the root's contribution only, so missing ones count as empty.
        let all: Vec<&[u8]> = (0..ranks as u32)
            .map(|rank| join.contributions.get(&rank).map_or(&[][..], Vec::as_slice))
            .collect();
        let ready = |mode: JoinMode| match mode {
            JoinMode::Broadcast { root } => join.contributions.contains_key(&root),
            _ => complete,
        };
        let (now, later): (Vec<_>, Vec<_>) =
            join.waiting.drain(..).partition(|(_, _, mode)| ready(*mode));
        for (run, operation, mode) in now {
            let joined = join::combine(mode, run.1 as u32, &all).map_err(other)?;
            let event = Event::JoinFinished {
                operation,
                result: joined.bytes,
                divided_by_zero: joined.divided_by_zero,
            };
            self.pending.push((run, Step::Event(event)));
        }
        join.waiting = later;
        Ok(())
    }

    fn waiting(&self) -> String {
        let runs = self.running.iter().map(|((round, rank), interpreter)| {
            let outstanding: Vec<_> = interpreter.outstanding().collect();
            format!("round {round}, rank {rank} waits for {outstanding:?}")
        });
        runs.collect::<Vec<_>>().join("; ")
    }
}
