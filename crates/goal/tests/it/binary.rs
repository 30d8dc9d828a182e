//! The binary format: its layout byte by byte, and what is refused.

use goal::binary::{BinaryError, read, write};
use goal::graph::{Access, Block, Graph, JoinMode, Vertex};
use goal::portable::NotPortable;
use proptest::prelude::*;

/// Two ranks: rank 0 computes 5 ns on cpu 2, sends 258 bytes on nic 3 with tag 7 once it has
/// started computing; rank 1 receives them from anyone with any tag, and sends nothing back. By
/// hand.
#[rustfmt::skip]
const FILE: [u8; 195] = [
    0x7f, 0x10, 0, 0, 0, 0, 0, 0,       // 0: magic, 4223
    2, 0, 0, 0,                         // 8: ranks
    2,                                  // 12: highest cpu
    3,                                  // 13: highest nic
    38, 0, 0, 0, 0, 0, 0, 0,            // 14: rank 0 starts at 38 + 8
    136, 0, 0, 0, 0, 0, 0, 0,           // 22: rank 0 ends at 136 + 8
    136, 0, 0, 0, 0, 0, 0, 0,           // 30: rank 1 starts
    187, 0, 0, 0, 0, 0, 0, 0,           // 38: rank 1 ends

    2, 0, 0, 0,                         // 46: rank 0 has two nodes
    1, 0, 0, 0,                         // 50: and one root,
    0, 0, 0, 0,                         // 54: node 0
    0, 0, 0, 0,                         // 58: node 0 depends on nothing
    3,                                  // 62: calc
    0, 0, 0, 0,                         // 63: no peer
    5, 0, 0, 0, 0, 0, 0, 0,             // 67: 5 ns
    0, 0, 0, 0,                         // 75: no tag
    2, 0,                               // 79: cpu 2, nic 0
    1, 0, 0, 0, 0, 0, 0, 0,             // 81: one edge until completion, from edge 0
    1, 0, 0, 0, 1, 0, 0, 0,             // 89: one edge until start, from edge 1
    2, 0, 0, 0,                         // 97: node 1 has two dependencies
    1,                                  // 101: send
    1, 0, 0, 0,                         // 102: to rank 1
    2, 1, 0, 0, 0, 0, 0, 0,             // 106: 258 bytes
    7, 0, 0, 0,                         // 114: tag 7
    0, 3,                               // 118: cpu 0, nic 3
    0, 0, 0, 0, 2, 0, 0, 0,             // 120: no edges until completion; they would begin at edge 2
    0, 0, 0, 0, 2, 0, 0, 0,             // 128: no edges until start
    1, 0, 0, 0,                         // 136: edge 0, from node 0's completion to node 1
    1, 0, 0, 0,                         // 140: edge 1, from node 0's start to node 1

    1, 0, 0, 0,                         // 144: rank 1 has one node
    1, 0, 0, 0,                         // 148: and one root,
    0, 0, 0, 0,                         // 152: node 0
    0, 0, 0, 0,                         // 156: which depends on nothing
    2,                                  // 160: receive
    0xff, 0xff, 0xff, 0xff,             // 161: from anyone
    2, 1, 0, 0, 0, 0, 0, 0,             // 165: 258 bytes
    0xff, 0xff, 0xff, 0xff,             // 173: of any tag
    0, 0,                               // 177: cpu 0, nic 0
    0, 0, 0, 0, 0, 0, 0, 0,             // 179: no edges
    0, 0, 0, 0, 0, 0, 0, 0,             // 187
];

fn graphs() -> [Graph; 2] {
    let mut graphs = [Graph::new(0, 2), Graph::new(1, 2)];
    let calc = graphs[0].calc(5);
    let send = graphs[0].send(Block::unplaced(258), 1, 7);
    graphs[0].requires(send, calc);
    graphs[0].irequires(send, calc);
    graphs[0].vertex_mut(calc).unwrap().cpu = 2;
    graphs[0].vertex_mut(send).unwrap().nic = 3;
    graphs[1].receive(Block::unplaced(258), None, None);
    graphs
}

#[test]
fn every_byte_is_where_the_format_says() {
    assert_eq!(write(&graphs()).unwrap(), FILE);
    assert_eq!(read(&FILE).unwrap(), graphs());
}

/// The file with some bytes replaced.
fn changed(at: usize, bytes: &[u8]) -> Result<Vec<Graph>, BinaryError> {
    let mut file = FILE;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    read(&file)
}

