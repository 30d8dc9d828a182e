//! Neighbour collectives move one block along every edge of any directed graph, and nothing else.

use crate::{UNTOUCHED, block, run};
use collectives::neighbor::{
    Grid, Neighborhood, Topology, balanced_dimensions, neighbor_allgather, neighbor_alltoall,
    neighbor_alltoallv,
};
use collectives::{CollectiveError, two_level};
use goal::graph::{Graph, Operation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A directed graph as each rank's lists of sources and destinations, which need not be in the same
/// order.
#[derive(Clone, Debug)]
struct Digraph {
    sources: Vec<Vec<u32>>,
    destinations: Vec<Vec<u32>>,
}

impl Digraph {
    fn neighborhoods(&self) -> Vec<Neighborhood> {
        let ranks = self.sources.len() as u32;
        let lists = self.sources.iter().zip(&self.destinations);
        let of = |(rank, (sources, destinations)): (u32, (&Vec<u32>, &Vec<u32>))| {
            Neighborhood::new(rank, ranks, sources, destinations).unwrap()
        };
        (0..ranks).zip(lists).map(of).collect()
    }

    /// For each rank and each of its sources: the position of this edge in the source's list of
    /// destinations.
    fn other_ends(&self) -> Vec<Vec<usize>> {
        let position = |rank: u32, index: usize| {
            let source = self.sources[rank as usize][index];
            let k = self.sources[rank as usize][..index]
                .iter()
                .filter(|other| **other == source)
                .count();
            let list = self.destinations[source as usize].iter().enumerate();
            list.filter(|(_, destination)| **destination == rank).nth(k).unwrap().0
        };
        (0..self.sources.len() as u32)
            .map(|rank| {
                (0..self.sources[rank as usize].len()).map(|index| position(rank, index)).collect()
            })
            .collect()
    }
}

prop_compose! {
    /// Random edges, parallel ones and loops among them; each end is listed in an order of its own.
    fn digraphs()(ranks in 1u32..10)(
        edges in prop::collection::vec((0..ranks, 0..ranks), 0..30).prop_flat_map(|edges| {
            (Just(edges.clone()).prop_shuffle(), Just(edges).prop_shuffle())
        }),
        ranks in Just(ranks),
    ) -> Digraph {
        let mut digraph = Digraph {
            sources: vec![Vec::new(); ranks as usize],
            destinations: vec![Vec::new(); ranks as usize],
        };
        for (from, to) in edges.0 {
            digraph.destinations[from as usize].push(to);
        }
        for (from, to) in edges.1 {
            digraph.sources[to as usize].push(from);
        }
        digraph
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_edge_carries_its_own_block(digraph in digraphs(), bytes in 0u64..20) {
        let neighborhoods = digraph.neighborhoods();
        let graphs: Vec<Graph> = neighborhoods.iter().map(|own| neighbor_alltoall(own, bytes).unwrap()).collect();
        let inputs: Vec<Vec<u8>> = (0u32..)
            .zip(&digraph.destinations)
            .map(|(rank, list)| (0..list.len() as u32).flat_map(|position| block(rank, position, bytes)).collect())
            .collect();
        let results = run(&graphs, &inputs);
        for (rank, positions) in digraph.other_ends().iter().enumerate() {
            let edges = digraph.sources[rank].iter().zip(positions);
            let expected: Vec<u8> = edges.flat_map(|(source, position)| block(*source, *position as u32, bytes)).collect();
            prop_assert_eq!(&results[rank][1], &expected, "rank {}", rank);
        }
    }

    #[test]
    fn every_edge_carries_a_block_of_its_own_size(digraph in digraphs(), salt in any::<u32>()) {
        let size = |rank: u32, position: usize| u64::from((rank * 7 + position as u32 * 5) ^ salt) % 23;
        let other_ends = digraph.other_ends();
        let graph = |(own, positions): (&Neighborhood, &Vec<usize>)| {
            let sent: Vec<u64> = (0..own.destinations().len()).map(|position| size(own.rank(), position)).collect();
            let sources = own.sources().iter().zip(positions);
            let received: Vec<u64> = sources.map(|(source, position)| size(source.rank.unwrap(), *position)).collect();
            neighbor_alltoallv(own, &sent, &received).unwrap()
        };
        let graphs: Vec<Graph> = digraph.neighborhoods().iter().zip(&other_ends).map(graph).collect();
        let edge = |rank: u32, position: usize| block(rank, position as u32, size(rank, position));
        let inputs: Vec<Vec<u8>> = (0u32..)
            .zip(&digraph.destinations)
            .map(|(rank, list)| (0..list.len()).flat_map(|position| edge(rank, position)).collect())
            .collect();
        let results = run(&graphs, &inputs);
        for (rank, positions) in other_ends.iter().enumerate() {
            let edges = digraph.sources[rank].iter().zip(positions);
            let expected: Vec<u8> = edges.flat_map(|(source, position)| edge(*source, *position)).collect();
            prop_assert_eq!(&results[rank][1], &expected, "rank {}", rank);
        }
    }

    #[test]
    fn an_allgather_brings_every_sources_block(digraph in digraphs(), bytes in 0u64..20) {
        let graphs: Vec<Graph> =
            digraph.neighborhoods().iter().map(|own| neighbor_allgather(own, bytes).unwrap()).collect();
        let inputs: Vec<Vec<u8>> = (0..graphs.len() as u32).map(|rank| block(rank, 0, bytes)).collect();
        let results = run(&graphs, &inputs);
        for (rank, sources) in digraph.sources.iter().enumerate() {
            let expected: Vec<u8> = sources.iter().flat_map(|source| block(*source, 0, bytes)).collect();
            prop_assert_eq!(&results[rank][1], &expected, "rank {}", rank);
        }
    }
}

/// On which node each rank is: any.
fn placed() -> impl Strategy<Value = (Digraph, Vec<u32>)> {
    digraphs().prop_flat_map(|digraph| {
        let ranks = digraph.sources.len();
        (Just(digraph), prop::collection::vec(0u32..4, ranks))
    })
}

/// The pairs of nodes between which messages go, one for each message.
fn between_nodes(graphs: &[Graph], nodes: &[u32]) -> Vec<(u32, u32)> {
    let node = |rank: u32| nodes[rank as usize];
    let sent = |graph: &Graph| -> Vec<(u32, u32)> {
        let peers = graph.vertices().iter().filter_map(|entry| match entry.operation {
            Operation::Send { peer, .. } => Some(peer),
            _ => None,
        });
        peers
            .map(|peer| (node(graph.rank()), node(peer)))
            .filter(|(here, there)| here != there)
            .collect()
    };
    let mut all: Vec<(u32, u32)> = graphs.iter().flat_map(sent).collect();
    all.sort_unstable();
    all
}

/// One message goes between two nodes that have edges, or two between four ranks.
fn few_messages(graphs: &[Graph], digraph: &Digraph, nodes: &[u32]) {
    let node = |rank: u32| nodes[rank as usize];
    let mut ends: BTreeMap<(u32, u32), BTreeSet<(u32, u32)>> = BTreeMap::new();
    for (from, list) in (0..).zip(&digraph.destinations) {
        for to in list.iter().filter(|to| node(**to) != node(from)) {
            ends.entry((node(from), node(*to))).or_default().insert((from, *to));
        }
    }
    let sent = between_nodes(graphs, nodes);
    let pairs: BTreeSet<(u32, u32)> = sent.iter().copied().collect();
    assert_eq!(pairs, ends.keys().copied().collect::<BTreeSet<_>>());
    for (pair, ends) in ends {
        let messages = sent.iter().filter(|other| **other == pair).count();
        let ends: Vec<(u32, u32)> = ends.into_iter().collect();
        let apart = matches!(ends[..], [(a, b), (c, d)] if a != c && b != d);
        assert!(
            messages == 1 || messages == 2 && apart,
            "{messages} messages between nodes {pair:?} for {ends:?}"
        );
    }
}

#[test]
fn two_messages_are_put_together_where_that_is_cheap() {
    // A ring of four has an edge from rank 0 to rank 1, which speaks for both; in one of eight rank
    // 0 has none to rank 3.
    for (ranks, expected) in [(4u32, 1), (8, 2)] {
        let ring = Grid::new(&[ranks], &[true]).unwrap();
        let own = |rank| Neighborhood::cartesian(&ring, rank).unwrap();
        let topology = Topology::new(&(0..ranks).map(own).collect::<Vec<_>>()).unwrap();
        let nodes: Vec<u32> = (0..ranks).map(|rank| rank / (ranks / 2)).collect();
        let graph = |rank| two_level::neighbor_alltoall(rank, &topology, &nodes, 8).unwrap();
        let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
        assert_eq!(between_nodes(&graphs, &nodes).len(), 2 * expected, "{ranks} ranks, both ways");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn two_levels_of_an_alltoall_bring_what_one_brings((digraph, nodes) in placed(), bytes in 0u64..20) {
        let neighborhoods = digraph.neighborhoods();
        let topology = Topology::new(&neighborhoods).unwrap();
        let graph = |rank| two_level::neighbor_alltoall(rank, &topology, &nodes, bytes).unwrap();
        let graphs: Vec<Graph> = (0..topology.ranks()).map(graph).collect();
        let inputs: Vec<Vec<u8>> = (0u32..)
            .zip(&digraph.destinations)
            .map(|(rank, list)| (0..list.len() as u32).flat_map(|position| block(rank, position, bytes)).collect())
            .collect();
        let in_one: Vec<Graph> = neighborhoods.iter().map(|own| neighbor_alltoall(own, bytes).unwrap()).collect();
        prop_assert_eq!(run(&graphs, &inputs), run(&in_one, &inputs));
        few_messages(&graphs, &digraph, &nodes);
    }

    #[test]
    fn two_levels_of_an_allgather_bring_what_one_brings((digraph, nodes) in placed(), bytes in 0u64..20) {
        let neighborhoods = digraph.neighborhoods();
        let topology = Topology::new(&neighborhoods).unwrap();
        let graph = |rank| two_level::neighbor_allgather(rank, &topology, &nodes, bytes).unwrap();
        let graphs: Vec<Graph> = (0..topology.ranks()).map(graph).collect();
        let inputs: Vec<Vec<u8>> = (0..graphs.len() as u32).map(|rank| block(rank, 0, bytes)).collect();
        let in_one: Vec<Graph> = neighborhoods.iter().map(|own| neighbor_allgather(own, bytes).unwrap()).collect();
        prop_assert_eq!(run(&graphs, &inputs), run(&in_one, &inputs));
        few_messages(&graphs, &digraph, &nodes);
    }
}

#[test]
fn a_block_that_several_ranks_of_a_node_want_goes_there_once() {
    // Rank 0 has a block for the ranks 1 to 4, all on the other node.
    let own = |rank| match rank {
        0 => Neighborhood::new(0, 5, &[], &[1, 2, 3, 4]),
        _ => Neighborhood::new(rank, 5, &[0], &[]),
    };
    let topology =
        Topology::new(&(0..5).map(|rank| own(rank).unwrap()).collect::<Vec<_>>()).unwrap();
    let graph = two_level::neighbor_allgather(0, &topology, &[0, 1, 1, 1, 1], 100).unwrap();
    let Operation::Send { data, .. } = &graph.vertices()[0].operation else { panic!("a send") };
    assert_eq!((graph.vertices().len(), data.bytes()), (1, Some(100)));
}

#[test]
fn edges_that_only_one_rank_lists_are_named() {
    let lists = [
        Neighborhood::new(0, 2, &[], &[1, 1]).unwrap(),
        Neighborhood::new(1, 2, &[0], &[]).unwrap(),
    ];
    let error = Topology::new(&lists).unwrap_err();
    assert_eq!(error, CollectiveError::EdgesDiffer { from: 0, to: 1, destinations: 2, sources: 1 });
}

/// In every grid, also where both neighbours in a dimension are the same rank or the rank itself:
/// what is sent in one direction arrives from the other, and blocks beyond the edge are left alone.
#[test]
fn in_a_grid_blocks_arrive_in_the_direction_they_were_sent() {
    const BYTES: u64 = 3;
    for ranks in 1..=17u32 {
        for count in 1..=3 {
            let dimensions = balanced_dimensions(ranks, count).unwrap();
            for flags in 0..1u32 << count {
                let periodic: Vec<bool> =
                    (0..count).map(|dimension| flags >> dimension & 1 == 1).collect();
                let grid = Grid::new(&dimensions, &periodic).unwrap();
                let own = |rank| Neighborhood::cartesian(&grid, rank).unwrap();
                let graphs: Vec<Graph> =
                    (0..ranks).map(|rank| neighbor_alltoall(&own(rank), BYTES).unwrap()).collect();
                let directions = 0..2 * count as u32;
                let inputs: Vec<Vec<u8>> = (0..ranks)
                    .map(|rank| {
                        directions
                            .clone()
                            .flat_map(|direction| block(rank, direction, BYTES))
                            .collect()
                    })
                    .collect();
                let topology = Topology::new(&(0..ranks).map(own).collect::<Vec<_>>()).unwrap();
                let nodes: Vec<u32> = (0..ranks).map(|rank| rank / 3).collect();
                let in_two =
                    |rank| two_level::neighbor_alltoall(rank, &topology, &nodes, BYTES).unwrap();
                let in_two: Vec<Graph> = (0..ranks).map(in_two).collect();
                assert_eq!(
                    run(&in_two, &inputs),
                    run(&graphs, &inputs),
                    "{dimensions:?}, periodic {periodic:?}"
                );
                for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
                    let sources = own(rank as u32);
                    let arriving = directions.clone().zip(sources.sources()).flat_map(
                        |(direction, source)| {
                            let untouched = vec![UNTOUCHED; BYTES as usize];
                            source
                                .rank
                                .map_or(untouched, |source| block(source, direction ^ 1, BYTES))
                        },
                    );
                    let expected: Vec<u8> = arriving.collect();
                    assert_eq!(
                        buffers[1], expected,
                        "rank {rank} in {dimensions:?}, periodic {periodic:?}"
                    );
                }
            }
        }
    }
}
