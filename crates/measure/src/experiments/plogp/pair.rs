//! Two ranks of a job as a [`Transport`]. Times are those of rank 0.

use super::found::rows_of;
use super::lone_message::{Executor, LoneMessage};
use super::patterns::{self, FIRST, LONGEST_BUFFER, TIMESTAMPS};
use super::starts;
use super::transport::{Lap, Reading, RoundsPlan, Transport, rounds_of, times_of};
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::timer::Batches;
use crate::harness::{Error, StepContext, agreement};
use crate::rows::{Row, What};
use models::machine_file::Engine;
use models::statistics::median;
use tradewind::graph::Graph;
use tradewind::{Buffers, CallForm, Communicator, Schedule, SharedBuffer};

/// Runs of a schedule in a round, and the number of those at the end that count; the middle one of
/// these, so that an interrupt does not.
///
/// A schedule's frames are taken in turn, up to 16 of them. Programs call the same collective again
/// and again, and find its frames in their caches; so they are all used before runs count.
const fn runs(bytes: u64, on_one_node: bool) -> (usize, usize) {
    /// From here on the data take longer to come than the frames, and long enough.
    const LONG: u64 = 64 << 10;
    match (on_one_node, bytes < LONG) {
        (true, true) => (25, 9),
        (true, false) | (false, true) => (7, 5),
        (false, false) => (4, 3),
    }
}

/// Extent of a measurement of messages, and of what is measured beside them.
#[derive(Clone)]
pub(super) struct Extent {
    pub(super) plan: RoundsPlan,
    pub(super) batches: Batches,
    /// Sizes of direct exchanges.
    pub(super) exchanges: &'static [u64],
    pub(super) combinations: usize,
    pub(super) attempts: u32,
}

/// The engine of calls of a form. Both ranks call this.
pub(super) fn engine_of_calls(world: &Communicator, form: CallForm) -> Result<Engine, Error> {
    let schedule = world.compile(&patterns::bare_round_trip((world.rank(), world.size()), 0))?;
    Ok(schedule.engine(form).parse()?)
}

/// Rows of the messages of rounds, and of the runs that their costs are told apart from. Both ranks
/// call this.
pub(super) fn rows(
    here: &StepContext<'_>,
    (form, engine): (CallForm, Engine),
    clocks: (Clock, OverheadsBy),
    Extent { plan, batches, .. }: &Extent,
) -> Result<Vec<Row>, Error> {
    let mut pair = Pair::new(here.world, form, engine, clocks)?;
    let rounds = times_of(&rounds_of(&mut pair, plan)?);
    let mut rows = rows_of(&rounds, |quantity, bytes, times| {
        here.row(What::Linked, quantity, times.to_vec()).sized(bytes)
    });
    rows.extend(starts::round_trips(here, form, *batches)?);
    Ok(rows.into_iter().map(|row| row.by(engine, form, None)).collect())
}

/// Two ranks, the schedules of every size, and the memory that messages come from and go to.
struct Pair<'w> {
    world: &'w Communicator,
    form: CallForm,
    /// The engine that is measured; sizes that it does not take are left out.
    engine: Engine,
    /// Resolution of the clock inside a run. The engines of the node service and of blocking calls
    /// read it once for everything that has become due, which between ranks of one node is all of a
    /// run.
    clock: Clock,
    overheads_by: OverheadsBy,
    sizes: Vec<SizeSchedules>,
    memory: MessageMemory,
}

/// Way to measure overheads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverheadsBy {
    /// Clock readings that are operations of the schedule.
    Timestamps,
    /// Processor time of runs with a single message.
    LoneMessages(Executor),
    /// None: the processor time of the executor is not separate from that of others.
    None,
}

/// Clock by which messages are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Readings that are operations of the schedule.
    Inside,
    /// Readings around runs: a run with many messages beyond one with a single one.
    Around,
}

/// Memory of the messages.
enum MessageMemory {
    /// Of the segment, used in place; away while a schedule runs.
    Shared(Option<SharedBuffer<u8>>),
    /// Private, copied for each run: its copies lie before the first reading of the clock.
    Private(Vec<u8>),
}

