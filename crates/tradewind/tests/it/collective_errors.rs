//! Errors of collectives: buffers and blocks of wrong lengths, ranks in different collectives,
//! functions that panic, algorithms of other collectives.

use crate::job_kinds::KINDS;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tradewind::graph::{Access, Graph};
use tradewind::{
    Algorithm, Algorithms, Buffers, Communicator, DataType, Error, InPlace, Op, Result, fold, local,
};

testing::tests![
    buffers_of_wrong_lengths_are_refused_before_anything_starts,
    every_collective_names_itself_its_lengths_and_its_rule,
    a_block_of_another_length_than_expected_names_ranks_and_lengths,
    every_rank_refuses_a_part_of_an_element,
    memory_of_another_segment_is_refused,
    a_division_in_a_flat_collective_names_no_rank,
    ranks_in_different_collectives_are_told,
    a_function_that_panics_leaves_the_communicator_usable,
    long_blocks_for_a_neighbour_that_expects_others_are_detected,
    every_rank_refuses_an_algorithm_of_another_collective,
    streamed_calls_refuse_one_too,
];

fn text<T>(outcome: Result<T>) -> String {
    outcome.err().expect("refused").to_string()
}

/// Runs a body on all ranks, and returns the text of the error of each rank, or an empty one.
fn errors(ranks: u32, body: impl Fn(&Communicator) -> Result<()> + Sync) -> Vec<String> {
    let said = std::sync::Mutex::new(vec![String::new(); ranks as usize]);
    local(ranks, |world| {
        if let Err(error) = body(&world) {
            said.lock().expect("no rank panics")[world.rank() as usize] = error.to_string();
        }
        Ok(())
    })
    .expect("errors are kept, not returned");
    said.into_inner().expect("no rank panics")
}

fn buffers_of_wrong_lengths_are_refused_before_anything_starts() {
    local(2, |world| {
        let refused = |outcome: Result<()>, expected: &str| {
            let said = text(outcome);
            assert!(said.contains(expected), "{said}");
        };
        refused(world.allgather(&[1u8], &mut [0; 3]), "a multiple of 2, the number of ranks");
        refused(
            world.allgather(&[1u8, 2], &mut [0; 2]),
            "allgather: the input has 2 elements beside an output of 2 elements, it must have 1 element",
        );
        refused(world.scan(&[1u8; 3], &mut [0; 2], Op::Sum), "the input has 3 elements");
        refused(world.gather(&[1u8], &mut [0; 2], 2), "the root is 2, it must be below 2");
        refused(
            world.allgatherv(&[1u8], &mut [0; 2], &[1]),
            "the list of counts has a length of 1, it must have a length of 2",
        );
        let differs = if world.rank() == 0 { [2, 1] } else { [1, 2] };
        refused(world.alltoallv(&[1u8; 2], &[1, 1], &mut [0; 3], &differs), "itself");
        refused(world.alltoallv(&[0u64; 0], &[usize::MAX, 0], &mut [], &[0, 0]), "64 bits");
        if world.rank() == 0 {
            refused(
                world.gather(&[1u8], &mut [0; 3], 0),
                "the output has 3 elements beside an input of 1 element, it must have 2 elements",
            );
        } else {
            refused(world.gather(InPlace, &mut [0u8; 2], 0), "the input is in place");
            refused(world.scatter(&[0u8; 2], InPlace, 0), "the output is in place");
            refused(world.reduce(InPlace, &mut [0u8; 2], Op::Sum, 0), "the input is in place");
        }
        let grid = world.cartesian(&[2], &[true])?;
        refused(grid.neighbor_alltoall(InPlace, &mut [0u8; 2]), "neither in place");
        let scan = world.scan_init::<u8>(1, Op::Sum)?;
        refused(scan.start(&[1u8; 2], &mut [0u8; 2]).map(drop), "2 elements");
        world.barrier()
    })
    .expect("the job goes on");
}

