//! Collectives that some ranks execute here and others in another library.

use super::errors;
use std::time::Duration;
use tradewind::graph::{Access, Graph};
use tradewind::{Buffers, Communicator, Result, interop};

testing::tests![
    a_collective_that_a_rank_runs_in_another_library_is_told,
    a_rank_that_only_receives_is_told_of_another_library,
    a_rank_that_waits_in_a_later_step_is_told_of_another_library,
];

fn a_collective_that_a_rank_runs_in_another_library_is_told() {
    let body = |world: &Communicator, is_blocking: bool| {
        // What all ranks run there is no fault, and their numbers stay the same.
        for _ in 0..20 {
            interop::record_external_collective(world);
            world.barrier()?;
            interop::check_external_collectives(world)?;
        }
        if world.rank() == 0 {
            interop::record_external_collective(world);
            // The thread itself may wait in the other library.
            let mut checks = std::iter::repeat_with(|| interop::check_external_collectives(world));
            let error = checks.find_map(std::result::Result::err).expect("others have sent");
            let again = interop::check_external_collectives(world).expect_err("it stays");
            assert_eq!(again.to_string(), error.to_string());
            return Err(error);
        }
        if is_blocking { world.barrier() } else { world.ibarrier()?.wait() }
    };
    for nodes in [&[1, 1][..], &[2, 1]] {
        for is_blocking in [false, true] {
            for (rank, error) in errors(nodes, |world| body(world, is_blocking)).iter().enumerate()
            {
                let error = error.as_ref().expect("all have an error");
                assert!(
                    matches!(error, tradewind::Error::Mismatch { sequence: 40, .. }),
                    "{error}"
                );
                let text = error.to_string();
                let said = "rank 0 is in a collective of another library #40";
                assert!(rank > 0 || text.contains(said), "{text}");
            }
        }
    }
}

fn a_rank_that_only_receives_is_told_of_another_library() {
    let body = |world: &Communicator, is_blocking: bool| {
        world.barrier()?;
        if world.rank() == 0 {
            interop::record_external_collective(world);
            let mut checks = std::iter::repeat_with(|| interop::check_external_collectives(world));
            return Err(checks.find_map(std::result::Result::err).expect("another rank waits"));
        }
        let mut received = vec![0u8; 9];
        match is_blocking {
            true => world.bcast(&mut received, 0),
            false => world.ibcast(&mut received, 0)?.wait(),
        }
    };
    for nodes in [&[1, 1][..], &[2, 2]] {
        for is_blocking in [false, true] {
            for error in errors(nodes, |world| body(world, is_blocking)) {
                let text = error.expect("all have an error").to_string();
                let said = "rank 0 is in a collective of another library #1";
                assert!(text.contains(said), "{text}");
            }
        }
    }
}

/// Rank 2 receives from rank 0, then from rank 1, which runs the collective elsewhere. When it has
/// waited long for rank 0, the sign of its wait goes to that rank alone.
fn a_rank_that_waits_in_a_later_step_is_told_of_another_library() {
    /// Longer than a run waits before it announces that.
    const LONG: Duration = Duration::from_secs(2);
    const LIMIT: Duration = Duration::from_secs(60);
    let body = |world: &Communicator| {
        let rank = world.rank();
        let mut graph = Graph::new(rank, 3);
        if rank < 2 {
            let block = graph.buffer(Access::Input, 1);
            graph.send(block, 2, 0);
        } else {
            let blocks = [(); 2].map(|()| graph.buffer(Access::Output, 1));
            let first = graph.receive(blocks[0], 0, 0);
            let second = graph.receive(blocks[1], 1, 0);
            graph.requires(second, first);
        }
        let schedule = world.compile(&graph)?;
        match rank {
            0 => {
                world.recv(&mut [0u8], 2, 7)?;
                schedule.run(Buffers::new().input(&[1u8]))?.wait()?;
            }
            1 => {
                interop::record_external_collective(world);
                let mut checks =
                    std::iter::repeat_with(|| interop::check_external_collectives(world));
                return Err(checks.find_map(Result::err).expect("rank 2 waits"));
            }
            _ => {
                let (mut first, mut second) = ([0u8], [0u8]);
                let buffers = Buffers::new().output(&mut first).output(&mut second);
                let mut request = schedule.run(buffers)?;
                let error = request.wait_timeout(LONG).expect_err("rank 0 waits for a message");
                assert!(error.is_timeout(), "{error}");
                world.send(&[1u8], 0, 7)?;
                request.wait_timeout(LIMIT)?;
            }
        }
        Ok(())
    };
    let said = errors(&[1, 1, 1], body);
    for rank in [1, 2] {
        let error = said[rank].as_ref().expect("both have an error");
        assert!(matches!(error, tradewind::Error::Mismatch { .. }), "{error}");
    }
}
