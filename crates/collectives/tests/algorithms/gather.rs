//! After a gather the root has everybody's block, in rank order.

use crate::{block, rank_counts, run};
use collectives::gather::tree_gather;
use goal::graph::Graph;

#[test]
fn the_root_gets_all_blocks_in_rank_order() {
    for ranks in rank_counts() {
        for root in 0..ranks {
            for bytes in [0, 1, 24, 100] {
                let graphs: Vec<Graph> =
                    (0..ranks).map(|rank| tree_gather(rank, ranks, root, bytes).unwrap()).collect();
                let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| block(rank, root, bytes)).collect();
                for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
                    let expected = if rank == root as usize { inputs.concat() } else { Vec::new() };
                    assert_eq!(buffers[1], expected, "rank {rank} of {ranks}, root {root}, {bytes} bytes");
                }
            }
        }
    }
}
