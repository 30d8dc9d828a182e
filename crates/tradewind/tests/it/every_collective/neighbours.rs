//! Neighbour collectives.

use super::harness::{COUNTS, Form, UNTOUCHED, every_job, values};
use tradewind::{Algorithms, InPlace, Result};

testing::tests![
    neighbours_exchange_blocks_of_any_size_along_any_edges,
    what_lies_beyond_the_edge_of_a_grid_is_left_alone,
];

fn neighbours_exchange_blocks_of_any_size_along_any_edges() {
    let force = |algorithm| Algorithms { neighbor: Some(algorithm), ..Default::default() };
    every_job(Algorithms::NEIGHBOR, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        // Two edges to the next rank, one to the one after it, one to oneself; on few ranks they
        // are parallel.
        let steps = [1, 2, 1, 0];
        let next = steps.map(|step| (rank + step) % size);
        let before = steps.map(|step| (rank + 2 * size - step) % size);
        let graph = world.neighbors(&before, &next)?;
        // The k-th edge from a to b in a's list is the k-th from a in b's, and both lists have the
        // steps in one order.
        let count_of = |from: u32, edge: usize, count: usize| {
            if edge == 1 { 0 } else { count + (from as usize + edge) % 4 }
        };
        let block = |from: u32, edge: usize, count: usize| values(from * 8 + edge as u32, count);
        for count in COUNTS {
            let (form, _) = turn.next(rank);
            let mine: Vec<u64> = (0..4).flat_map(|edge| block(rank, edge, count)).collect();
            let expected: Vec<u64> =
                (0..4).flat_map(|edge| block(before[edge], edge, count)).collect();
            let got = call!(world, graph.[neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init]
                |from, to| (from, to) (count), form, Some(mine), vec![UNTOUCHED; 4 * count]);
            assert!(got == expected, "{form:?}, count {count}");

            let sent = [0, 1, 2, 3].map(|edge| count_of(rank, edge, count));
            let received = [0, 1, 2, 3].map(|edge| count_of(before[edge], edge, count));
            let mine: Vec<u64> = (0..4).flat_map(|edge| block(rank, edge, sent[edge])).collect();
            let expected: Vec<u64> =
                (0..4).flat_map(|edge| block(before[edge], edge, received[edge])).collect();
            let got = call!(world, graph.[neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init]
                |from, to| (from, &sent, to, &received) (&sent, &received),
                form, Some(mine), vec![UNTOUCHED; expected.len()]);
            assert!(got == expected, "{form:?}, count {count}, different sizes");

            let expected: Vec<u64> = before.iter().flat_map(|from| values(*from, count)).collect();
            let got = call!(world, graph.[neighbor_allgather, ineighbor_allgather, neighbor_allgather_init]
                |from, to| (from, to) (count),
                form, Some(values(rank, count)), vec![UNTOUCHED; 4 * count]);
            assert!(got == expected, "allgather, {form:?}, count {count}");

            let length = |rank: u32| count + rank as usize % 3;
            let received = before.map(length);
            let expected: Vec<u64> =
                before.iter().flat_map(|from| values(*from, length(*from))).collect();
            let got = call!(world, graph.[neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init]
                |from, to| (from, to, &received) (length(rank), &received),
                form, Some(values(rank, length(rank))), vec![UNTOUCHED; expected.len()]);
            assert!(got == expected, "allgatherv, {form:?}, count {count}");
        }
        Ok(())
    });
}

fn what_lies_beyond_the_edge_of_a_grid_is_left_alone() {
    let force = |algorithm| Algorithms { neighbor: Some(algorithm), ..Default::default() };
    every_job(Algorithms::NEIGHBOR, force, |world, turn| {
        let (rank, size) = (world.rank(), world.size());
        let line = world.cartesian(&[size], &[false])?;
        for count in [1, 30] {
            let (form, _) = turn.next(rank);
            let mine: Vec<u64> = vec![rank.into(); 2 * count];
            let got = call!(world, line.[neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init]
                |from, to| (from, to) (count), form, Some(mine), vec![UNTOUCHED; 2 * count]);
            let value = |other: Option<u32>| {
                other.filter(|other| *other < size).map_or(UNTOUCHED, u64::from)
            };
            let expected = [value(rank.checked_sub(1)), value(Some(rank + 1))]
                .map(|value| vec![value; count])
                .concat();
            assert_eq!(got, expected, "{form:?}");
        }
        // Results that are moved out of their slots leave it alone, too.
        let mine = [rank; 2];
        let mut outputs = vec![[77u32; 2]; 100];
        let requests: Vec<_> = outputs
            .iter_mut()
            .map(|output| line.ineighbor_alltoall(&mine, output))
            .collect::<Result<_>>()?;
        tradewind::wait_all(requests)?;
        let expected =
            [rank.checked_sub(1).unwrap_or(77), if rank + 1 < size { rank + 1 } else { 77 }];
        assert!(outputs.iter().all(|output| *output == expected), "{outputs:?}");
        // The block of a rank for itself is in the output when the collective starts.
        const BLOCK: usize = 600;
        let before = (rank + size - 1) % size;
        let ring = world.neighbors(&[rank, before], &[rank, (rank + 1) % size])?;
        let mine = [values(rank, BLOCK), values(rank + 9, BLOCK)].concat();
        let mut outputs = vec![vec![UNTOUCHED; 2 * BLOCK]; 100];
        let requests: Vec<_> = outputs
            .iter_mut()
            .map(|output| ring.ineighbor_alltoall(&mine, output))
            .collect::<Result<_>>()?;
        tradewind::wait_all(requests)?;
        let mut expected = [values(rank, BLOCK), values(before + 9, BLOCK)].concat();
        if size == 1 {
            expected.copy_from_slice(&mine);
        }
        assert!(outputs.iter().all(|output| *output == expected));
        Ok(())
    });
}