#[test]
fn damage_is_named() {
    use BinaryError::*;
    assert!(matches!(changed(0, &[0]), Err(Magic { found: 0x1000 })));
    assert!(matches!(changed(8, &[0]), Err(NoRanks)));
    assert!(matches!(changed(8, &[255; 4]), Err(Truncated { what: "the table of ranks", .. })));
    assert!(
        matches!(changed(12, &[1]), Err(Node { rank: 0, node: 0, .. })),
        "cpu 2 above the highest"
    );
    assert!(
        matches!(changed(13, &[2]), Err(Node { rank: 0, node: 1, .. })),
        "nic 3 above the highest"
    );
    assert!(matches!(changed(14, &[37]), Err(Section { rank: 0, start: 37, expected: 38, .. })));
    assert!(matches!(changed(22, &[40]), Err(Section { rank: 0, end: 40, .. })));
    assert!(matches!(changed(22, &[0]), Err(Section { rank: 0, end: 0, .. })));
    assert!(matches!(changed(30, &[135]), Err(Section { rank: 1, start: 135, expected: 136, .. })));
    assert!(matches!(
        changed(38, &[188]),
        Err(Truncated { what: "the section of a rank", needed: 196, found: 195 })
    ));
    assert!(matches!(changed(38, &[255; 8]), Err(Truncated { needed: u64::MAX, .. })));
    assert!(matches!(changed(38, &[186]), Err(Trailing { found: 1 })));
    assert!(matches!(changed(46, &[255; 4]), Err(SectionLength { rank: 0, nodes: u32::MAX, .. })));
    assert!(matches!(changed(50, &[255; 4]), Err(SectionLength { rank: 0, roots: u32::MAX, .. })));
    assert!(matches!(changed(54, &[1]), Err(Roots { rank: 0 })), "the root has dependencies");
    assert!(matches!(changed(54, &[2]), Err(Roots { rank: 0 })), "the root does not exist");
    assert!(matches!(changed(62, &[4]), Err(Node { rank: 0, node: 0, what: "unknown type" })));
    assert!(
        matches!(changed(102, &[255; 4]), Err(Node { rank: 0, node: 1, .. })),
        "a send to anyone"
    );
    assert!(
        matches!(changed(114, &[255; 4]), Err(Node { rank: 0, node: 1, .. })),
        "a send of any tag"
    );
    assert!(
        matches!(changed(81, &[2]), Err(Node { rank: 0, node: 0, .. })),
        "more edges than there are"
    );
    assert!(
        matches!(changed(85, &[2]), Err(Node { rank: 0, node: 0, .. })),
        "edges beyond the section"
    );
    assert!(
        matches!(changed(85, &[255; 4]), Err(Node { rank: 0, node: 0, .. })),
        "edges far beyond the section"
    );
    assert!(matches!(changed(136, &[2]), Err(Node { rank: 0, node: 0, .. })), "an edge to no node");
    assert!(matches!(
        changed(136, &[0]),
        Err(Node { rank: 0, node: 0, what: "it waits for itself" })
    ));
    assert!(
        matches!(changed(97, &[1]), Err(SectionLength { rank: 0, .. })),
        "fewer dependencies than edges"
    );
    assert!(
        matches!(changed(81, &[0]), Err(Node { rank: 0, node: 1, .. })),
        "an edge that belongs to no node"
    );
}

#[test]
fn a_text_file_is_recognised_as_none_of_ours() {
    let error = read(b"num_ranks 2\nrank 0 {\n}\n").expect_err("is text");
    assert!(error.to_string().contains("is it a text file?"), "{error}");
}

/// A file whose nodes are padded at their ends, as a program with other fields would write it.
fn with_node_size(graphs: &[Graph], size: usize) -> Vec<u8> {
    let file = write(graphs).unwrap();
    let table = 14 + 16 * graphs.len();
    let mut longer = file[..table].to_vec();
    for rank in 0..graphs.len() {
        let offset =
            |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize + 8;
        let section = &file[offset(14 + 16 * rank)..offset(22 + 16 * rank)];
        let count =
            |at: usize| u32::from_le_bytes(section[at..at + 4].try_into().unwrap()) as usize;
        let first = 8 + 4 * count(4);
        let start = longer.len() as u64 - 8;
        longer.extend(&section[..first]);
        let (nodes, edges) = section[first..].split_at(39 * count(0));
        for node in nodes.chunks(39) {
            longer.extend(&node[..size.min(39)]);
            longer.extend(std::iter::repeat_n(0, size.saturating_sub(39)));
        }
        longer.extend(edges);
        let end = longer.len() as u64 - 8;
        longer[14 + 16 * rank..22 + 16 * rank].copy_from_slice(&start.to_le_bytes());
        longer[22 + 16 * rank..30 + 16 * rank].copy_from_slice(&end.to_le_bytes());
    }
    longer
}

