//! Algorithms and engines of collectives between nodes, and their explanations.

use tradewind::{Algorithm, Collective, Communicator, Op, Result, local_nodes};

testing::tests![
    an_explanation_names_the_engine_and_the_nodes,
    a_sum_of_integers_takes_a_round_less_than_one_of_floating_point_numbers,
    an_alltoall_of_long_blocks_has_one_level,
    algorithms_that_are_forced_have_the_levels_that_are_asked_for,
    short_collectives_run_in_the_ranks_and_long_ones_by_the_agent,
    short_collectives_of_few_nodes_take_one_step,
    blocks_with_sizes_that_only_their_ranks_have_are_exchanged_in_the_ranks,
    an_explanation_names_the_engine_that_will_run_the_collective,
];

fn an_explanation_names_the_engine_and_the_nodes() {
    local_nodes(&[2, 2], |world| {
        let mut sum = [0.0];
        let request = world.iallreduce(&[1.0], &mut sum, Op::Sum)?;
        let explanation = request.explain().expect("an allreduce has algorithms");
        request.wait()?;
        assert_eq!((explanation.engine, explanation.nodes), ("agent", 2));
        let text = explanation.to_string();
        let expected =
            "nonblocking allreduce of 8 bytes among 4 ranks on 2 nodes: recursive-doubling";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains(", agent engine\n  built-in parameters, because no"), "{text}");
        assert!(text.contains(" bytes: predicted ") && text.contains(" µs; next: "), "{text}");
        assert_eq!(
            world.explain_form(
                tradewind::CallForm::Nonblocking,
                tradewind::Collective::Allreduce,
                8
            ),
            explanation
        );
        Ok(())
    })
    .expect("the job is sound");
}

/// Among ranks whose number is no power of two, unless the caller has set an algorithm.
fn a_sum_of_integers_takes_a_round_less_than_one_of_floating_point_numbers() {
    use tradewind::Reason;
    let explained = |world: &Communicator| -> Result<[(Algorithm, Reason); 3]> {
        let (mut count, mut sum, mut largest) = ([0_u64], [0.0], [0.0]);
        let values = [1.0 / f64::from(world.rank() + 3)];
        let counted = world.iallreduce(&[1], &mut count, Op::Sum)?;
        let summed = world.iallreduce(&values, &mut sum, Op::Sum)?;
        let found = world.iallreduce(&values, &mut largest, Op::Maximum)?;
        let all = [counted.explain(), summed.explain(), found.explain()];
        counted.wait()?;
        summed.wait()?;
        found.wait()?;
        assert_eq!((count[0], largest[0]), (u64::from(world.size()), 1.0 / 3.0));
        let all = all.map(|one| one.expect("an allreduce has algorithms"));
        Ok(all.map(|one| (one.algorithm, one.reason)))
    };
    // Up to 16 ranks may take one step.
    local_nodes(&[1; 17], |world| {
        let [counted, summed, found] = explained(&world)?;
        let any_order = (Algorithm::Dissemination, Reason::AnyOrder);
        assert_eq!((&counted, &found), (&any_order, &any_order));
        assert_eq!(summed.0, Algorithm::RecursiveDoubling);

        let mut forced = world.algorithms();
        forced.allreduce = Some(Algorithm::Dissemination);
        let [counted, summed, _] = explained(&world.with_algorithms(forced))?;
        assert_eq!(counted, (Algorithm::Dissemination, Reason::Forced));
        assert_eq!(summed, (Algorithm::RecursiveDoubling, Reason::CommonOrder));
        Ok(())
    })
    .expect("the job is sound");
}

fn an_alltoall_of_long_blocks_has_one_level() {
    for nodes in [&[2, 2][..], &[3, 3, 1], &[2, 2, 2, 1]] {
        local_nodes(nodes, |world| {
            let (rank, size) = (world.rank(), world.size());
            for count in [0, 1, 100, 5000] {
                let block = |from: u32, to: u32| {
                    (0..count as u32).map(move |index| from << 24 | to << 16 | index)
                };
                let given: Vec<u32> = (0..size).flat_map(|to| block(rank, to)).collect();
                let expected: Vec<u32> = (0..size).flat_map(|from| block(from, rank)).collect();
                let mut got = vec![0; given.len()];
                let request = world.ialltoall(&given, &mut got)?;
                let explanation = request.explain().expect("an alltoall has algorithms");
                request.wait()?;
                assert_eq!(got, expected, "{nodes:?}, {count} elements");
                // Elsewhere the models' choice is free, and only the results count.
                let is_long = nodes == [2, 2] && count == 5000;
                assert!(!is_long || explanation.ranks_per_node.is_none(), "{explanation}");
                let form = tradewind::CallForm::Nonblocking;
                assert_eq!(
                    world.explain_form(form, Collective::Alltoall, 4 * count as u64),
                    explanation
                );
                let mut both = given;
                world.alltoall(tradewind::InPlace, &mut both)?;
                assert_eq!(both, expected, "{nodes:?}, {count} elements in place");
            }
            let counts: Vec<usize> = (0..size).map(|other| ((rank + other) % 3) as usize).collect();
            let given = vec![rank; counts.iter().sum()];
            let mut got = vec![0; given.len()];
            let request = world.ialltoallv(&given, &counts, &mut got, &counts)?;
            let explanation = request.explain().expect("an alltoall has algorithms");
            request.wait()?;
            assert_eq!(
                explanation.ranks_per_node, None,
                "ranks have lengths of their own blocks only"
            );
            let expected: Vec<u32> =
                (0..size).zip(&counts).flat_map(|(from, count)| vec![from; *count]).collect();
            assert_eq!(got, expected);
            Ok(())
        })
        .expect("the job is sound");
    }
}