fn every_collective_names_itself_its_lengths_and_its_rule() {
    local(2, |world| {
        let one = [1u64];
        let (two, three) = ([1u64; 2], [1u64; 3]);
        let counts = [1, 1];
        let grid = world.cartesian(&[2], &[true])?;
        let bcast = world.bcast_init::<u64>(2, 0)?;
        let refused = [
            ("bcast", 3, "have 2 elements", bcast.start(&mut [0; 3]).map(drop)),
            ("allreduce", 3, "have 2 elements", world.allreduce(&three, &mut [0; 2], Op::Sum)),
            ("scan", 3, "have 2 elements", world.scan(&three, &mut [0; 2], Op::Sum)),
            ("exscan", 3, "have 2 elements", world.exscan(&three, &mut [0; 2], Op::Sum)),
            (
                "alltoall",
                3,
                "a multiple of 2, the number of ranks",
                world.alltoall(&two, &mut [0; 3]),
            ),
            ("alltoall", 3, "have 2 elements", world.alltoall(&three, &mut [0; 2])),
            (
                "allgather",
                3,
                "a multiple of 2, the number of ranks",
                world.allgather(&one, &mut [0; 3]),
            ),
            ("allgather", 2, "have 1 element", world.allgather(&two, &mut [0; 2])),
            (
                "reduce_scatter_block",
                3,
                "have 2 elements",
                world.reduce_scatter_block(&three, &mut [0; 1], Op::Sum),
            ),
            (
                "reduce_scatter",
                3,
                "have 2 elements",
                world.reduce_scatter(&three, &mut [0; 1], &counts, Op::Sum),
            ),
            (
                "reduce_scatter",
                1,
                "a length of 2",
                world.reduce_scatter(&two, &mut [0; 1], &[1], Op::Sum),
            ),
            ("allgatherv", 3, "have 2 elements", world.allgatherv(&one, &mut [0; 3], &counts)),
            ("allgatherv", 1, "a length of 2", world.allgatherv(&one, &mut [0; 2], &[1])),
            (
                "alltoallv",
                3,
                "have 2 elements",
                world.alltoallv(&three, &counts, &mut [0; 2], &counts),
            ),
            ("alltoallv", 1, "a length of 2", world.alltoallv(&two, &[1], &mut [0; 2], &counts)),
            ("neighbor_allgather", 3, "2 blocks", grid.neighbor_allgather(&one, &mut [0; 3])),
            ("neighbor_alltoall", 3, "2 blocks", grid.neighbor_alltoall(&three, &mut [0; 2])),
            (
                "neighbor_allgatherv",
                3,
                "have 2 elements",
                grid.neighbor_allgatherv(&one, &mut [0; 3], &counts),
            ),
            (
                "neighbor_alltoallv",
                3,
                "have 2 elements",
                grid.neighbor_alltoallv(&three, &counts, &mut [0; 2], &counts),
            ),
        ];
        // At the root only.
        let at_root = || {
            [
                ("reduce", 3, "have 2 elements", world.reduce(&two, &mut [0; 3], Op::Sum, 0)),
                ("gather", 3, "have 2 elements", world.gather(&one, &mut [0; 3], 0)),
                ("scatter", 3, "have 2 elements", world.scatter(&three, &mut [0; 1], 0)),
                ("gatherv", 3, "have 2 elements", world.gatherv(&one, &mut [0; 3], &counts, 0)),
                ("gatherv", 1, "a length of 2", world.gatherv(&one, &mut [0; 2], &[1], 0)),
                ("scatterv", 3, "have 2 elements", world.scatterv(&three, &counts, &mut [0; 1], 0)),
                ("scatterv", 1, "a length of 2", world.scatterv(&two, &[1], &mut [0; 1], 0)),
            ]
        };
        let is_root = world.rank() == 0;
        for (call, found, expected, outcome) in
            refused.into_iter().chain(is_root.then(at_root).into_iter().flatten())
        {
            let Err(Error::Buffer(error)) = outcome else { panic!("{call}: {outcome:?}") };
            let text = error.to_string();
            assert!(text.starts_with(&format!("{call}: the ")), "{text}");
            assert!(error.found.contains(&found.to_string()), "{text}");
            assert!(text.contains(expected) && text.contains("; pass "), "{text}");
        }
        world.barrier()
    })
    .expect("nothing has started");
}

fn every_rank_refuses_a_part_of_an_element() {
    let sum = Op::Sum.on_bytes(DataType::F64);
    for ranks in [2, 4] {
        // Inline in a slot, in a cell, in the arena, and streamed.
        for bytes in [12, 4001, 100_004] {
            local(ranks, |world| {
                let refused = |outcome: Result<()>| {
                    let said = text(outcome);
                    assert!(said.contains("whole elements of 8 bytes (f64)"), "{said}");
                };
                let mine = vec![1u8; bytes];
                let blocks = vec![1u8; bytes * ranks as usize];
                let mut result = vec![0u8; bytes];
                let counts = vec![bytes; ranks as usize];
                refused(world.allreduce(&mine, &mut result, sum));
                refused(world.reduce(&mine, &mut result, sum, 0));
                refused(world.scan(&mine, &mut result, sum));
                refused(world.exscan(&mine, &mut result, sum));
                refused(world.reduce_scatter_block(&blocks, &mut result, sum));
                refused(world.reduce_scatter(&blocks, &mut result, &counts, sum));
                refused(world.iallreduce(&mine, &mut result, sum).map(drop));
                world.barrier()
            })
            .expect("the job goes on");
        }
    }
}

