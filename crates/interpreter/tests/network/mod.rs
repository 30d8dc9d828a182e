//! An engine in memory: the interpreters of all ranks over a network that delivers in any order it
//! likes.

use crate::elsewhere::Elsewhere;
use goal::compile::compile;
use goal::graph::{Graph, JoinMode};
use goal::schedule::Schedule;
use interpreter::{Effect, Event, Handle, Interpreter, Limits, Packet, join};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
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
type Place = (usize, usize);

/// Something that may happen next.
enum Pending {
    /// A rank starts a round.
    Start,
    /// An event reaches a run, started or not.
    Event(Event),
}

/// A message held back: place of the receiver, source, tag, ordinal.
type Held = (Place, u32, u32, u32);

struct Network<'a> {
    program: &'a [Graph],
    inputs: &'a [Round],
    schedules: Vec<Arc<Schedule>>,
    limits: Limits,
    random: StdRng,
    /// Interpreters by place, made when the first event arrives. Those of finished runs go to
    /// `idle`.
    running: BTreeMap<Place, Interpreter>,
    /// Interpreters to be used again, by rank.
    idle: Vec<Vec<Interpreter>>,
    /// Buffers of runs under way that lie elsewhere.
    lent: HashMap<Place, Vec<(usize, Elsewhere)>>,
    pending: Vec<(Place, Pending)>,
    held: HashMap<Held, Vec<u8>>,
    meetings: HashMap<(usize, u32), Meeting>,
    outcomes: Vec<RoundOutcome>,
    clock: u64,
    finished: usize,
}

/// The ranks that have entered a join.
#[derive(Default)]
struct Meeting {
    contributions: BTreeMap<u32, Vec<u8>>,
    waiting: Vec<(Place, Handle, JoinMode)>,
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
            lent: HashMap::new(),
            pending: (0..program.len()).map(|rank| ((0, rank), Pending::Start)).collect(),
            held: HashMap::new(),
            meetings: HashMap::new(),
            outcomes: vec![blank; inputs.len()],
            clock: 0,
            finished: 0,
        })
    }

    /// Lets one pending thing happen after the other, in random order, until there is none.
    fn run(&mut self) -> Result<(), Failure> {
        while !self.pending.is_empty() {
            let index = self.random.random_range(0..self.pending.len());
            let (place, pending) = self.pending.swap_remove(index);
            self.clock += 1;
            let (clock, (round, rank)) = (self.clock, place);
            let mut interpreter = self.interpreter(place)?;
            match pending {
                Pending::Start => {
                    let buffers = self.lend(place, &mut interpreter)?;
                    interpreter.start(buffers, clock).map_err(other)?;
                }
                Pending::Event(event) => {
                    let again = self.random.random_ratio(1, 8).then(|| event.clone());
                    interpreter.handle(event, clock).map_err(other)?;
                    // Nothing happens twice: the second time must be refused and change nothing.
                    if let Some(event) = again
                        && interpreter.handle(event.clone(), clock).is_ok()
                    {
                        return Err(Failure::Other(format!("{event:?} was taken in twice")));
                    }
                }
            }
            let mut over = false;
            while let Some(effect) = interpreter.poll() {
                over |= matches!(effect, Effect::Completed(_));
                self.effect(place, effect)?;
            }
            if over {
                let mut buffers = interpreter.reset();
                for (number, lent) in self.lent.remove(&place).unwrap_or_default() {
                    buffers[number] = std::mem::take(&mut lent.bytes());
                }
                self.outcomes[round].buffers[rank] = buffers;
                self.idle[rank].push(interpreter);
                self.finished += 1;
            } else {
                self.running.insert(place, interpreter);
            }
        }
        if self.finished < self.inputs.len() * self.program.len() {
            return Err(Failure::Stuck(self.waiting()));
        }
        if !self.held.is_empty() {
            return Err(Failure::Other(format!(
                "{} messages held back were never released",
                self.held.len()
            )));
        }
        Ok(())
    }

    /// The buffers of a run, but for some that lie elsewhere and are lent to it.
    fn lend(
        &mut self,
        place: Place,
        interpreter: &mut Interpreter,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let (round, rank) = place;
        let mut buffers = self.inputs[round][rank].clone();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            if interpreter.can_be_lent(number) && self.random.random() {
                let lent = Elsewhere(Arc::new(Mutex::new(std::mem::take(buffer))));
                interpreter.lend(number, Box::new(lent.clone())).map_err(other)?;
                self.lent.entry(place).or_default().push((number, lent));
            }
        }
        Ok(buffers)
    }

    fn interpreter(&mut self, place: Place) -> Result<Interpreter, Failure> {
        if let Some(interpreter) = self.running.remove(&place).or_else(|| self.idle[place.1].pop())
        {
            return Ok(interpreter);
        }
        Interpreter::new(self.schedules[place.1].clone(), self.limits).map_err(other)
    }

    fn effect(&mut self, place: Place, effect: Effect) -> Result<(), Failure> {
        let (round, rank) = place;
        let source = rank as u32;
        match effect {
            Effect::Transmit { peer, packet } => {
                self.pending.push((
                    (round, peer as usize),
                    Pending::Event(Event::Packet { source, packet }),
                ));
            }
            Effect::HoldBack { source, tag, ordinal, payload } => {
                if self.held.insert((place, source, tag, ordinal), payload).is_some() {
                    return Err(Failure::Other("a message was held back twice".into()));
                }
            }
            Effect::Release { source, tag, ordinal, receive } => {
                let payload = self.held.remove(&(place, source, tag, ordinal));
                let payload = payload
                    .ok_or(Failure::Other("a message was released that is not held".into()))?;
                let packet = Packet::Data { receive, payload };
                self.pending.push((place, Pending::Event(Event::Packet { source, packet })));
            }
            Effect::Calc { operation, .. } => {
                self.pending.push((place, Pending::Event(Event::CalcFinished { operation })));
            }
            Effect::Join { operation, ordinal, mode, contribution } => {
                let meeting = self.meetings.entry((round, ordinal)).or_default();
                meeting.contributions.insert(source, contribution);
                meeting.waiting.push((place, operation, mode));
                self.meet(round, ordinal)?;
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
                    self.pending.push(((round + 1, rank), Pending::Start));
                }
            }
        }
        Ok(())
    }

    /// Finishes the join of every rank that needs to wait no longer.
    fn meet(&mut self, round: usize, ordinal: u32) -> Result<(), Failure> {
        let ranks = self.program.len();
        let Some(meeting) = self.meetings.get_mut(&(round, ordinal)) else { return Ok(()) };
        let complete = meeting.contributions.len() == ranks;
        // The contributions of ranks that are not there yet count for nothing where the root's is
        // all that matters.
        let all: Vec<&[u8]> = (0..ranks as u32)
            .map(|rank| meeting.contributions.get(&rank).map_or(&[][..], Vec::as_slice))
            .collect();
        let ready = |mode: JoinMode| match mode {
            JoinMode::Broadcast { root } => meeting.contributions.contains_key(&root),
            _ => complete,
        };
        let (now, later): (Vec<_>, Vec<_>) =
            meeting.waiting.drain(..).partition(|(_, _, mode)| ready(*mode));
        for (place, operation, mode) in now {
            let joined = join::combine(mode, place.1 as u32, &all).map_err(other)?;
            let (result, divided_by_zero) = (joined.bytes, joined.divided_by_zero);
            let event = Event::JoinFinished { operation, result, divided_by_zero };
            self.pending.push((place, Pending::Event(event)));
        }
        meeting.waiting = later;
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
