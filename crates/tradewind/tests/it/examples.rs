//! The examples run: their logic is called here with ranks that are threads, so that the tests
//! compile and check them.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../examples/broadcast.rs"]
mod broadcast;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/heat.rs"]
mod heat;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../examples/hello.rs"]
mod hello;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../examples/hello_queue.rs"]
mod hello_queue;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../examples/ring_exchange.rs"]
mod ring_exchange;
#[allow(dead_code, reason = "the example's main and its printing are not called")]
#[path = "../../examples/tree_gather.rs"]
mod tree_gather;

use tradewind::{EngineKind, local, local_nodes, local_with};

testing::tests![
    hello_adds_up,
    every_rank_receives_from_all_nodes,
    every_rank_has_the_bytes_of_the_broadcast,
    a_value_is_passed_around_all_ranks,
    heat_equals_the_serial_solution,
    a_plate_that_is_too_small_is_refused,
    what_is_gathered_is_what_was_given,
];

fn hello_adds_up() {
    local(4, |world| {
        let expected = format!("hello from rank {} of 4: together we are 10", world.rank());
        assert_eq!(hello::greet(&world)?, expected);
        Ok(())
    })
    .expect("four ranks greet");
}

fn every_rank_receives_from_all_nodes() {
    local_nodes(&[2, 1], |world| {
        let expected =
            format!("rank {} has hello from 0, hello from 1, hello from 2", world.rank());
        assert_eq!(hello_queue::greet(&world)?, expected);
        Ok(())
    })
    .expect("three ranks greet");
}

fn every_rank_has_the_bytes_of_the_broadcast() {
    local(3, |world| {
        let expected = format!("rank {} of 3 on 1 nodes has all 2000000 bytes", world.rank());
        assert_eq!(broadcast::receive(&world)?, expected);
        Ok(())
    })
    .expect("the bytes arrive");
}

fn a_value_is_passed_around_all_ranks() {
    local(3, |world| {
        let lines = ring_exchange::pass_around(&world)?;
        let expected =
            ["all together: 3", "rank 0 passes on 0", "rank 1 passes on 1", "rank 2 passes on 3"];
        assert!(lines.is_none_or(|lines| lines == expected));
        Ok(())
    })
    .expect("the value arrives");
}

/// Tiles of unequal size, tiles of one row or column, a single tile.
fn heat_equals_the_serial_solution() {
    for engine in [EngineKind::Peers, EngineKind::Caller] {
        for (ranks, rows, columns) in
            [(4, 37, 23), (6, 3, 40), (4, 2, 2), (5, 6, 9), (1, 8, 8), (2, 5, 1)]
        {
            let plate = heat::Plate { rows, columns, steps: 12, threads: None };
            let grid = plate.divide(ranks).expect("no tile is empty");
            local_with(ranks, engine, |world| {
                let outcome = heat::solve(&world, &plate, grid)?;
                assert_eq!(outcome.wrong, 0, "{ranks} ranks, {rows} × {columns} cells, {engine}");
                assert!(outcome.mean > 0.0, "the heat has come in");
                Ok(())
            })
            .expect("the plate is solved");
        }
    }
}

fn a_plate_that_is_too_small_is_refused() {
    let plate = heat::Plate { rows: 3, columns: 100, steps: 1, threads: None };
    let error = plate.divide(5).expect_err("five tiles, three rows");
    assert!(error.starts_with("3 × 100 cells do not divide into 5 × 1 tiles"), "{error}");
}

fn what_is_gathered_is_what_was_given() {
    for (ranks, bytes) in [(4, 100), (7, 20_000), (1, 8), (3, 0)] {
        local(ranks, |world| {
            let root = ranks / 2;
            let schedule = tree_gather::make(&world, root, bytes)?;
            assert_eq!(
                tree_gather::run(&world, &schedule, root, bytes, 5)?,
                0,
                "{ranks} ranks, {bytes} bytes"
            );
            Ok(())
        })
        .expect("the blocks are gathered");
    }
}