fn algorithms_that_are_forced_have_the_levels_that_are_asked_for() {
    local_nodes(&[2, 2], |world| {
        for (algorithm, levels) in [
            (Algorithm::Pairwise, true),
            (Algorithm::Direct, true),
            (Algorithm::Bruck, false),
            (Algorithm::Multiphase, false),
        ] {
            let two = std::num::NonZeroU32::new(2);
            let chosen = tradewind::Algorithms { ranks_per_node: two, ..Default::default() };
            let chosen = world
                .with_algorithms(chosen.with(Collective::Alltoall, algorithm).expect("it is one"));
            let (given, mut got) = ([world.rank(); 4], [9; 4]);
            chosen.alltoall(&given, &mut got)?;
            assert_eq!(got, [0, 1, 2, 3]);
            let explanation = chosen.explain(Collective::Alltoall, 4);
            assert_eq!(
                (explanation.algorithm, explanation.ranks_per_node.is_some()),
                (algorithm, levels)
            );
        }
        Ok(())
    })
    .expect("the job is sound");
}

fn short_collectives_run_in_the_ranks_and_long_ones_by_the_agent() {
    let engine = |nodes: &'static [u32], words: usize| {
        let engines = std::sync::Mutex::new(Vec::new());
        local_nodes(nodes, |world| {
            let given = vec![world.rank(); words * world.size() as usize];
            let mut taken = vec![0; given.len()];
            let request = world.ialltoall(&given, &mut taken)?;
            let explanation = request.explain().expect("an all-to-all has algorithms");
            request.wait()?;
            let form = tradewind::CallForm::Nonblocking;
            let predicted = world.explain_form(form, Collective::Alltoall, 4 * words as u64);
            assert_eq!(predicted, explanation);
            assert!((0..).zip(taken.chunks(words)).all(|(rank, part)| part == vec![rank; words]));
            engines.lock().expect("no rank panics").push(explanation.engine);
            Ok(())
        })
        .expect("the job is sound");
        let mut engines = engines.into_inner().expect("no rank panics");
        engines.dedup();
        engines
    };
    assert_eq!(engine(&[1, 1], 1), ["direct"]);
    assert_eq!(engine(&[1, 1], 1 << 19), ["agent"], "the connections do not hold so much");
    assert_eq!(engine(&[2, 1], 1), ["agent"], "two ranks share a node");
}

/// A fold in rank order has the same bits as one on one rank, whatever the operation.
fn short_collectives_of_few_nodes_take_one_step() {
    let one_step = |explanation: Option<tradewind::Explanation>| {
        let explanation = explanation.expect("it has algorithms");
        (explanation.algorithm, explanation.engine)
    };
    for ranks in [3, 4, 5, 7] {
        local_nodes(&vec![1; ranks as usize], |world| {
            let (rank, size) = (world.rank(), world.size());
            assert_eq!(size, ranks);
            let expected = (Algorithm::RotatedDirect, "direct");
            let value = |rank: u32| [1.0 / f64::from(rank + 3), f64::from(rank)];
            let folded = |combine: fn(f64, f64) -> f64| {
                let pairs = (1..size).map(value);
                pairs.fold(value(0), |[a, b], [c, d]| [combine(a, c), combine(b, d)])
            };
            let forced = tradewind::Algorithms {
                allreduce: Some(Algorithm::RotatedDirect),
                reduce: Some(Algorithm::Flat),
                ranks_per_node: std::num::NonZeroU32::new(2),
                ..Default::default()
            };
            let forced = world.with_algorithms(forced);
            for _ in 0..30 {
                let (mut sum, mut all) = ([0.0; 2], vec![[0; 3]; size as usize]);
                let (given, own) = (value(rank), [[rank; 3]]);
                let barrier = world.ibarrier()?;
                let summing = world.iallreduce(&given, &mut sum, Op::Sum)?;
                let gathering = world.iallgather(&own, &mut all)?;
                assert_eq!(one_step(barrier.explain()), expected);
                assert_eq!(one_step(summing.explain()), expected);
                assert_eq!(one_step(gathering.explain()), expected);
                gathering.wait()?;
                summing.wait()?;
                barrier.wait()?;
                assert_eq!(sum, folded(|a, b| a + b));
                assert!(all.iter().zip(0..).all(|(part, rank)| *part == [rank; 3]));
                // As blocking calls.
                let mut difference = [0.0; 2];
                forced.allreduce(&given, &mut difference, Op::Difference)?;
                assert_eq!(difference, folded(|a, b| a - b));
                let mut at_root = [0.0; 2];
                let output = if rank == 0 { &mut at_root[..] } else { &mut [] };
                forced.reduce(&given, output, Op::Difference, 0)?;
                assert!(rank != 0 || at_root == difference);
                world.allreduce(&given, &mut sum, Op::Maximum)?;
                assert_eq!(sum, folded(f64::max));
                world.barrier()?;
            }
            Ok(())
        })
        .expect("the job is sound");
    }
}