/// The schedules of one size.
struct SizeSchedules {
    bytes: u64,
    round_trips: Repeated,
    /// One round trip.
    single: Repeated,
    stream: Repeated,
    overheads: Overheads,
}

/// Method by which the overheads of one size are measured.
enum Overheads {
    Timestamps(Repeated),
    LoneMessage(LoneMessage, Executor),
    /// They have no meaning at this size.
    None,
}

/// A schedule with its number of messages, and the bytes of its buffer.
struct Repeated {
    count: u32,
    length: usize,
    schedule: Schedule,
}

impl<'w> Pair<'w> {
    fn new(
        world: &'w Communicator,
        form: CallForm,
        engine: Engine,
        (clock, overheads_by): (Clock, OverheadsBy),
    ) -> Result<Self, Error> {
        let memory = if engine.is_between_nodes() {
            MessageMemory::Private(vec![1; LONGEST_BUFFER as usize])
        } else {
            let mut data = world.alloc::<u8>(LONGEST_BUFFER as usize)?;
            // Its pages are touched before anything is measured.
            data.fill(1);
            MessageMemory::Shared(Some(data))
        };
        Ok(Pair { world, form, engine, clock, overheads_by, sizes: Vec::new(), memory })
    }

    /// The time around nothing, and of sends and receives; of no message where they have no meaning.
    fn overheads(
        world: &Communicator,
        memory: &mut MessageMemory,
        form: CallForm,
        SizeSchedules { bytes, overheads, .. }: &SizeSchedules,
    ) -> Result<(f64, [Lap; 2]), Error> {
        match (overheads, memory) {
            (Overheads::Timestamps(timestamps), memory) => {
                let [nothing, sends, _, receives, ..] =
                    Self::laps(memory, form, *bytes, timestamps)?;
                let laps = [sends, receives]
                    .map(|microseconds| Lap { count: timestamps.count, microseconds });
                Ok((nothing, laps))
            }
            (Overheads::LoneMessage(message, executor), MessageMemory::Private(memory)) => {
                let times = message.round(world, *executor, memory)?;
                Ok((0.0, times.map(|microseconds| Lap { count: 1, microseconds })))
            }
            _ => Ok((0.0, [Lap::default(); 2])),
        }
    }

    /// Runs a schedule. Returns the times between its timestamps, and behind them the time of the
    /// whole run, in microseconds.
    fn run(
        memory: &mut MessageMemory,
        form: CallForm,
        Repeated { length, schedule, .. }: &Repeated,
    ) -> Result<[f64; TIMESTAMPS], Error> {
        let mut timestamps = [0u64; TIMESTAMPS];
        let buffers = match memory {
            MessageMemory::Private(memory) => Buffers::new().inout(&mut memory[..*length]),
            MessageMemory::Shared(data) => {
                let Some(data) = data.take() else {
                    unreachable!("every run puts it back, or ends all of it")
                };
                Buffers::new().shared(data)
            }
        };
        let buffers = buffers.output(&mut timestamps);
        let begin = now_ns();
        let mut back = match form {
            CallForm::Blocking => schedule.call(buffers)?,
            CallForm::Nonblocking => schedule.run(buffers)?.wait()?,
        };
        let whole = microseconds(begin, now_ns());
        if let MessageMemory::Shared(data) = memory {
            *data = back.pop();
        }
        Ok(std::array::from_fn(|number| match timestamps.get(number + 1) {
            Some(next) => next.wrapping_sub(timestamps[number]).cast_signed() as f64 * 1e-3,
            None => whole,
        }))
    }

    /// Runs a schedule repeatedly and returns the medians of the times between its timestamps.
    fn laps(
        memory: &mut MessageMemory,
        form: CallForm,
        bytes: u64,
        schedule: &Repeated,
    ) -> Result<[f64; TIMESTAMPS], Error> {
        let (all, counted) = runs(bytes, matches!(memory, MessageMemory::Shared(_)));
        let mut times = [const { Vec::new() }; TIMESTAMPS];
        for run in 0..all {
            let between = Self::run(memory, form, schedule)?;
            if run + counted >= all {
                times.iter_mut().zip(between).for_each(|(times, time)| times.push(time));
            }
        }
        Ok(times.map(|times| median(&times)))
    }

