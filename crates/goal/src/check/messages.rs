//! Messages over all ranks: every send has its receive, and every receive its send.

use super::flow::FlowNetwork;
use super::problem::{Problem, VertexLocation};
use super::report::Report;
use crate::graph::{Graph, Operation, Vertex};
use crate::matching::{Endpoint, Pairing, pair};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Pairs all messages and adds what has no partner or another length than its partner.
pub(super) fn check(graphs: &[Graph], report: &mut Report) -> Pairing {
    let (sends, receives) = endpoints(graphs);
    let pairing = pair(&sends, &receives);
    for (send, receive) in &pairing.pairs {
        if send.bytes != receive.bytes {
            report.add(|| sizes_differ(graphs, send, receive));
        }
    }
    for receive in &pairing.lonely_receives {
        report.add(|| Problem::ReceiveWithoutSend {
            receive: place(graphs, receive),
            source_rank: receive.peer,
        });
    }
    wildcards(graphs, &pairing, report);
    pairing
}

/// All sends and all receives, in vertex order within each rank. Lengths that cannot be counted are
/// the checker of one graph's to report.
fn endpoints(graphs: &[Graph]) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for graph in graphs {
        for (index, entry) in graph.vertices().iter().enumerate() {
            let (list, data, peer, tag) = match &entry.operation {
                Operation::Send { data, peer, tag } => (&mut sends, data, Some(*peer), Some(*tag)),
                Operation::Receive { data, source, tag } => (&mut receives, data, *source, *tag),
                _ => continue,
            };
            let (rank, operation, bytes) =
                (graph.rank(), index as u32, data.bytes().unwrap_or(u64::MAX));
            list.push(Endpoint { rank, operation, peer, tag, bytes });
        }
    }
    (sends, receives)
}

pub(super) fn place(graphs: &[Graph], endpoint: &Endpoint) -> VertexLocation {
    VertexLocation::new(&graphs[endpoint.rank as usize], Vertex(endpoint.operation))
}

fn sizes_differ(graphs: &[Graph], send: &Endpoint, receive: &Endpoint) -> Problem {
    let sent = send.bytes;
    let expected = receive.bytes;
    Problem::SizesDiffer {
        send: place(graphs, send),
        receive: place(graphs, receive),
        sent,
        expected,
    }
}

/// Sends or receives that differ in nothing that matching looks at.
struct MessageClasses<Key> {
    number: HashMap<Key, usize>,
    members: Vec<Vec<Endpoint>>,
}

impl<Key: std::hash::Hash + Eq> MessageClasses<Key> {
    fn of(endpoints: &[Endpoint], key: impl Fn(&Endpoint) -> Key) -> Self {
        let mut classes = MessageClasses { number: HashMap::new(), members: Vec::new() };
        for endpoint in endpoints {
            let next = classes.members.len();
            let number = match classes.number.entry(key(endpoint)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    classes.members.push(Vec::new());
                    *unknown.insert(next)
                }
            };
            classes.members[number].push(*endpoint);
        }
        classes
    }
}

/// Returns `true` if the receives with a wildcard can take exactly the sends that are left.
///
/// The matching depends on the order of arrival, so this tests only whether any assignment exists:
/// a largest flow from classes of sends to the classes of receives that admit them, lengths being
/// equal.
fn wildcards(graphs: &[Graph], pairing: &Pairing, report: &mut Report) {
    // By class and not by message: the network stays small if thousands of messages are alike, and
    // the members of a class can stand for each other.
    let sends = MessageClasses::of(&pairing.open_sends, |send| {
        (send.peer, Some(send.rank), send.tag, send.bytes)
    });
    let receives = MessageClasses::of(&pairing.wildcards, |receive| {
        (Some(receive.rank), receive.peer, receive.tag, receive.bytes)
    });
    let source = 0;
    let sink = 1;
    let send_node = 2;
    let receive_node = 2 + sends.members.len();
    let mut network = FlowNetwork::new(receive_node + receives.members.len());
    let outflow: Vec<usize> = receives
        .members
        .iter()
        .enumerate()
        .map(|(number, members)| network.pipe(receive_node + number, sink, members.len() as u64))
        .collect();
    let mut inflow = Vec::new();
    for (number, members) in sends.members.iter().enumerate() {
        inflow.push(network.pipe(source, send_node + number, members.len() as u64));
        let send = members[0];
        // The three kinds of wildcards that admit a send. The capacity of the classes bounds the
        // flow, so the pipe between them needs no bound.
        for (peer, tag) in [(Some(send.rank), None), (None, send.tag), (None, None)] {
            if let Some(receive) = receives.number.get(&(send.peer, peer, tag, send.bytes)) {
                network.pipe(send_node + number, receive_node + receive, u64::MAX);
            }
        }
    }
    network.fill(source, sink);
    let rest = |classes: &[Vec<Endpoint>], pipes: &[usize]| -> Vec<Endpoint> {
        classes
            .iter()
            .zip(pipes)
            .flat_map(|(members, pipe)| &members[network.flow(*pipe) as usize..])
            .copied()
            .collect()
    };
    unmatched(graphs, &rest(&sends.members, &inflow), &rest(&receives.members, &outflow), report);
}

/// Receiving rank, source and tag.
type Admission = (Option<u32>, Option<u32>, Option<u32>);

/// Adds the sends and receives that no assignment matches. Where only the lengths of two differ,
/// the problem states that.
fn unmatched(graphs: &[Graph], sends: &[Endpoint], receives: &[Endpoint], report: &mut Report) {
    let mut waiting: HashMap<Admission, Vec<&Endpoint>> = HashMap::new();
    // In reverse, so that `pop` below returns the first one in vertex order.
    for receive in receives.iter().rev() {
        waiting.entry((Some(receive.rank), receive.peer, receive.tag)).or_default().push(receive);
    }
    for send in sends {
        let keys = [(Some(send.rank), None), (None, send.tag), (None, None)];
        let receive =
            keys.iter().find_map(|(peer, tag)| waiting.get_mut(&(send.peer, *peer, *tag))?.pop());
        report.add(|| match receive {
            Some(receive) => sizes_differ(graphs, send, receive),
            None => Problem::SendWithoutReceive {
                send: place(graphs, send),
                peer: send.peer.unwrap_or(0),
            },
        });
    }
    let mut left: Vec<&Endpoint> = waiting.into_values().flatten().collect();
    left.sort_unstable_by_key(|receive| (receive.rank, receive.operation));
    for receive in left {
        report.add(|| Problem::ReceiveWithoutSend {
            receive: place(graphs, receive),
            source_rank: receive.peer,
        });
    }
}
