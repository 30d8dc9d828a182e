//! Linking: the schedules of all ranks as one program, in which every send refers to its receive.
//!
//! [`link`] is a pure function. Every rank computes it from the same schedules and obtains the same
//! tables, so the ranks need not agree on anything else. Pairs form by the rule of
//! [`matching`], in vertex order; a run only counts arrivals.
//!
//! | [`Delivery`] | condition | copies |
//! |---|---|---|
//! | immediate | the receive depends on nothing but its message, and its destination is untouched before | one, by the rank that executes the send |
//! | eager | at most [`LinkOptions::eager_limit`] bytes | two, through memory reserved for the receive; the send completes at once |
//! | rendezvous | longer | one, when both ends are ready |
//! | wildcard | the receive names no sender or no tag | decided during the run |
//!
//! A run enables an operation when its count of arrivals is its [`threshold`](OperationLink). What
//! arrives is the completion (or start) of an operation before it, its message, and, if no other
//! arrival implies it, the start of its rank.

use crate::check::{self, GlobalOptions, Problem};
use crate::compile;
use crate::graph::Access;
use crate::matching::{self, Endpoint};
use crate::schedule::{Kind, OperationRecord, SCRATCHPAD, Schedule};
use std::collections::HashMap;

/// Parameters of linking. They must be equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// Longest message, in bytes, that is sent before its receive is posted.
    pub eager_limit: u64,
    /// Longest output buffer, in bytes, that other ranks can write before its rank has started.
    pub staged_bytes: u64,
    /// Every operation is executed by its own rank.
    pub owner_runs_all: bool,
    /// `calc` operations end immediately, so any rank can execute them.
    pub skip_calc: bool,
}

/// Delivery of a message, the same at both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The operation is no message.
    None,
    /// The rank that executes the send copies the bytes to their destination and completes the
    /// receive.
    Immediate,
    /// Through memory reserved for the receive.
    Eager,
    /// One copy when both ends are ready.
    Rendezvous,
    /// Matched during the run: the number among the receiving rank's
    /// [`wildcard_sends`](LinkedRank::wildcard_sends) (a send) or
    /// [`wildcards`](LinkedRank::wildcards) (a receive).
    Wildcard(u32),
}

/// Result of linking one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationLink {
    /// Number of arrivals that enable the operation.
    pub threshold: u32,
    /// Number of arrivals from its own rank: from the operations before it and, if it is one of
    /// [`starts`](LinkedRank::starts), the start.
    pub local: u32,
    /// Rank and operation of the other end of its message.
    pub partner: Option<(u32, u32)>,
    /// Delivery of its message.
    pub delivery: Delivery,
    /// Only its own rank may execute it.
    pub owner: bool,
    /// The counter of a receive that enables other operations when it is posted (start edges). The
    /// `local` arrivals count there; the last of them posts the receive and is an arrival at the
    /// receive itself.
    pub post: Option<u32>,
}

/// A send that only a wildcard receive can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WildcardSend {
    /// The sending rank.
    pub rank: u32,
    /// Its operation.
    pub operation: u32,
    /// The tag.
    pub tag: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// The payload goes to memory at the receiver. A longer message stays in the sender's buffers
    /// until it is matched.
    pub eager: bool,
}

/// One rank's part of a linked program.
#[derive(Clone, Debug)]
pub struct LinkedRank {
    /// The rank's schedule.
    pub schedule: Schedule,
    /// The link of each operation.
    pub links: Vec<OperationLink>,
    /// Number of counters: one for each operation, then one for each [`post`](OperationLink::post).
    pub counters: u32,
    /// Number of operations without successors: a run of the rank is complete when all of them are.
    pub sinks: u32,
    /// Wildcard receives, in vertex order.
    pub wildcards: Vec<u32>,
    /// Sends of any rank to this one that only a wildcard receive can take.
    pub wildcard_sends: Vec<WildcardSend>,
    /// The operations that the start of the rank is an arrival at, in the order of the schedule.
    pub starts: Vec<u32>,
}

/// The linked schedules of all ranks.
#[derive(Clone, Debug)]
pub struct Linked {
    /// The ranks.
    pub ranks: Vec<LinkedRank>,
    /// For each join, the operation of each rank.
    pub joins: Vec<Vec<u32>>,
    /// Some operations can be executed by their own rank only.
    pub needs_owner: bool,
}

