//! Reads the binary format. Every count is compared with the bytes that are there before anything
//! is allocated for it.

use super::error::BinaryError;
use super::layout::{BASE, CALC, ENTRY, HEADER, MAGIC, NODE, RECEIVE, SEND};
use crate::graph::{Block, Graph, Operation, Vertex};
use crate::portable::ANY;

pub(super) fn read(bytes: &[u8]) -> Result<Vec<Graph>, BinaryError> {
    let found = bytes.len() as u64;
    let header = bytes.get(..HEADER).ok_or(BinaryError::Truncated {
        what: "the header",
        needed: HEADER as u64,
        found,
    })?;
    let magic = u64::from_le_bytes(fixed(header, 0));
    if magic != MAGIC {
        return Err(BinaryError::Magic { found: magic });
    }
    let ranks = u32_at(header, 8);
    if ranks == 0 {
        return Err(BinaryError::NoRanks);
    }
    let sections = sections(bytes, ranks)?;
    let highest = [header[12], header[13]];
    for (rank, section) in sections.iter().enumerate() {
        if Shape::of(section).is_none() {
            return Err(other_layout(&sections, rank as u32));
        }
    }
    (0..ranks).zip(&sections).map(|(rank, section)| graph(section, rank, ranks, highest)).collect()
}

/// The bytes of each rank's section. Sections lie one behind the other, so together they are no
/// longer than the file.
fn sections(bytes: &[u8], ranks: u32) -> Result<Vec<&[u8]>, BinaryError> {
    let found = bytes.len() as u64;
    let table_end = HEADER as u64 + ENTRY as u64 * u64::from(ranks);
    if table_end > found {
        return Err(BinaryError::Truncated {
            what: "the table of ranks",
            needed: table_end,
            found,
        });
    }
    let mut expected = table_end - BASE;
    let mut sections = Vec::with_capacity(ranks as usize);
    for rank in 0..ranks {
        let entry = HEADER + ENTRY * rank as usize;
        let (start, end) =
            (u64::from_le_bytes(fixed(bytes, entry)), u64::from_le_bytes(fixed(bytes, entry + 8)));
        if start != expected || end < start || end - start < 8 {
            return Err(BinaryError::Section { rank, start, end, expected });
        }
        if end > found - BASE {
            let needed = end.saturating_add(BASE);
            return Err(BinaryError::Truncated { what: "the section of a rank", needed, found });
        }
        sections.push(&bytes[(start + BASE) as usize..(end + BASE) as usize]);
        expected = end;
    }
    match found - BASE - expected {
        0 => Ok(sections),
        found => Err(BinaryError::Trailing { found }),
    }
}

/// Offsets of the parts of a section.
struct Shape<'a> {
    roots: &'a [u8],
    nodes: &'a [u8],
    edges: &'a [u8],
}

impl<'a> Shape<'a> {
    /// Returns the parts, if the length of the section matches its counts.
    fn of(section: &'a [u8]) -> Option<Self> {
        if !fits(section, NODE as u64) {
            return None;
        }
        let nodes = u32_at(section, 0) as usize;
        let roots = u32_at(section, 4) as usize;
        let (roots, rest) = section[8..].split_at(4 * roots);
        let (nodes, edges) = rest.split_at(NODE * nodes);
        Some(Shape { roots, nodes, edges })
    }
}

/// Returns `true` if the section is as long as its roots, nodes of this size, and as many edges as
/// the nodes count at their start.
fn fits(section: &[u8], node_size: u64) -> bool {
    let length = section.len() as u64;
    let nodes = u64::from(u32_at(section, 0));
    let roots = u64::from(u32_at(section, 4));
    let first = 8 + 4 * roots;
    let edges_at = first + node_size * nodes;
    if edges_at > length {
        return false;
    }
    let dependencies = |node: u64| u64::from(u32_at(section, (first + node_size * node) as usize));
    // Each node counts fewer than 2^32 and there are fewer nodes than bytes in memory: no overflow.
    edges_at + 4 * (0..nodes).map(dependencies).sum::<u64>() == length
}

/// Message for a file with a section of a wrong length: another program's nodes,
/// or damage.
#[cold]
fn other_layout(sections: &[&[u8]], rank: u32) -> BinaryError {
    const LARGEST: u64 = 256;
    let used: Vec<&[u8]> =
        sections.iter().copied().filter(|section| u32_at(section, 0) > 0).collect();
    let candidate = (13..=LARGEST).find(|size| used.iter().all(|section| fits(section, *size)));
    match candidate {
        Some(found) if !used.is_empty() => BinaryError::NodeSize { found },
        _ => {
            let section = sections[rank as usize];
            let nodes = u32_at(section, 0);
            let roots = u32_at(section, 4);
            BinaryError::SectionLength { rank, length: section.len() as u64, nodes, roots }
        }
    }
}

