//! The exchange with neighbours on a torus, as a subject of a timer.

use crate::experiments::algorithms::{attend, engine_of_blocking_calls};
use crate::harness::Error;
use crate::harness::timer::{Meanwhile, Subject};
use models::decision::CallForm;
use models::machine_file::Engine;
use tradewind::{Communicator, Neighbors};

/// The exchange of one size on this rank.
pub(super) struct NeighborSubject {
    torus: Neighbors,
    form: CallForm,
    rank: u32,
    bytes: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    engine: &'static str,
}

impl NeighborSubject {
    /// Ranks as a torus of two dimensions. All ranks call this.
    pub(super) fn new(world: &Communicator, form: CallForm, bytes: u64) -> Result<Self, Error> {
        let extents = tradewind::balanced_dimensions(world.size(), 2);
        let torus = world.cartesian(&extents.map_err(tradewind::Error::from)?, &[true, true])?;
        let bytes = bytes as usize;
        let length = bytes * torus.destinations().len();
        let engine = match form {
            CallForm::Blocking => engine_of_blocking_calls(world)?,
            CallForm::Nonblocking => "",
        };
        let input = vec![0; length];
        let output = vec![0; length];
        Ok(NeighborSubject { torus, form, rank: world.rank(), bytes, input, output, engine })
    }

    /// The engine of the last run.
    pub(super) fn engine(&self) -> Result<Engine, Error> {
        Ok(self.engine.parse()?)
    }

    /// Runs once on data that identify their origin, and checks every byte received.
    pub(super) fn verify(&mut self) -> Result<(), Error> {
        let expected: Vec<u8> = (0..self.output.len()).map(|at| self.expected(at)).collect();
        let own = (0..self.input.len()).map(|at| byte_of(self.rank, at));
        self.input.iter_mut().zip(own).for_each(|(byte, own)| *byte = own);
        self.output.iter_mut().zip(&expected).for_each(|(found, right)| *found = !right);
        self.run(0, &mut |_| {})?;
        match self.output.iter().zip(&expected).position(|(found, right)| found != right) {
            None => Ok(()),
            Some(at) => {
                let what = format!("neighbor of {} bytes, first at byte {at}", self.bytes);
                Err(Error::WrongData { rank: self.rank, what })
            }
        }
    }

    /// Byte `at` of the output. What comes from the negative side of a dimension was sent in the
    /// positive direction.
    fn expected(&self, at: usize) -> u8 {
        let block = at / self.bytes;
        let within = at % self.bytes;
        let source = self.torus.sources()[block].unwrap_or(u32::MAX);
        byte_of(source, (block ^ 1) * self.bytes + within)
    }
}

impl Subject for NeighborSubject {
    #[inline]
    fn run(&mut self, _: u32, meanwhile: &mut Meanwhile<'_>) -> Result<(), Error> {
        let input = self.input.as_slice();
        let output = self.output.as_mut_slice();
        match self.form {
            CallForm::Blocking => {
                meanwhile(&|| false);
                self.torus.neighbor_alltoall(input, output)?;
            }
            CallForm::Nonblocking => {
                let request = self.torus.ineighbor_alltoall(input, output)?;
                self.engine = attend(request, meanwhile)?;
            }
        }
        Ok(())
    }
}

/// Byte `at` of a rank's input.
fn byte_of(rank: u32, at: usize) -> u8 {
    let place = u64::from(rank) << 40 ^ at as u64;
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