/// Checks that the schedules of all ranks, in rank order, fit together, and links them.
///
/// # Errors
/// Returns the problems that [`check::global`] finds.
///
/// ```
/// use goal::link::{Delivery, LinkOptions, link};
/// use goal::{compile::compile, graph::{Access, Graph}, limits};
///
/// let mut sender = Graph::new(0, 2);
/// let input = sender.buffer(Access::Input, 100);
/// sender.send(input, 1, 0);
/// let mut receiver = Graph::new(1, 2);
/// let output = receiver.buffer(Access::Output, 100);
/// receiver.receive(output, 0, 0);
/// let options = LinkOptions {
///     eager_limit: limits::EAGER_ON_NODE,
///     staged_bytes: limits::STAGED,
///     owner_runs_all: false,
///     skip_calc: false,
/// };
/// let linked = link(vec![compile(&sender)?, compile(&receiver)?], options).expect("they fit");
/// let receive = linked.ranks[1].links[0];
/// assert_eq!(receive.partner, Some((0, 0)));
/// assert_eq!(receive.delivery, Delivery::Immediate);
/// # Ok::<(), goal::compile::CompileError>(())
/// ```
pub fn link(schedules: Vec<Schedule>, options: LinkOptions) -> Result<Linked, Vec<Problem>> {
    let graphs: Vec<_> = schedules.iter().map(compile::decompile).collect();
    check::global(&graphs, &GlobalOptions { eager_limit: options.eager_limit })?;
    Ok(link_checked(schedules, options))
}

/// Links schedules that are known to fit together, such as those of one collective algorithm. Of
/// schedules that do not, some operations never become enabled.
pub fn link_checked(schedules: Vec<Schedule>, options: LinkOptions) -> Linked {
    let mut ranks: Vec<LinkedRank> =
        schedules.into_iter().map(|schedule| unconnected(schedule, options)).collect();
    connect(&mut ranks, options);
    for rank in &mut ranks {
        count_arrivals(rank);
        separate_posts(rank);
    }
    let joins = joins(&ranks);
    let needs_owner =
        options.owner_runs_all || ranks.iter().any(|rank| rank.links.iter().any(|link| link.owner));
    Linked { ranks, joins, needs_owner }
}

/// Returns the links of one rank before its messages are paired.
fn unconnected(schedule: Schedule, options: LinkOptions) -> LinkedRank {
    let view = schedule.view();
    let operations = view.operations();
    // Operations of a rank with the same cpu do not overlap. A `calc` occupies its rank, so its
    // rank executes all operations of that cpu.
    let mut occupied = [false; 256];
    for record in
        operations.iter().filter(|record| record.kind() == Kind::Calc && !options.skip_calc)
    {
        occupied[record.cpu as usize] = true;
    }
    let links: Vec<OperationLink> = operations
        .iter()
        .map(|record| OperationLink {
            threshold: 1,
            local: record.dependencies,
            partner: None,
            delivery: Delivery::None,
            owner: options.owner_runs_all || occupied[record.cpu as usize],
            post: None,
        })
        .collect();
    LinkedRank {
        counters: links.len() as u32,
        links,
        sinks: view.header().sink_count,
        schedule,
        wildcards: Vec::new(),
        wildcard_sends: Vec::new(),
        starts: Vec::new(),
    }
}

/// Returns the message ends of all ranks in vertex order: sends, receives.
fn endpoints(ranks: &[LinkedRank]) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for (rank, linked) in (0..).zip(ranks) {
        let view = linked.schedule.view();
        let mut order: Vec<(u32, &OperationRecord)> = (0..).zip(view.operations()).collect();
        order.sort_by_key(|(_, record)| record.vertex);
        for (operation, record) in order {
            let end = Endpoint {
                rank,
                operation,
                peer: record.peer(),
                tag: record.tag(),
                bytes: record.bytes,
            };
            match record.kind() {
                Kind::Send => sends.push(end),
                Kind::Receive => receives.push(end),
                _ => {}
            }
        }
    }
    (sends, receives)
}

/// Pairs the messages and selects the delivery of each.
fn connect(ranks: &mut [LinkedRank], options: LinkOptions) {
    let (sends, receives) = endpoints(ranks);
    let pairing = matching::pair(&sends, &receives);
    for (send, receive) in pairing.pairs {
        let delivery = delivery(&ranks[receive.rank as usize], receive.operation, options);
        let link = &mut ranks[receive.rank as usize].links[receive.operation as usize];
        link.delivery = delivery;
        link.partner = Some((send.rank, send.operation));
        let link = &mut ranks[send.rank as usize].links[send.operation as usize];
        link.delivery = delivery;
        link.partner = Some((receive.rank, receive.operation));
    }
    for (number, receive) in numbered(&pairing.wildcards) {
        let linked = &mut ranks[receive.rank as usize];
        linked.wildcards.push(receive.operation);
        linked.links[receive.operation as usize].delivery = Delivery::Wildcard(number);
    }
    for (number, send) in numbered(&pairing.open_sends) {
        let Some(peer) = send.peer else { continue };
        ranks[peer as usize].wildcard_sends.push(WildcardSend {
            rank: send.rank,
            operation: send.operation,
            tag: send.tag.unwrap_or(0),
            bytes: send.bytes,
            eager: send.bytes <= options.eager_limit,
        });
        ranks[send.rank as usize].links[send.operation as usize].delivery =
            Delivery::Wildcard(number);
    }
}