#[test]
fn nodes_of_another_size_are_named() {
    for size in [13, 35, 37, 40, 43, 48, 64, 256] {
        let error = read(&with_node_size(&graphs(), size)).expect_err("is another format");
        assert_eq!(error, BinaryError::NodeSize { found: size as u64 }, "{error}");
    }
    assert!(read(&with_node_size(&graphs(), 39)).is_ok());
}

#[test]
fn nodes_that_share_edges_cannot_multiply_the_file() {
    // Both nodes claim both edges.
    let mut file = FILE;
    file[120] = 2;
    file[124] = 0;
    assert!(matches!(read(&file), Err(BinaryError::Node { rank: 0, node: 1, .. })));
}

#[test]
fn what_the_format_cannot_hold_names_the_vertex() {
    let mut graph = Graph::new(0, 1);
    let block = graph.buffer(Access::InOut, 8);
    graph.timestamp(block);
    let error = write(&[graph]).expect_err("has no type");
    assert!(error.to_string().starts_with("rank 0, vertex 0: timestamp: "), "{error}");
    let mut graph = Graph::new(0, 1);
    graph.join(JoinMode::Barrier, Vec::new(), Vec::new());
    assert!(matches!(
        write(&[graph]),
        Err(BinaryError::NotPortable(NotPortable::Operation { .. }))
    ));
    let mut graph = Graph::new(0, 1);
    graph.send(Block::unplaced(1), 0, u32::MAX);
    assert!(matches!(write(&[graph]), Err(BinaryError::NotPortable(NotPortable::Reserved { .. }))));
    assert!(matches!(write(&[]), Err(BinaryError::NotPortable(NotPortable::NoRanks))));
}

/// The graph without labels, and its edges in the order in which the format keeps them.
fn comparable(graph: &Graph) -> (Graph, Vec<(u32, bool, u32)>) {
    let mut copy = Graph::new(graph.rank(), graph.ranks());
    for entry in graph.vertices() {
        let vertex = copy.add(entry.operation.clone());
        let new = copy.vertex_mut(vertex).unwrap();
        (new.cpu, new.nic) = (entry.cpu, entry.nic);
    }
    let edge = |edge: &goal::graph::Edge| {
        (edge.before.0, edge.until == goal::graph::Until::Started, edge.after.0)
    };
    let mut edges: Vec<_> = graph.edges().iter().map(edge).collect();
    // A stable sort: edges of one kind from one node keep their order.
    edges.sort_by_key(|(before, started, _)| (*before, *started));
    (copy, edges)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn reading_is_the_inverse_of_writing(graphs in crate::random_graphs::unplaced_graphs()) {
        let file = write(&graphs).unwrap();
        let again = read(&file).unwrap();
        let comparable = |graphs: &[Graph]| graphs.iter().map(comparable).collect::<Vec<_>>();
        prop_assert_eq!(comparable(&again), comparable(&graphs));
        prop_assert_eq!(write(&again).unwrap(), file);
    }

    #[test]
    fn text_and_binary_agree(graphs in crate::random_graphs::unplaced_graphs()) {
        let text = goal::text::write(&graphs).unwrap();
        prop_assert_eq!(write(&goal::text::read(&text).unwrap()).unwrap(), write(&graphs).unwrap());
    }

    #[test]
    fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..200), ranks in 0u32..4) {
        let mut file = 4223u64.to_le_bytes().to_vec();
        file.extend(ranks.to_le_bytes());
        file.extend(tail);
        let _ = read(&file);
    }
}

/// Vertices are named by position in both formats, so that messages after a conversion still fit.
#[test]
fn vertex_order_is_kept() {
    let again = read(&write(&graphs()).unwrap()).unwrap();
    assert_eq!(again[0].describe(Vertex(1)), "rank 0, vertex 1: send 258b to 1 tag 7");
}