    /// Times of the round trips and of the stream of a size.
    fn messages(&mut self, place: usize) -> Result<[f64; 2], Error> {
        let SizeSchedules { bytes, round_trips, single, stream, .. } = &self.sizes[place];
        let mut laps = |schedule| Self::laps(&mut self.memory, self.form, *bytes, schedule);
        let [trips, .., trips_run] = laps(round_trips)?;
        let [messages, .., stream_run] = laps(stream)?;
        if self.clock == Clock::Inside {
            return Ok([trips, messages]);
        }
        let [.., single_run] = laps(single)?;
        let more = f64::from(round_trips.count.max(2) - 1);
        let trip = if round_trips.count > 1 {
            ((trips_run - single_run) / more).max(0.0)
        } else {
            // Messages so long that a run beside them is little.
            trips_run
        };
        let messages = stream_run - (single_run - trip).max(0.0);
        Ok([trip * f64::from(round_trips.count), messages.max(0.0)])
    }
}

impl Transport for Pair<'_> {
    type Error = Error;

    fn add(&mut self, bytes: u64) -> Result<(), Error> {
        let rank = (self.world.rank(), self.world.size());
        // As many messages as take some microseconds, while they are short; few long ones, which
        // take long enough.
        let few = |most: u64, memory: u64| (memory / bytes.max(1)).clamp(1, most) as u32;
        let (trips, messages, calls) =
            (few(16, 64 << 10), few(32, 256 << 10).max(2), few(16, 512 << 10).max(2));
        let repeated = |pattern: fn((u32, u32), u64, (u64, u32)) -> Graph, count| {
            let length = match self.memory {
                MessageMemory::Shared(_) => LONGEST_BUFFER,
                MessageMemory::Private(_) => patterns::buffer_bytes(bytes, count),
            };
            let schedule = self.world.compile(&pattern(rank, length, (bytes, count)))?;
            Ok::<_, Error>(Repeated { count, length: length as usize, schedule })
        };
        let overheads = match self.overheads_by {
            OverheadsBy::Timestamps => Overheads::Timestamps(repeated(patterns::overheads, calls)?),
            OverheadsBy::LoneMessages(executor) => {
                Overheads::LoneMessage(LoneMessage::new(self.world, bytes)?, executor)
            }
            OverheadsBy::None => Overheads::None,
        };
        let mut size = SizeSchedules {
            bytes,
            round_trips: repeated(patterns::round_trips, trips)?,
            single: repeated(patterns::round_trips, 1)?,
            stream: repeated(patterns::stream, messages)?,
            overheads,
        };
        let Pair { form, engine, .. } = *self;
        let is_taken = |one: &Repeated| one.schedule.engine(form) == engine.name();
        let has_overheads = match &size.overheads {
            Overheads::Timestamps(one) => is_taken(one),
            Overheads::LoneMessage(one, _) => one.is_run_by(form, engine),
            Overheads::None => true,
        };
        if has_overheads && is_taken(&size.round_trips) && is_taken(&size.stream) {
            if let (Overheads::LoneMessage(message, executor), MessageMemory::Private(memory)) =
                (&size.overheads, &mut self.memory)
                && !message.is_measurable(self.world, *executor, memory)?
            {
                size.overheads = Overheads::None;
            }
            self.sizes.push(size);
        }
        Ok(())
    }

    fn agree(&self, bytes: Option<u64>) -> Result<Option<u64>, Error> {
        agreement::of_first(self.world, (self.world.rank() == FIRST).then_some(&bytes))
    }

    fn round(&mut self) -> Result<Vec<Reading>, Error> {
        let mut readings = Vec::with_capacity(self.sizes.len());
        for place in 0..self.sizes.len() {
            let [trips, messages] = self.messages(place)?;
            let size = &self.sizes[place];
            let (nothing, [sends, receives]) =
                Self::overheads(self.world, &mut self.memory, self.form, size)?;
            let lap = |count, microseconds| Lap { count, microseconds };
            readings.push(Reading {
                bytes: size.bytes,
                nothing,
                round_trips: lap(size.round_trips.count, trips),
                stream: lap(size.stream.count, messages),
                sends,
                receives,
            });
        }
        Ok(readings)
    }
}