fn memory_of_another_segment_is_refused() {
    let refused = |said: String| {
        assert!(said.contains("that of another job or node"), "{said}");
    };
    local(1, |one| {
        local(1, |other| {
            let foreign = || one.alloc::<u64>(8);
            let own = || other.alloc::<u64>(8);
            refused(text(other.iallreduce(&[7; 8], foreign()?, Op::Sum)));
            refused(text(other.iallreduce(foreign()?, own()?, Op::Sum)));
            refused(text(other.ibcast(foreign()?, 0)));
            let mut graph = Graph::new(0, 1);
            graph.buffer(Access::Output, 8);
            let schedule = other.compile(&graph)?;
            refused(text(schedule.run(Buffers::new().shared(one.alloc(8)?))));
            // Another communicator of the job has the same memory.
            let dup = other.dup()?;
            let (_, sum) = dup.iallreduce(own()?, own()?, Op::Sum)?.wait()?;
            assert_eq!(*sum, [0; 8]);
            Ok(())
        })
    })
    .expect("the jobs go on");
}

fn a_division_in_a_flat_collective_names_no_rank() {
    for count in [1, 2000, 100_000] {
        local(4, |world| {
            let mine = vec![i64::from(world.rank() != 2); count];
            let outcome = world.iallreduce(&mine, &mut vec![0; count], Op::Quotient)?.wait();
            let Err(error @ Error::DivisionByZero { vertex: None }) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(error.to_string(), "integer division by zero");
            Ok(())
        })
        .expect("only the divisions fail");
    }
}

fn a_block_of_another_length_than_expected_names_ranks_and_lengths() {
    let said = errors(3, |world| {
        let mine = vec![1u64; if world.rank() == 2 { 3 } else { 1 }];
        match world.rank() {
            0 => world.gatherv(&mine, &mut [0; 4], &[1, 1, 2], 0),
            _ => world.gatherv(&mine, &mut [], &[], 0),
        }
    });
    assert_eq!(
        said[0],
        "rank 2 has 24 bytes for rank 0 in gatherv, rank 0 expects 16: their counts must agree"
    );
    assert_eq!(said[1..], ["", ""], "ranks that only contribute are done");

    let said = errors(2, |world| {
        let mut mine = vec![0u32; 2];
        match world.rank() {
            0 => world.scatterv(&[1; 3], &[2, 1], &mut mine, 0),
            _ => world.scatterv(&[], &[], &mut mine, 0),
        }
    });
    assert_eq!(
        said[1],
        "rank 0 has 4 bytes for rank 1 in scatterv, rank 1 expects 8: their counts must agree"
    );

    let said = errors(2, |world| match world.rank() {
        0 => world.alltoallv(&[1u8; 4], &[1, 3], &mut [0; 3], &[1, 2]),
        _ => world.alltoallv(&[1u8; 4], &[2, 2], &mut [0; 4], &[2, 2]),
    });
    assert_eq!(said[0], "");
    assert_eq!(
        said[1],
        "rank 0 has 3 bytes for rank 1 in alltoallv, rank 1 expects 2: their counts must agree"
    );

    let said = errors(2, |world| {
        let (destinations, sent): (&[u32], &[usize]) =
            if world.rank() == 0 { (&[], &[]) } else { (&[0], &[1]) };
        let list = world.neighbors(&[1 - world.rank()], destinations)?;
        list.neighbor_alltoallv(&vec![7u8; world.rank() as usize], sent, &mut [0], &[1])
    });
    assert_eq!(said[0], "");
    let expected =
        "rank 1 expects a block from rank 0 in neighbor_alltoallv, which has none for it";
    assert!(said[1].starts_with(expected), "{}", said[1]);
}