/// Selects the delivery of a paired message from its receive.
fn delivery(receiver: &LinkedRank, receive: u32, options: LinkOptions) -> Delivery {
    let record = &receiver.schedule.view().operations()[receive as usize];
    let waits_for_message_only = record.dependencies == 0 && record.start_edge_count == 0;
    if waits_for_message_only
        && !receiver.links[receive as usize].owner
        && is_untouched_before(receiver, record, options.staged_bytes)
    {
        Delivery::Immediate
    } else if record.bytes <= options.eager_limit {
        Delivery::Eager
    } else {
        Delivery::Rendezvous
    }
}

/// Numbers message ends by the rank at which they are matched.
fn numbered(ends: &[Endpoint]) -> impl Iterator<Item = (u32, Endpoint)> {
    let mut counts = HashMap::new();
    ends.iter().map(move |end| {
        // A send is matched at its destination, a wildcard receive at its own rank. A list has ends
        // of one kind only.
        let rank = if end.is_wildcard() { end.rank } else { end.peer.unwrap_or(end.rank) };
        let count = counts.entry(rank).or_insert(0u32);
        *count += 1;
        (*count - 1, *end)
    })
}

/// Returns whether nothing reads or writes the destination of an independent receive at the start
/// of a run: it lies in the scratchpad or in the staged copy of an output.
fn is_untouched_before(linked: &LinkedRank, record: &OperationRecord, staged_bytes: u64) -> bool {
    let view = linked.schedule.view();
    view.destination(record).iter().all(|block| {
        block.memory == SCRATCHPAD
            || view.buffers().get(block.memory as usize).is_some_and(|buffer| {
                buffer.access == Access::Output as u32 && buffer.length <= staged_bytes
            })
    })
}

/// Counts the arrivals that each operation waits for, and selects the operations that the start of
/// the rank is an arrival at.
///
/// An immediate message can be delivered before its rank has started the run. What it enables must
/// not access the rank's buffers before they are in place. Therefore an operation that waits for
/// immediate messages only waits for the start too; every other operation has, somewhere before it,
/// an operation that waits for the start.
fn count_arrivals(rank: &mut LinkedRank) {
    let view = rank.schedule.view();
    // The start is implied by a dependency.
    let mut implied = vec![false; view.operations().len()];
    for (index, record) in view.operations().iter().enumerate() {
        let link = &mut rank.links[index];
        let receives = record.kind() == Kind::Receive;
        let immediate = receives && link.delivery == Delivery::Immediate;
        let message = receives && matches!(link.delivery, Delivery::Eager | Delivery::Rendezvous);
        // Edges point forward, so `implied` is final for this operation.
        if !implied[index] && !immediate {
            link.local += 1;
            rank.starts.push(index as u32);
            implied[index] = true;
        }
        link.threshold = if immediate { 1 } else { link.local + u32::from(message) };
        if implied[index] {
            for successor in view.successors(record).chain(view.start_successors(record)) {
                implied[successor as usize] = true;
            }
        }
    }
}

/// Assigns a counter of its own to the posting of each receive that has start edges: the posting
/// precedes the arrival of the message.
fn separate_posts(rank: &mut LinkedRank) {
    let view = rank.schedule.view();
    for (record, link) in view.operations().iter().zip(&mut rank.links) {
        if record.kind() == Kind::Receive
            && record.start_edge_count > 0
            && matches!(link.delivery, Delivery::Eager | Delivery::Rendezvous)
        {
            link.post = Some(rank.counters);
            link.threshold = 2;
            rank.counters += 1;
        }
    }
}

/// Returns the operation of each rank for every join. The checker has established that all ranks
/// have the same number of joins.
fn joins(ranks: &[LinkedRank]) -> Vec<Vec<u32>> {
    let mut joins: Vec<Vec<u32>> = Vec::new();
    for linked in ranks {
        for (operation, record) in (0..).zip(linked.schedule.view().operations()) {
            if record.kind() == Kind::Join {
                let join = record.ordinal as usize;
                if joins.len() <= join {
                    joins.resize(join + 1, Vec::new());
                }
                joins[join].push(operation);
            }
        }
    }
    joins
}
