//! Writes the binary format.

use super::layout::{BASE, CALC, ENTRY, HEADER, MAGIC, NODE, RECEIVE, SEND};
use crate::graph::{Graph, Until};
use crate::portable::{self, ANY, NotPortable, Portable};

pub(super) fn write(graphs: &[Graph]) -> Result<Vec<u8>, NotPortable> {
    portable::check(graphs)?;
    let highest = |value: fn(&crate::graph::VertexEntry) -> u8| {
        graphs.iter().flat_map(Graph::vertices).map(value).max().unwrap_or(0)
    };
    let mut file = Vec::new();
    file.extend(MAGIC.to_le_bytes());
    file.extend((graphs.len() as u32).to_le_bytes());
    file.push(highest(|entry| entry.cpu));
    file.push(highest(|entry| entry.nic));
    file.resize(HEADER + ENTRY * graphs.len(), 0);
    for (rank, graph) in graphs.iter().enumerate() {
        let start = file.len() as u64 - BASE;
        section(&mut file, graph)?;
        let end = file.len() as u64 - BASE;
        let entry = HEADER + ENTRY * rank;
        file[entry..entry + 8].copy_from_slice(&start.to_le_bytes());
        file[entry + 8..entry + ENTRY].copy_from_slice(&end.to_le_bytes());
    }
    Ok(file)
}

/// The edges of a graph by the node they lead from.
struct Outgoing {
    complete: Vec<Vec<u32>>,
    started: Vec<Vec<u32>>,
    incoming: Vec<u32>,
}

impl Outgoing {
    fn of(graph: &Graph) -> Self {
        let nodes = graph.vertices().len();
        let mut outgoing = Outgoing {
            complete: vec![Vec::new(); nodes],
            started: vec![Vec::new(); nodes],
            incoming: vec![0; nodes],
        };
        for edge in graph.edges() {
            let lists = match edge.until {
                Until::Complete => &mut outgoing.complete,
                Until::Started => &mut outgoing.started,
            };
            lists[edge.before.index()].push(edge.after.0);
            outgoing.incoming[edge.after.index()] += 1;
        }
        outgoing
    }
}

fn section(file: &mut Vec<u8>, graph: &Graph) -> Result<(), NotPortable> {
    if u32::try_from(graph.edges().len()).is_err() {
        return Err(NotPortable::TooManyEdges { rank: graph.rank(), edges: graph.edges().len() });
    }
    let outgoing = Outgoing::of(graph);
    let nodes = graph.vertices().len();
    let roots: Vec<u32> =
        (0..nodes as u32).filter(|node| outgoing.incoming[*node as usize] == 0).collect();
    file.reserve(8 + 4 * roots.len() + NODE * nodes + 4 * graph.edges().len());
    file.extend((nodes as u32).to_le_bytes());
    file.extend((roots.len() as u32).to_le_bytes());
    file.extend(roots.iter().flat_map(|root| root.to_le_bytes()));
    let mut next_edge = 0;
    for (index, entry) in graph.vertices().iter().enumerate() {
        let (kind, peer, size, tag) = match Portable::of(graph, index)? {
            Portable::Send { bytes, peer, tag } => (SEND, peer, bytes, tag),
            Portable::Receive { bytes, source, tag } => {
                (RECEIVE, source.unwrap_or(ANY), bytes, tag.unwrap_or(ANY))
            }
            Portable::Calc { nanoseconds } => (CALC, 0, nanoseconds, 0),
        };
        file.extend(outgoing.incoming[index].to_le_bytes());
        file.push(kind);
        file.extend(peer.to_le_bytes());
        file.extend(size.to_le_bytes());
        file.extend(tag.to_le_bytes());
        file.push(entry.cpu);
        file.push(entry.nic);
        for list in [&outgoing.complete[index], &outgoing.started[index]] {
            file.extend((list.len() as u32).to_le_bytes());
            file.extend(u32::to_le_bytes(next_edge));
            next_edge += list.len() as u32;
        }
    }
    for (complete, started) in outgoing.complete.iter().zip(&outgoing.started) {
        file.extend(complete.iter().chain(started).flat_map(|target| target.to_le_bytes()));
    }
    Ok(())
}
