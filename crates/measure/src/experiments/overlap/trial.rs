//! A collective ready to be started again and again: its communicator, its private buffers, and
//! the expected results.

use super::collective::Collective;
use super::experiment::Progress;
use super::plan::Case;
use crate::harness::Error;
use models::machine_file::Engine;
use tradewind::graph::Graph;
use tradewind::{CallForm, Communicator, Neighbors, Op, Request};

/// A broadcast goes through so many roots at most.
const MOST_ROOTS: u32 = 8;

/// A collective of one size.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) collective: Collective,
    pub(super) bytes: u64,
    pub(super) algorithm: &'static str,
    /// The engine that runs it: that of the last run.
    pub(super) engine: Engine,
    progress: Progress,
    world: Communicator,
    torus: Neighbors,
    data: Data,
}

/// Private buffers. A broadcast uses the output only.
#[derive(Debug)]
enum Data {
    Nothing,
    Doubles { input: Vec<f64>, output: Vec<f64> },
    Bytes { input: Vec<u8>, output: Vec<u8> },
}

/// A started collective, whatever its buffers.
pub(super) enum UnderWay<'a> {
    NoBuffer(Request<'static>),
    OneBuffer(Request<'a>),
    TwoBuffers(Request<'a, ((), ())>),
    /// Not started: it is a blocking call.
    Later(&'a mut Trial, u32),
}

impl UnderWay<'_> {
    /// Returns true if it is complete; does nothing for it.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        match self {
            UnderWay::NoBuffer(request) => request.is_complete(),
            UnderWay::OneBuffer(request) => request.is_complete(),
            UnderWay::TwoBuffers(request) => request.is_complete(),
            UnderWay::Later(..) => false,
        }
    }

    /// Waits until the result is in its buffer.
    #[inline]
    pub(super) fn wait(self) -> Result<(), Error> {
        match self {
            UnderWay::NoBuffer(request) => request.wait()?,
            UnderWay::OneBuffer(request) => request.wait()?,
            UnderWay::TwoBuffers(request) => {
                request.wait()?;
            }
            UnderWay::Later(trial, repetition) => trial.call(repetition)?,
        }
        Ok(())
    }

    /// The engine that runs it; none before it is started.
    fn engine(&self) -> Option<&'static str> {
        match self {
            UnderWay::NoBuffer(request) => Some(request.engine()),
            UnderWay::OneBuffer(request) => Some(request.engine()),
            UnderWay::TwoBuffers(request) => Some(request.engine()),
            UnderWay::Later(..) => None,
        }
    }
}

impl Trial {
    /// All ranks call this.
    pub(super) fn new(
        world: &Communicator,
        progress: Progress,
        case: &Case,
    ) -> Result<Self, Error> {
        let collective = case.collective;
        let bytes = case.bytes;
        let (world, algorithm) = collective.with_algorithm(world, progress, bytes);
        let extents = tradewind::balanced_dimensions(world.size(), 2);
        let torus = world.cartesian(&extents.map_err(tradewind::Error::from)?, &[true, true])?;
        let blocks = match collective {
            Collective::Alltoall => u64::from(world.size()),
            Collective::Neighbor => torus.destinations().len() as u64,
            _ => 1,
        };
        let data = match collective {
            Collective::Barrier => Data::Nothing,
            Collective::Allreduce => {
                let doubles = bytes / size_of::<f64>() as u64;
                Data::Doubles { input: zeroed(doubles)?, output: zeroed(doubles)? }
            }
            Collective::Bcast => Data::Bytes { input: Vec::new(), output: zeroed(bytes)? },
            Collective::Alltoall | Collective::Neighbor => {
                Data::Bytes { input: zeroed(bytes * blocks)?, output: zeroed(bytes * blocks)? }
            }
        };
        let nothing = world.compile(&Graph::new(world.rank(), world.size()))?;
        let engine = nothing.engine(CallForm::Blocking).parse()?;
        Ok(Trial { collective, bytes, algorithm, engine, progress, world, torus, data })
    }

    /// Number of roots in turn.
    pub(super) fn roots(&self) -> u32 {
        if self.collective == Collective::Bcast { self.world.size().min(MOST_ROOTS) } else { 1 }
    }

