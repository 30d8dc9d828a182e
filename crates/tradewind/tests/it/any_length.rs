//! Preparations for buffers of any length.

use crate::job_kinds::KINDS;
use tradewind::{Algorithms, Collective, Communicator, Error, Op, Result};

testing::tests![every_algorithm_refuses_or_prepares_any_length];

/// Lengths up to those whose bytes 64 bits cannot count. A preparation that takes no memory, such as
/// that of a flat collective, may succeed.
fn every_algorithm_refuses_or_prepares_any_length() {
    let longest = usize::MAX / size_of::<u64>();
    for (kind, ranks) in KINDS.iter().flat_map(|kind| [1, 3].map(|ranks| (kind, ranks))) {
        kind.run(ranks, |world| {
            for collective in Collective::ALL {
                for algorithm in collective.algorithms() {
                    let chosen = Algorithms::default().with(*collective, *algorithm);
                    let world = world.with_algorithms(chosen.expect("it is one of its algorithms"));
                    for count in [longest, longest - 8, longest / 2, longest / 3, 1 << 40] {
                        let outcome = prepare(&world, *collective, count);
                        let differs = matches!(outcome, Err(Error::Mismatch { .. }));
                        assert!(!differs, "{collective} {algorithm:?} {count}: {outcome:?}");
                    }
                    world.barrier()?;
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
    }
}

fn prepare(world: &Communicator, collective: Collective, count: usize) -> Result<()> {
    match collective {
        Collective::Barrier => world.barrier_init().map(drop),
        Collective::Bcast => world.bcast_init::<u64>(count, 0).map(drop),
        Collective::Scatter => world.scatter_init::<u64>(count, 0).map(drop),
        Collective::Gather => world.gather_init::<u64>(count, 0).map(drop),
        Collective::Allgather => world.allgather_init::<u64>(count).map(drop),
        Collective::Alltoall => world.alltoall_init::<u64>(count).map(drop),
        Collective::Reduce => world.reduce_init::<u64>(count, Op::Sum, 0).map(drop),
        Collective::Allreduce => world.allreduce_init::<u64>(count, Op::Sum).map(drop),
        Collective::ReduceScatter => {
            world.reduce_scatter_block_init::<u64>(count, Op::Sum).map(drop)
        }
        Collective::Scan => world.scan_init::<u64>(count, Op::Sum).map(drop),
        Collective::Exscan => world.exscan_init::<u64>(count, Op::Sum).map(drop),
    }
}