fn ranks_in_different_collectives_are_told() {
    type Call = fn(&Communicator) -> Result<()>;
    let calls: [(&str, Call); 8] = [
        ("allgather", |world| world.allgather(&[1u8], &mut [0; 2])),
        ("allgatherv", |world| world.allgatherv(&[1u8], &mut [0; 2], &[1, 1])),
        ("alltoallv", |world| world.alltoallv(&[1u8; 2], &[1, 1], &mut [0; 2], &[1, 1])),
        ("reduce_scatter", |world| world.reduce_scatter(&[1u8; 2], &mut [0], &[1, 1], Op::Sum)),
        ("reduce_scatter_block", |world| world.reduce_scatter_block(&[1u8; 2], &mut [0], Op::Sum)),
        ("allreduce", |world| world.allreduce(&[1u8], &mut [0], Op::Sum)),
        ("allreduce", |world| {
            world.allreduce(&[1u8], &mut [0], fold(|a: &mut u8, b: &u8| *a += b))
        }),
        ("alltoall", |world| world.alltoall(&[1u8; 2], &mut [0; 2])),
    ];
    for (name, call) in calls {
        let said = errors(2, |world| if world.rank() == 0 { call(world) } else { world.barrier() });
        let expected = format!("rank 0 is in {name} #0, rank 1 is in barrier #0");
        assert_eq!(said, [expected.clone(), expected]);
    }
    // A rank that only sends gets no error, the others do.
    let said = errors(2, |world| match world.rank() {
        0 => world.gather(&[1u8], &mut [0; 2], 0),
        _ => world.reduce(&[1u8], &mut [], Op::Sum, 0),
    });
    assert_eq!(said[0], "rank 0 is in gather #0, rank 1 is in reduce #0");
    let said = errors(2, |world| {
        let op = if world.rank() == 0 { Op::Sum } else { Op::Product };
        world.reduce(&[1u16], &mut [0], op, 0)
    });
    assert!(said[0].contains("reduce #0"), "{said:?}");
    let said = errors(2, |world| {
        let counts = if world.rank() == 0 { [1, 3] } else { [3, 1] };
        world.allgatherv(&vec![1u8; counts[world.rank() as usize]], &mut [0; 4], &counts)
    });
    assert!(said.iter().all(|text| text.contains("allgatherv #0")), "{said:?}");
}

fn a_function_that_panics_leaves_the_communicator_usable() {
    local(2, |world| {
        let picky =
            || fold(|a: &mut u32, b: &u32| *a = a.checked_sub(*b).expect("enough to take from"));
        let mut difference = [0];
        let panic = catch_unwind(AssertUnwindSafe(|| {
            world.allreduce(&[world.rank() + 1], &mut difference, picky())
        }));
        assert!(panic.is_err(), "1 - 2 panics");
        let mine = [2 * world.rank()];
        let mut request = world.iscan(&mine, &mut difference, picky())?;
        let limit = std::time::Duration::from_secs(60);
        let outcome = catch_unwind(AssertUnwindSafe(|| request.wait_timeout(limit)));
        assert_eq!(outcome.is_err(), world.rank() == 1);
        drop(request);
        world.allreduce(&[2 - world.rank()], &mut difference, picky())?;
        assert_eq!(difference, [1]);
        world.barrier()
    })
    .expect("it goes on");
}