/// One rank's graph.
fn graph(section: &[u8], rank: u32, ranks: u32, highest: [u8; 2]) -> Result<Graph, BinaryError> {
    let Some(Shape { roots, nodes, edges }) = Shape::of(section) else {
        return Err(other_layout(&[section], 0));
    };
    let count = nodes.len() / NODE;
    let mut graph = Graph::new(rank, ranks);
    let mut listed = 0u64;
    for (index, node) in nodes.chunks_exact(NODE).enumerate() {
        let fail = |what| BinaryError::Node { rank, node: index as u32, what };
        let vertex = graph.add(operation(node).map_err(fail)?);
        let [cpu, nic] = [node[21], node[22]];
        if cpu > highest[0] || nic > highest[1] {
            return Err(fail("its cpu or nic is higher than the highest that the header names"));
        }
        if let Some(entry) = graph.vertex_mut(vertex) {
            (entry.cpu, entry.nic) = (cpu, nic);
        }
        listed += u64::from(u32_at(node, 23)) + u64::from(u32_at(node, 31));
        // Before any of them is followed, or nodes that share edges could multiply the file.
        if listed > edges.len() as u64 / 4 {
            return Err(fail("it and the nodes before it have more edges than the section holds"));
        }
    }
    let mut incoming = vec![0u32; count];
    for (index, node) in nodes.chunks_exact(NODE).enumerate() {
        let fail = |what| BinaryError::Node { rank, node: index as u32, what };
        for (is_start, at) in [(false, 23), (true, 31)] {
            for target in targets(edges, u32_at(node, at), u32_at(node, at + 4)).map_err(fail)? {
                let waiting =
                    incoming.get_mut(target as usize).ok_or(fail("an edge leads to no node"))?;
                if target as usize == index {
                    return Err(fail("it waits for itself"));
                }
                *waiting += 1;
                let after = Vertex(target);
                let before = Vertex(index as u32);
                if is_start {
                    graph.irequires(after, before)
                } else {
                    graph.requires(after, before)
                }
            }
        }
    }
    for (index, (node, incoming)) in nodes.chunks_exact(NODE).zip(&incoming).enumerate() {
        if u32_at(node, 0) != *incoming {
            let what = "its number of dependencies is not that of the edges that lead here";
            return Err(BinaryError::Node { rank, node: index as u32, what });
        }
    }
    check_roots(roots, incoming, rank)?;
    Ok(graph)
}

fn operation(node: &[u8]) -> Result<Operation, &'static str> {
    let peer = u32_at(node, 5);
    let size = u64::from_le_bytes(fixed(node, 9));
    let tag = u32_at(node, 17);
    let named = |number: u32| (number != ANY).then_some(number);
    let data = Block::unplaced(size).into();
    match node[4] {
        SEND if peer == ANY || tag == ANY => Err("a send to any rank or with any tag"),
        SEND => Ok(Operation::Send { data, peer, tag }),
        RECEIVE => Ok(Operation::Receive { data, source: named(peer), tag: named(tag) }),
        CALC => Ok(Operation::Calc { nanoseconds: size }),
        _ => Err("unknown type"),
    }
}

/// A node's edges of one kind.
fn targets(
    edges: &[u8],
    count: u32,
    first: u32,
) -> Result<impl Iterator<Item = u32>, &'static str> {
    let count =
        if count == 0 { 0..0 } else { 4 * first as usize..4 * (first as usize + count as usize) };
    let targets = edges.get(count).ok_or("its edges reach beyond the section")?;
    Ok(targets.chunks_exact(4).map(|edge| u32_at(edge, 0)))
}

/// The roots are exactly the nodes that wait for nothing, each once, in any order.
fn check_roots(roots: &[u8], incoming: Vec<u32>, rank: u32) -> Result<(), BinaryError> {
    let mut open: Vec<bool> = incoming.into_iter().map(|incoming| incoming == 0).collect();
    for root in roots.chunks_exact(4) {
        match open.get_mut(u32_at(root, 0) as usize) {
            Some(open @ true) => *open = false,
            _ => return Err(BinaryError::Roots { rank }),
        }
    }
    if open.contains(&true) { Err(BinaryError::Roots { rank }) } else { Ok(()) }
}

/// Returns the `N` bytes at `at`. The caller has checked that they exist.
fn fixed<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(fixed(bytes, at))
}