    /// Starts it, in repetition `repetition`, which determines the root.
    #[inline]
    pub(super) fn start(&mut self, repetition: u32) -> Result<UnderWay<'_>, Error> {
        if self.progress == Progress::InCalls {
            return Ok(UnderWay::Later(self, repetition));
        }
        let world = &self.world;
        let root = repetition % self.roots();
        let request = match (self.collective, &mut self.data) {
            (Collective::Bcast, Data::Bytes { output, .. }) => {
                UnderWay::OneBuffer(world.ibcast(output, root)?)
            }
            (Collective::Neighbor, Data::Bytes { input, output }) => {
                UnderWay::TwoBuffers(self.torus.ineighbor_alltoall(&*input, output)?)
            }
            (_, Data::Nothing) => UnderWay::NoBuffer(world.ibarrier()?),
            (_, Data::Doubles { input, output }) => {
                UnderWay::TwoBuffers(world.iallreduce(&*input, output, Op::Sum)?)
            }
            (_, Data::Bytes { input, output }) => {
                UnderWay::TwoBuffers(world.ialltoall(&*input, output)?)
            }
        };
        Ok(request)
    }

    /// The blocking call, in repetition `repetition`.
    fn call(&mut self, repetition: u32) -> Result<(), Error> {
        let world = &self.world;
        let root = repetition % self.roots();
        match (self.collective, &mut self.data) {
            (Collective::Bcast, Data::Bytes { output, .. }) => world.bcast(output, root)?,
            (Collective::Neighbor, Data::Bytes { input, output }) => {
                self.torus.neighbor_alltoall(&*input, output)?;
            }
            (_, Data::Nothing) => world.barrier()?,
            (_, Data::Doubles { input, output }) => world.allreduce(&*input, output, Op::Sum)?,
            (_, Data::Bytes { input, output }) => world.alltoall(&*input, output)?,
        }
        Ok(())
    }

    /// Runs it once on data that identify their origin, and checks every byte received.
    /// Afterwards the buffers still hold such data.
    pub(super) fn verify(&mut self, repetition: u32, salt: u64) -> Result<(), Error> {
        self.fill(repetition, salt);
        let under_way = self.start(repetition)?;
        let engine = under_way.engine();
        under_way.wait()?;
        if let Some(engine) = engine {
            self.engine = engine.parse()?;
        }
        match self.first_wrong(repetition, salt) {
            None => Ok(()),
            Some(at) => {
                let call = format!("{} of {} bytes", self.collective, self.bytes);
                let what = format!("{call}, first at byte {at}");
                Err(Error::WrongData { rank: self.world.rank(), what })
            }
        }
    }

    fn is_root(&self, repetition: u32) -> bool {
        self.world.rank() == repetition % self.roots()
    }

    /// Inputs that contain the rank and the place; outputs that are wrong at every place.
    fn fill(&mut self, repetition: u32, salt: u64) {
        let rank = self.world.rank();
        let is_sent = self.collective == Collective::Bcast && self.is_root(repetition);
        let wrong: Vec<u8> = match &self.data {
            Data::Bytes { output, .. } => {
                (0..output.len()).map(|at| !self.expected_byte(repetition, at, salt)).collect()
            }
            _ => Vec::new(),
        };
        match &mut self.data {
            Data::Nothing => {}
            Data::Doubles { input, output } => {
                input
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, value)| *value = double_of(rank, at, salt));
                output.fill(-1.0);
            }
            Data::Bytes { input, output } => {
                input
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, value)| *value = byte_of(rank, at, salt));
                output.copy_from_slice(&wrong);
                if is_sent {
                    output.iter_mut().for_each(|value| *value = !*value);
                }
            }
        }
    }

    /// The first byte of the output that is not what it should be.
    fn first_wrong(&self, repetition: u32, salt: u64) -> Option<usize> {
        match &self.data {
            Data::Nothing => None,
            Data::Doubles { output, .. } => {
                let sum =
                    |at| (0..self.world.size()).map(|rank| double_of(rank, at, salt)).sum::<f64>();
                let wrong = output.iter().enumerate().position(|(at, value)| *value != sum(at));
                wrong.map(|at| at * size_of::<f64>())
            }
            Data::Bytes { output, .. } => {
                let wrong =
                    |(at, value): (usize, &u8)| *value != self.expected_byte(repetition, at, salt);
                output.iter().enumerate().position(wrong)
            }
        }
    }

    /// Byte `at` of the output.
    fn expected_byte(&self, repetition: u32, at: usize, salt: u64) -> u8 {
        let bytes = self.bytes as usize;
        let block = at / bytes;
        let within = at % bytes;
        match self.collective {
            Collective::Bcast => byte_of(repetition % self.roots(), at, salt),
            Collective::Neighbor => {
                // What comes from the negative side of a dimension was sent in the positive
                // direction.
                let source = self.torus.sources()[block].unwrap_or(u32::MAX);
                byte_of(source, (block ^ 1) * bytes + within, salt)
            }
            _ => byte_of(block as u32, self.world.rank() as usize * bytes + within, salt),
        }
    }
}

/// Zeros; an error, not an end, where there is no memory for them.
fn zeroed<T: Copy + Default>(count: u64) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    let reserved = usize::try_from(count)
        .ok()
        .and_then(|count| values.try_reserve_exact(count).ok().map(|()| count));
    let expected = "less, or fewer ranks: this process has no memory for it";
    let found = || format!("{count} elements");
    let count = reserved.ok_or_else(|| Error::Argument {
        what: "the length of a buffer",
        found: found(),
        expected,
    })?;
    values.resize(count, T::default());
    Ok(values)
}

/// Byte `at` of this rank's input.
fn byte_of(rank: u32, at: usize, salt: u64) -> u8 {
    let place = (u64::from(rank) << 40 ^ at as u64).wrapping_add(salt);
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Double `at` of this rank's input: a whole number, so that sums in any order are the same.
fn double_of(rank: u32, at: usize, salt: u64) -> f64 {
    f64::from(rank + 1) * (at % 1000 + 1) as f64 + (salt % 1000) as f64
}
