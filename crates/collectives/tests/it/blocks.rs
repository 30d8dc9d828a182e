//! Every collective that moves blocks: every rank gets its blocks, of any size, in rank order.

use crate::{block, rank_counts, roots, run, tuning};
use collectives::gather::tree_gather;
use collectives::{
    Algorithm, Collective, CollectiveError, Sizes, Tuning, allgather, alltoall, bcast, gather,
    scatter,
};
use goal::graph::Graph;

/// A call: its root, where it has one, and the bytes that a rank has for another one.
struct Call<'a> {
    ranks: u32,
    root: u32,
    bytes: &'a dyn Fn(u32, u32) -> u64,
    /// True if all blocks have one size.
    are_equal: bool,
}

impl Call<'_> {
    /// Blocks of these senders for a rank, in their order.
    fn blocks(&self, pairs: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
        pairs.flat_map(|(from, to)| block(from, to, (self.bytes)(from, to))).collect()
    }

    fn graph(
        &self,
        (collective, algorithm): (Collective, Algorithm),
        rank: u32,
    ) -> Result<Graph, CollectiveError> {
        let ranks = self.ranks;
        let root = self.root;
        let own = |other| (self.bytes)(other, root);
        let sizes = Sizes::each(&(0..ranks).map(own).collect::<Vec<_>>())?;
        match collective {
            Collective::Allgather => allgather::graph(algorithm, rank, &sizes),
            Collective::Gather => gather::graph(algorithm, rank, root, &sizes, tuning(4, 2)),
            Collective::Scatter => {
                let of_root: Vec<u64> = (0..ranks).map(|to| (self.bytes)(root, to)).collect();
                let sizes = Sizes::each(&of_root)?;
                scatter::graph(algorithm, rank, root, &sizes, tuning(4, 2))
            }
            Collective::Bcast => {
                bcast::graph(algorithm, rank, ranks, root, own(root), tuning(6, 3))
            }
            _ if self.are_equal => alltoall::graph(algorithm, rank, ranks, own(root), tuning(1, 4)),
            _ => {
                let sent: Vec<u64> = (0..ranks).map(|to| (self.bytes)(rank, to)).collect();
                let received: Vec<u64> = (0..ranks).map(|from| (self.bytes)(from, rank)).collect();
                alltoall::graph_v(algorithm, rank, &sent, &received)
            }
        }
    }

    /// Input and output of a rank.
    fn contents(&self, collective: Collective, rank: u32) -> (Vec<u8>, Vec<u8>) {
        let all = 0..self.ranks;
        let root = self.root;
        let one = std::iter::once;
        let is_root = rank == root;
        match collective {
            // Every block is one for the root.
            Collective::Allgather => {
                let own = self.blocks(one((rank, root)));
                (own, self.blocks(all.map(|from| (from, root))))
            }
            Collective::Gather => {
                let gathered = self.blocks(all.filter(|_| is_root).map(|from| (from, root)));
                (self.blocks(one((rank, root))), gathered)
            }
            Collective::Scatter => {
                let scattered = self.blocks(all.filter(|_| is_root).map(|to| (root, to)));
                (scattered, self.blocks(one((root, rank))))
            }
            Collective::Bcast => (self.blocks(one((root, root))), self.blocks(one((root, root)))),
            _ => {
                let sent = self.blocks(all.clone().map(|to| (rank, to)));
                (sent, self.blocks(all.map(|from| (from, rank))))
            }
        }
    }

    fn check(&self, which: (Collective, Algorithm)) {
        let (collective, algorithm) = which;
        let graphs: Vec<Graph> =
            (0..self.ranks).map(|rank| self.graph(which, rank).unwrap()).collect();
        let contents = (0..self.ranks).map(|rank| self.contents(collective, rank));
        let (inputs, outputs): (Vec<_>, Vec<_>) = contents.unzip();
        for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
            let case = format!(
                "{collective} by {algorithm}: rank {rank} of {}, root {}",
                self.ranks, self.root
            );
            // A broadcast has one buffer; others leave their input as it is.
            assert_eq!(buffers.last(), Some(&outputs[rank]), "{case}");
            assert_eq!(buffers[0], inputs[rank], "{case}: the input");
        }
    }
}

/// Collectives that move blocks.
const COLLECTIVES: [Collective; 5] = [
    Collective::Allgather,
    Collective::Gather,
    Collective::Scatter,
    Collective::Bcast,
    Collective::Alltoall,
];

fn check_all(
    which: (Collective, Algorithm),
    are_equal: bool,
    ranks: u32,
    bytes: &dyn Fn(u32, u32) -> u64,
) {
    let has_root = !matches!(which.0, Collective::Allgather | Collective::Alltoall);
    for root in roots(ranks).take(if has_root { 3 } else { 1 }) {
        Call { ranks, root, bytes, are_equal }.check(which);
    }
}

#[test]
fn every_rank_gets_its_blocks_in_rank_order() {
    for collective in COLLECTIVES {
        for algorithm in collective.algorithms() {
            for ranks in rank_counts() {
                for bytes in [0, 1, 7, 40] {
                    check_all((collective, *algorithm), true, ranks, &|_, _| bytes);
                }
            }
        }
    }
}

#[test]
fn blocks_may_be_of_any_size() {
    for collective in COLLECTIVES {
        let takes_any = |one: &&Algorithm| match collective {
            Collective::Bcast => false,
            Collective::Alltoall => {
                use Algorithm::{Direct, Pairwise, RotatedDirect};
                matches!(**one, Direct | RotatedDirect | Pairwise)
            }
            Collective::Scatter => true,
            _ => **one != Algorithm::Join,
        };
        for algorithm in collective.algorithms().iter().filter(takes_any) {
            for ranks in rank_counts() {
                // The block of a rank, the same for all receivers, or of a pair.
                let of_rank = |rank: u32| u64::from(rank * 7 + 5) % 11 * u64::from(rank % 3);
                let bytes = |from: u32, to: u32| match collective {
                    Collective::Scatter => of_rank(to),
                    Collective::Alltoall => u64::from((from * 5 + to * 3) % 7),
                    _ => of_rank(from),
                };
                check_all((collective, *algorithm), false, ranks, &bytes);
            }
        }
    }
}

#[test]
fn a_join_needs_equal_blocks() {
    let sizes = Sizes::each(&[1, 2]).unwrap();
    assert!(allgather::graph(Algorithm::Join, 0, &sizes).is_err());
    let error = gather::graph(Algorithm::Join, 0, 0, &sizes, Tuning::default()).unwrap_err();
    assert_eq!(error, CollectiveError::NeedsEqualBlocks { algorithm: "join", instead: "binomial" });
}

#[test]
fn a_tree_gather_is_the_binomial_one() {
    let sizes = Sizes::equal(6, 24).unwrap();
    for rank in 0..6 {
        assert_eq!(
            tree_gather(rank, 6, 2, 24),
            gather::graph(Algorithm::Binomial, rank, 2, &sizes, Tuning::default())
        );
    }
}