fn long_blocks_for_a_neighbour_that_expects_others_are_detected() {
    // Long enough for a stream, whatever the type.
    const COUNT: usize = 5000;
    // What rank 0 has for rank 1 and what that expects.
    for (has, expects) in [(2, 1), (1, 2)] {
        local(2, |world| {
            let (sources, destinations) = if world.rank() == 0 {
                (vec![1], vec![1; has])
            } else {
                (vec![0; expects], vec![0])
            };
            let graph = world.neighbors(&sources, &destinations)?;
            let (input, mut output) =
                (vec![1u64; COUNT * destinations.len()], vec![0; COUNT * sources.len()]);
            let outcome = graph.neighbor_alltoall(&input, &mut output);
            if world.rank() == 1 {
                assert!(
                    text(outcome).contains("lists of neighbours must agree"),
                    "{has} blocks, {expects} expected"
                );
            } else if let Err(error) = outcome {
                // In the middle of its own it is not left waiting; it may have got all that it
                // wants.
                assert!(
                    error.to_string().contains("is broken"),
                    "{has} blocks, {expects} expected: {error}"
                );
            }
            let (long, mut sum) = (vec![1u32; COUNT], vec![0; COUNT]);
            assert!(text(world.allreduce(&long, &mut sum, Op::Sum)).contains("is broken"));
            let fresh = world.dup()?;
            fresh.allreduce(&long, &mut sum, Op::Sum)?;
            assert_eq!(sum, vec![2; COUNT]);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{has} blocks, {expects} expected: {error}"));
    }
}

fn every_rank_refuses_an_algorithm_of_another_collective() {
    use Algorithm::{Bruck, Pairwise, Ring, ScatterAllgather};
    let wrong = Algorithms {
        barrier: Some(Ring),
        bcast: Some(Ring),
        scatter: Some(Ring),
        gather: Some(Ring),
        allgather: Some(Pairwise),
        alltoall: Some(Ring),
        reduce: Some(Ring),
        allreduce: Some(Bruck),
        reduce_scatter: Some(Bruck),
        scan: Some(Ring),
        exscan: Some(Ring),
        neighbor: Some(ScatterAllgather),
        ..Algorithms::default()
    };
    type Call = fn(&Communicator) -> Result<()>;
    let calls: [(&str, Call); 20] = [
        ("`ring` is no barrier algorithm", |world| world.barrier()),
        ("`ring` is no bcast algorithm", |world| world.bcast(&mut [1u8], 0)),
        ("`ring` is no scatter algorithm", |world| world.scatter(&[1u8; 3], &mut [0], 0)),
        ("`ring` is no scatter algorithm", |world| world.scatterv(&[1u8; 3], &[1; 3], &mut [0], 0)),
        ("`ring` is no gather algorithm", |world| world.gather(&[1u8], &mut [0; 3], 0)),
        ("`ring` is no gather algorithm", |world| world.gatherv(&[1u8], &mut [0; 3], &[1; 3], 0)),
        ("`pairwise` is no allgather algorithm", |world| world.allgather(&[1u8], &mut [0; 3])),
        ("`pairwise` is no allgather algorithm", |world| {
            world.allgatherv(&[1u8], &mut [0; 3], &[1; 3])
        }),
        ("`ring` is no alltoall algorithm", |world| world.alltoall(&[1u8; 3], &mut [0; 3])),
        ("`ring` is no alltoall algorithm", |world| {
            world.alltoallv(&[1u8; 3], &[1; 3], &mut [0; 3], &[1; 3])
        }),
        ("`ring` is no reduce algorithm", |world| world.reduce(&[1u8], &mut [0], Op::Sum, 0)),
        ("`ring` is no reduce algorithm", |world| {
            world.reduce(&[1u8], &mut [0], Op::Difference, 0)
        }),
        ("`bruck` is no allreduce algorithm", |world| world.allreduce(&[1u8], &mut [0], Op::Sum)),
        ("`bruck` is no allreduce algorithm", |world| {
            world.allreduce(&[1u8], &mut [0], Op::Difference)
        }),
        ("`bruck` is no reduce_scatter algorithm", |world| {
            world.reduce_scatter(&[1u8; 3], &mut [0], &[1; 3], Op::Difference)
        }),
        ("`bruck` is no reduce_scatter algorithm", |world| {
            world.reduce_scatter_block(&[1u8; 3], &mut [0], Op::Sum)
        }),
        ("`ring` is no scan algorithm", |world| world.scan(&[1u8], &mut [0], Op::Difference)),
        ("`ring` is no exscan algorithm", |world| world.exscan(&[1u8], &mut [0], Op::Sum)),
        ("`pairwise` is no allgather algorithm", |world| {
            world.allreduce(&[1u8], &mut [0], fold(|a: &mut u8, b: &u8| *a += b))
        }),
        ("`scatter-allgather` is no neighbor algorithm", |world| {
            world.cartesian(&[3], &[true])?.neighbor_allgather(&[1u8], &mut [0; 2])
        }),
    ];
    for kind in KINDS {
        for ranks_per_node in [None, NonZeroU32::new(2)] {
            let wrong = Algorithms { ranks_per_node, ..wrong };
            kind.run(3, |world| {
                let refusing = world.with_algorithms(wrong);
                for (expected, call) in calls {
                    // The second call meets what the first has left in the cache.
                    for _ in 0..2 {
                        let said = text(call(&refusing));
                        assert!(said.contains(expected), "{kind}, {expected}: {said}");
                        assert!(said.contains("use one of "), "{said}");
                    }
                }
                world.barrier()
            })
            .expect("the job goes on");
        }
    }
}

/// Two ranks stream blocking calls where each has a core.
fn streamed_calls_refuse_one_too() {
    let [scatter, gather, alltoall] = [Some(Algorithm::Ring); 3];
    let wrong = Algorithms { scatter, gather, alltoall, ..Algorithms::default() };
    local(2, |world| {
        let world = world.with_algorithms(wrong);
        let one = [1u8];
        let ones = [1; 2];
        let mut two = [0; 2];
        let said = [
            text(world.scatterv(&[1u8; 2], &ones, &mut [0], 0)),
            text(world.gatherv(&one, &mut two, &ones, 0)),
            text(world.alltoallv(&[1u8; 2], &ones, &mut two, &ones)),
        ];
        assert!(said.iter().all(|said| said.contains("`ring` is no ")), "{said:?}");
        Ok(())
    })
    .expect("the calls are refused");
}
