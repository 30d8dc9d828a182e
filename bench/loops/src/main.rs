//! The loops of `bench/c` over tradewind, one program for all of them: `bench/peers` starts it
//! beside the MPI programs.
//!
//! `loops blocking|overlap|test_cost|messages|threads private|alloc BUDGET-MS SEED SKEW-PERCENT
//! OPERATION:BYTES:COMPUTATION...`

mod batches;
mod blocking;
mod collective;
mod grid;
mod measure;
mod memory;
mod messages;
mod operation;
mod overlap;
mod point_to_point;
mod processor;
mod report;
mod row;
mod test_cost;
mod threads;

use collective::Collective;
use memory::{Memory, Private, Segment};
use operation::{
    Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Barrier, Bcast, Exscan, Gather, Gatherv,
    Neighbor, NeighborGather, Operation, Reduce, ReduceScatter, Scan, Scatter, Scatterv,
};
use report::Options;
use row::{Kind, Row};
use std::process::ExitCode;
use tradewind::{Communicator, Job};

type Failure = Box<dyn std::error::Error>;

/// Kinds of measurement.
#[derive(Clone, Copy)]
enum Program {
    Blocking,
    Overlap,
    TestCost,
    Messages,
    Threads,
}

impl Program {
    fn read(text: &str) -> Result<Self, Failure> {
        match text {
            "blocking" => Ok(Self::Blocking),
            "overlap" => Ok(Self::Overlap),
            "test_cost" => Ok(Self::TestCost),
            "messages" => Ok(Self::Messages),
            "threads" => Ok(Self::Threads),
            other => Err(format!(
                "'{other}' is no program: blocking, overlap, test_cost, messages or threads"
            )
            .into()),
        }
    }

    fn measure_row(
        self,
        world: &Communicator,
        row: Row,
        options: &mut Options,
    ) -> Result<(), Failure> {
        match self {
            Self::Messages => match row.name {
                "pingpong" | "written" | "stream" | "posted" => {
                    point_to_point::measure(world, row, options)
                }
                _ => messages::measure(world, row, options),
            },
            Self::Threads if row.name == "pairs" => point_to_point::measure(world, row, options),
            Self::Threads => threads::measure(world, row, options),
            _ if options.owned => self.measure_collective::<Segment>(world, row, options),
            _ => self.measure_collective::<Private>(world, row, options),
        }
    }

    fn measure<M: Memory, O: Operation<M>>(
        self,
        world: &Communicator,
        row: Row,
        operation: O,
        options: &mut Options,
    ) -> Result<(), Failure> {
        let collective = &mut Collective::<O, M>::open(world, row, operation)?;
        match self {
            Self::Blocking => blocking::measure(collective, options),
            Self::Overlap => overlap::measure(collective, options),
            Self::TestCost => test_cost::measure(collective),
            Self::Messages | Self::Threads => Err("messages are no collective".into()),
        }
    }

    fn measure_collective<M: Memory>(
        self,
        world: &Communicator,
        row: Row,
        options: &mut Options,
    ) -> Result<(), Failure> {
        let counts = || vec![row.bytes / size_of::<f64>(); world.size() as usize];
        match row.kind {
            Kind::Barrier => self.measure::<M, _>(world, row, Barrier, options),
            Kind::Allreduce => self.measure::<M, _>(world, row, Allreduce, options),
            Kind::Alltoall => self.measure::<M, _>(world, row, Alltoall, options),
            Kind::Bcast => self.measure::<M, _>(world, row, Bcast, options),
            Kind::Neighbor => {
                self.measure::<M, _>(world, row, Neighbor(grid::topology(world)?), options)
            }
            Kind::NeighborGather => {
                self.measure::<M, _>(world, row, NeighborGather(grid::topology(world)?), options)
            }
            Kind::Reduce => self.measure::<M, _>(world, row, Reduce, options),
            Kind::Scatter => self.measure::<M, _>(world, row, Scatter, options),
            Kind::Gather => self.measure::<M, _>(world, row, Gather, options),
            Kind::Allgather => self.measure::<M, _>(world, row, Allgather, options),
            Kind::ReduceScatter => self.measure::<M, _>(world, row, ReduceScatter, options),
            Kind::Scan => self.measure::<M, _>(world, row, Scan, options),
            Kind::Exscan => self.measure::<M, _>(world, row, Exscan, options),
            Kind::Alltoallv => self.measure::<M, _>(world, row, Alltoallv(counts()), options),
            Kind::Allgatherv => self.measure::<M, _>(world, row, Allgatherv(counts()), options),
            Kind::Gatherv => self.measure::<M, _>(world, row, Gatherv(counts()), options),
            Kind::Scatterv => self.measure::<M, _>(world, row, Scatterv(counts()), options),
            Kind::Message => {
                Err(format!("{} is no collective: give messages or threads", row.name).into())
            }
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let [program, arguments @ ..] = arguments else {
        return Err("give blocking, overlap, test_cost, messages or threads".into());
    };
    let program = Program::read(program)?;
    let job = Job::init()?;
    let world = job.world();
    let (mut options, rows) = Options::read(arguments, &job)?;
    for text in rows {
        let row = Row::read(text)?;
        program.measure_row(world, row, &mut options)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("loops: {failure}");
            ExitCode::FAILURE
        }
    }
}