/// Every rank sends as many words as its number to the next one, and `longest` more; the all-to-all
/// of two ranks does so, too.
fn blocks_with_sizes_that_only_their_ranks_have_are_exchanged_in_the_ranks() {
    let engines = |nodes: &[u32], longest: usize| {
        let engines = std::sync::Mutex::new(Vec::new());
        local_nodes(nodes, |world| {
            let (rank, size) = (world.rank(), world.size());
            let [before, next] = [(rank + size - 1) % size, (rank + 1) % size];
            let ring = world.neighbors(&[before], &[next])?;
            let [sent, received] = [rank, before].map(|rank| longest + rank as usize);
            let given = vec![rank; sent];
            let mut taken = vec![size; received];
            for _ in 0..2 {
                taken.fill(size);
                let request = ring.ineighbor_alltoallv(&given, &[sent], &mut taken, &[received])?;
                engines.lock().expect("no rank panics").push(request.engine());
                request.wait()?;
                assert_eq!(taken, vec![before; received]);
            }
            // Among more ranks the all-to-all may have several steps.
            if size > 2 {
                return Ok(());
            }
            let counts = |peer, count| {
                (0..size).map(|rank| if rank == peer { count } else { 0 }).collect::<Vec<_>>()
            };
            taken.fill(size);
            let [sends, receives] = [counts(next, sent), counts(before, received)];
            let request = world.ialltoallv(&given, &sends, &mut taken, &receives)?;
            engines.lock().expect("no rank panics").push(request.engine());
            request.wait()?;
            assert_eq!(taken, vec![before; received]);
            Ok(())
        })
        .expect("the job is sound");
        let mut engines = engines.into_inner().expect("no rank panics");
        engines.dedup();
        engines
    };
    assert_eq!(engines(&[1, 1], 1), ["direct"]);
    assert_eq!(engines(&[1, 1, 1], 1), ["direct"]);
    // The connections hold the block of rank 1, but not that of rank 2, which rank 1 cannot know.
    let most = (1 << 18) + (1 << 14) - 11;
    assert_eq!(engines(&[1, 1, 1], most), ["direct"]);
    assert_eq!(engines(&[1, 2], 1), ["agent"], "two ranks share a node");
}

/// Before a collective is started, as afterwards.
fn an_explanation_names_the_engine_that_will_run_the_collective() {
    for nodes in [&[1, 1][..], &[1, 1, 1], &[2, 1]] {
        local_nodes(nodes, |world| {
            let explained = |operation, bytes| {
                world.explain_form(tradewind::CallForm::Nonblocking, operation, bytes).engine
            };
            let request = world.ibarrier()?;
            assert_eq!(explained(Collective::Barrier, 0), request.engine(), "{nodes:?}");
            request.wait()?;
            for words in [1, 1 << 10, 1 << 18] {
                let bytes = 8 * words as u64;
                let (ones, mut sum) = (vec![1.0; words], vec![0.0; words]);
                let mut shared = vec![1_u64; words];
                let request = world.iallreduce(&ones, &mut sum, Op::Sum)?;
                let engine = request.engine();
                assert_eq!(explained(Collective::Allreduce, bytes), engine, "{nodes:?}, {words}");
                request.wait()?;
                let request = world.ibcast(&mut shared, 0)?;
                let engine = request.engine();
                assert_eq!(explained(Collective::Bcast, bytes), engine, "{nodes:?}, {words}");
                request.wait()?;
            }
            Ok(())
        })
        .expect("the job is sound");
    }
}
