//! The longest chain of messages and joins through all ranks' graphs.

use goal::depth::measure;
use goal::graph::{Block, Blocks, Graph, JoinMode, Vertex};

fn graphs(ranks: u32) -> Vec<Graph> {
    (0..ranks).map(|rank| Graph::new(rank, ranks)).collect()
}

fn data() -> Block {
    Block::unplaced(8)
}

#[test]
fn messages_that_do_not_wait_for_each_other_are_one_deep() {
    let mut graphs = graphs(3);
    for peer in [1, 2] {
        graphs[0].send(data(), peer, 0);
        graphs[peer as usize].receive(data(), 0, 0);
    }
    let depth = measure(&graphs).expect("no rank waits for ever");
    assert_eq!((depth.deepest, depth.levels), (1, vec![vec![0, 0], vec![1], vec![1]]));
}

#[test]
fn the_longest_path_leads_over_what_waits() {
    let mut graphs = graphs(3);
    let first = graphs[0].send(data(), 1, 0);
    let receive = graphs[1].receive(data(), 0, 0);
    let calc = graphs[1].calc(5);
    let send = graphs[1].send(data(), 2, 0);
    graphs[1].requires(calc, receive);
    graphs[1].requires(send, calc);
    let last = graphs[2].receive(data(), 1, 0);
    let depth = measure(&graphs).expect("no rank waits for ever");
    assert_eq!(depth.longest, [(0, first), (1, receive), (1, calc), (1, send), (2, last)]);
    assert_eq!(depth.deepest, 2);
}

#[test]
fn waiting_for_a_start_does_not_wait_for_the_message() {
    let mut graphs = graphs(2);
    graphs[0].send(data(), 1, 0);
    let receive = graphs[1].receive(data(), 0, 0);
    let calc = graphs[1].calc(1);
    graphs[1].irequires(calc, receive);
    assert_eq!(measure(&graphs).expect("no rank waits for ever").levels, [vec![0], vec![1, 0]]);
}

#[test]
fn a_join_is_a_step_for_all_and_a_broadcast_for_all_but_the_root() {
    for (mode, levels) in [(JoinMode::Barrier, [3, 3]), (JoinMode::Broadcast { root: 0 }, [1, 2])] {
        let mut graphs = graphs(2);
        graphs[1].send(data(), 0, 0);
        let receive = graphs[0].receive(data(), 1, 0);
        for graph in &mut graphs {
            let join = graph.join(mode, Blocks::none(), Blocks::none());
            if graph.rank() == 0 {
                graph.requires(join, receive);
                let second = graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
                graph.requires(second, join);
            } else {
                let second = graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
                graph.requires(second, join);
            }
        }
        let depth = measure(&graphs).expect("no rank waits for ever");
        let first = [depth.levels[0][1], depth.levels[1][1]];
        if mode == JoinMode::Barrier {
            assert_eq!(first, [2, 2], "both wait for the message to rank 0");
            assert_eq!([depth.levels[0][2], depth.levels[1][2]], levels);
        } else {
            assert_eq!(first, levels, "the root does not wait for itself");
        }
    }
}

#[test]
fn graphs_that_never_end_have_no_depth() {
    let mut cycle = graphs(2);
    for rank in [0, 1] {
        let receive = cycle[rank].receive(data(), 1 - rank as u32, 0);
        let send = cycle[rank].send(data(), 1 - rank as u32, 0);
        cycle[rank].requires(send, receive);
    }
    assert_eq!(measure(&cycle), None);
    let mut missing = Graph::new(0, 1);
    let calc = missing.calc(1);
    missing.requires(calc, Vertex(7));
    assert_eq!(measure(&[missing]), None);
    assert_eq!(measure(&[]).expect("nothing waits").deepest, 0);
}
