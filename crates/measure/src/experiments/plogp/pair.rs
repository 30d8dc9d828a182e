//! Two ranks of a job as a [`Transport`]: rank 0 leads, the other follows.

use super::patterns::{self, FIRST, ROOM, STAMPS};
use super::transport::{Lap, Reading, Transport};
use crate::harness::Error;
use models::statistics::median;
use tradewind::{Buffers, Communicator, Schedule, SharedBuffer};

/// Runs of a schedule in a round, and the number of those at the end that count; the middle one of
/// these, so that an interrupt does not.
///
/// A schedule's frames are taken in turn, up to 16 of them. Programs call the same collective again
/// and again, and find its frames in their caches; so they are all used before runs count.
const fn runs(bytes: u64) -> (usize, usize) {
    /// From here on the data take longer to come than the frames, and long enough.
    const LONG: u64 = 64 << 10;
    if bytes < LONG { (25, 9) } else { (7, 5) }
}

/// The work that the leader assigns to the other rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Add(u64),
    Round,
    End,
}

impl Order {
    fn words(self) -> [u64; 2] {
        match self {
            Order::Add(bytes) => [1, bytes],
            Order::Round => [2, 0],
            Order::End => [0, 0],
        }
    }

    fn of([kind, bytes]: [u64; 2]) -> Self {
        match kind {
            1 => Order::Add(bytes),
            2 => Order::Round,
            _ => Order::End,
        }
    }
}

/// Two ranks, the schedules of every size, and the memory that messages come from and go to.
pub(super) struct Pair<'w> {
    world: &'w Communicator,
    sizes: Vec<SizeSchedules>,
    /// Away while a schedule runs.
    room: Option<SharedBuffer<u8>>,
}

/// The schedules of one size.
struct SizeSchedules {
    bytes: u64,
    round_trips: (u32, Schedule),
    stream: (u32, Schedule),
    overheads: (u32, Schedule),
}

impl<'w> Pair<'w> {
    /// Both ranks call this.
    pub(super) fn new(world: &'w Communicator) -> Result<Self, Error> {
        if world.size() != 2 {
            return Err(Error::Impossible {
                what: format!(
                    "the parameters of a pair cannot be measured by {} ranks",
                    world.size()
                ),
                way_out: "start the job with 2".to_owned(),
            });
        }
        let mut room = world.alloc::<u8>(ROOM as usize)?;
        // Its pages are touched before anything is measured.
        room.fill(1);
        Ok(Pair { world, sizes: Vec::new(), room: Some(room) })
    }

    /// Does what rank 0 wants until it wants no more.
    pub(super) fn follow(mut self) -> Result<(), Error> {
        loop {
            let mut words = Order::End.words();
            self.world.bcast(&mut words, FIRST)?;
            match Order::of(words) {
                Order::Add(bytes) => self.compile(bytes)?,
                Order::Round => self.run_all().map(|_| ())?,
                Order::End => return Ok(()),
            }
        }
    }

    /// Lets the other rank go.
    pub(super) fn end(self) -> Result<(), Error> {
        self.order(Order::End)
    }

    fn order(&self, order: Order) -> Result<(), Error> {
        Ok(self.world.bcast(&mut order.words(), FIRST)?)
    }

    fn compile(&mut self, bytes: u64) -> Result<(), Error> {
        let rank = self.world.rank();
        // As many messages as take some microseconds, while they are short; few long ones, which
        // take long enough.
        let few = |most: u64, memory: u64| (memory / bytes.max(1)).clamp(1, most) as u32;
        let (trips, messages, calls) =
            (few(16, 64 << 10), few(32, 256 << 10).max(2), few(16, 512 << 10).max(2));
        let world = self.world;
        let size = SizeSchedules {
            bytes,
            round_trips: (trips, world.compile(&patterns::round_trips(rank, bytes, trips))?),
            stream: (messages, world.compile(&patterns::stream(rank, bytes, messages))?),
            overheads: (calls, world.compile(&patterns::overheads(rank, bytes, calls))?),
        };
        self.sizes.push(size);
        Ok(())
    }

    /// Runs a schedule and gives the times between its stamps, in microseconds.
    fn run(
        room: &mut Option<SharedBuffer<u8>>,
        schedule: &Schedule,
    ) -> Result<[f64; STAMPS - 1], Error> {
        let mut stamps = [0u64; STAMPS];
        let Some(data) = room.take() else {
            unreachable!("every run puts it back, or ends all of it")
        };
        let request = schedule.run(Buffers::new().shared(data).output(&mut stamps))?;
        *room = request.wait()?.pop();
        Ok(std::array::from_fn(|number| {
            stamps[number + 1].wrapping_sub(stamps[number]).cast_signed() as f64 * 1e-3
        }))
    }

    /// Runs a schedule again and again and gives the medians of the times between its stamps.
    fn laps(
        room: &mut Option<SharedBuffer<u8>>,
        bytes: u64,
        schedule: &Schedule,
    ) -> Result<[f64; STAMPS - 1], Error> {
        let (all, counted) = runs(bytes);
        let mut times = [const { Vec::new() }; STAMPS - 1];
        for run in 0..all {
            let between = Self::run(room, schedule)?;
            if run + counted >= all {
                times.iter_mut().zip(between).for_each(|(times, time)| times.push(time));
            }
        }
        Ok(times.map(|times| median(&times)))
    }

    fn run_all(&mut self) -> Result<Vec<Reading>, Error> {
        let mut readings = Vec::with_capacity(self.sizes.len());
        for size in &self.sizes {
            let [trips, ..] = Self::laps(&mut self.room, size.bytes, &size.round_trips.1)?;
            let [stream, ..] = Self::laps(&mut self.room, size.bytes, &size.stream.1)?;
            let [nothing, sends, _, receives, ..] =
                Self::laps(&mut self.room, size.bytes, &size.overheads.1)?;
            let lap = |count, microseconds| Lap { count, microseconds };
            readings.push(Reading {
                bytes: size.bytes,
                nothing,
                round_trips: lap(size.round_trips.0, trips),
                stream: lap(size.stream.0, stream),
                sends: lap(size.overheads.0, sends),
                receives: lap(size.overheads.0, receives),
            });
        }
        Ok(readings)
    }
}

impl Transport for Pair<'_> {
    type Error = Error;

    fn add(&mut self, bytes: u64) -> Result<(), Error> {
        self.order(Order::Add(bytes))?;
        self.compile(bytes)
    }

    fn round(&mut self) -> Result<Vec<Reading>, Error> {
        self.order(Order::Round)?;
        self.run_all()
    }
}
