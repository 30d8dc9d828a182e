//! Linking: all ranks' schedules meet once, every send finds its receive, and what is local to the
//! node becomes direct.
//!
//! A pure function of the schedules: every rank computes it from the same bytes and comes to the
//! same tables, so nothing but the place of the frames needs to be agreed on. Pairing is that of
//! [`goal::matching`], by vertex order; what remains for the run is to count arrivals.
//!
//! How a message travels is decided here:
//! - **early**: the receive waits for nothing but the message, and its bytes lie where nobody else
//!   looks before it. The sender's executor copies them to their destination; there is no counter.
//! - **mailbox**: up to the eager limit. The bytes go to memory kept for this receive; the send
//!   completes; the receive fetches them when all it waits for is there.
//! - **direct**: above the limit. Send and receive wait for each other and the bytes are copied
//!   once.
//! - **matched**: the receive has a wildcard; see [`crate::linked::matcher`].

use goal::check::{self, GlobalOptions, Problem};
use goal::graph::Access;
use goal::matching::{self, Endpoint};
use goal::schedule::{Kind, OperationRecord, SCRATCHPAD, Schedule, ScheduleView};

/// User buffers up to this length are always copied through the frame, even when they lie in the
/// segment: a copy of a few lines costs less than agreeing on where the buffer is.
pub(crate) const STAGED_BYTES: u64 = 8 << 10;
/// Payload that fits beside an arrival counter.
pub(crate) const NODE_PAYLOAD: u64 = 56;
/// Frames are cut into this many slots at most: so many runs of a program can be under way at once.
const SLOT_LIMIT: u64 = 16;
/// Memory for which a program's frames and long buffers are multiplied. More would drive each run's
/// memory out of the caches before its turn comes again.
const SLOT_BYTES: u64 = 4 << 20;

/// What the linker needs to know besides the schedules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    /// Longest message, in bytes, that is sent before its receive is posted.
    pub(crate) eager_limit: u64,
    /// Every operation is run by the rank whose it is (the caller engine).
    pub(crate) owner_runs_all: bool,
    /// `calc` operations end at once, so anyone may run them.
    pub(crate) skip_calc: bool,
}

/// How a receive gets its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The operation is no message.
    None,
    /// The sender's executor copies to the destination and the receive is complete.
    Immediate,
    /// Through memory at this offset of the receiver's frame.
    Eager(u64),
    /// One copy when both are ready.
    Rendezvous,
    /// Decided during the run: the number among the receiving rank's matched sends or wildcard
    /// receives.
    Wildcard(u32),
}

/// What linking found about one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Arrivals until it executes. With one there is no counter.
    pub(crate) threshold: u32,
    /// The other end of a message: rank and operation.
    pub(crate) partner: Option<(u32, u32)>,
    pub(crate) delivery: Delivery,
    /// Only its own rank may execute it.
    pub(crate) owner: bool,
    /// A receive whose posting others wait for (start edges) counts its own dependencies at this
    /// node first.
    pub(crate) post: Option<u32>,
    /// Arrivals from its own graph and its rank's start, without the message.
    pub(crate) local: u32,
}

/// Where the parts of one rank's frame lie.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameLayout {
    pub(crate) bindings: u64,
    pub(crate) nodes: u64,
    pub(crate) node_count: u32,
    pub(crate) ready: u64,
    pub(crate) ready_count: u32,
    pub(crate) matcher: u64,
    pub(crate) scratchpad: u64,
    pub(crate) bytes: u64,
}

/// One rank's part of a linked program.
#[derive(Debug)]
pub(crate) struct LinkedRank {
    pub(crate) schedule: Schedule,
    /// Operations that nobody waits for: the rank's run is complete when all of them are.
    pub(crate) sinks: u32,
    pub(crate) links: Vec<Link>,
    pub(crate) frame: FrameLayout,
    /// Where each user buffer is staged in the frame; `None` for long ones, which are bound when a
    /// run starts.
    pub(crate) staging: Vec<Option<u64>>,
    /// The byte ranges of each user buffer that operations write, merged: what a run gives back.
    pub(crate) written: Vec<Vec<(u64, u64)>>,
    /// Receives with a wildcard, in vertex order.
    pub(crate) wildcards: Vec<u32>,
    /// Sends of any rank to this one that only a wildcard can take.
    pub(crate) wildcard_sends: Vec<WildcardSend>,
    /// What starting the run sets going, in order: independent operations, and those that wait only
    /// for messages.
    pub(crate) starts: Vec<u32>,
}

/// A send that a wildcard receive takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WildcardSend {
    pub(crate) rank: u32,
    pub(crate) operation: u32,
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
    /// Where its payload waits, within the receiver's frame; `None` above the eager limit, when the
    /// sender keeps it.
    pub(crate) mail: Option<u64>,
}

/// All ranks' schedules, linked.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) ranks: Vec<LinkedRank>,
    /// For every join, the operation of each rank.
    pub(crate) joins: Vec<Vec<u32>>,
    /// Some operation waits for its owner's calls.
    pub(crate) needs_owner: bool,
    /// Runs that can be under way at once: a power of two.
    pub(crate) slots: u64,
}

/// Links the schedules of all ranks, in rank order.
pub(crate) fn link(schedules: Vec<Schedule>, options: LinkOptions) -> Result<Linked, Vec<Problem>> {
    let graphs: Vec<_> = schedules.iter().map(goal::compile::decompile).collect();
    check::global(&graphs, &GlobalOptions { eager_limit: options.eager_limit })?;
    let mut ranks: Vec<LinkedRank> =
        schedules.into_iter().map(|schedule| begin(schedule, options)).collect();
    connect(&mut ranks, options);
    ranks.iter_mut().for_each(count_arrivals);
    let joins = joins(&ranks);
    let needs_owner =
        options.owner_runs_all || ranks.iter().any(|rank| rank.links.iter().any(|link| link.owner));
    for rank in &mut ranks {
        lay_out(rank, needs_owner);
    }
    let total: u64 = ranks.iter().map(|rank| rank.frame.bytes + long_bytes(rank)).sum();
    let slots = 1 << (SLOT_BYTES / total.max(1)).clamp(2, SLOT_LIMIT).ilog2();
    Ok(Linked { ranks, joins, needs_owner, slots })
}

/// Links of one rank by themselves: messages are not connected yet.
fn begin(schedule: Schedule, options: LinkOptions) -> LinkedRank {
    let view = schedule.view();
    let operations = view.operations();
    // Operations of a rank with the same cpu do not overlap: where one of them occupies its owner,
    // its owner runs all.
    let mut occupied = [false; 256];
    for record in
        operations.iter().filter(|record| record.kind() == Kind::Calc && !options.skip_calc)
    {
        occupied[record.cpu as usize] = true;
    }
    let links = operations
        .iter()
        .map(|record| Link {
            threshold: 1,
            partner: None,
            delivery: Delivery::None,
            owner: options.owner_runs_all || occupied[record.cpu as usize],
            post: None,
            local: record.dependencies,
        })
        .collect();
    LinkedRank {
        links,
        sinks: schedule.view().header().sink_count,
        schedule,
        frame: FrameLayout::default(),
        staging: Vec::new(),
        written: Vec::new(),
        wildcards: Vec::new(),
        wildcard_sends: Vec::new(),
        starts: Vec::new(),
    }
}

/// The message ends of all ranks in vertex order: sends, receives.
fn endpoints(ranks: &[LinkedRank]) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (rank, linked) in (0..).zip(ranks) {
        let operations = linked.schedule.view().operations();
        let mut order: Vec<u32> = (0..operations.len() as u32).collect();
        order.sort_by_key(|operation| operations[*operation as usize].vertex);
        for operation in order {
            let record = &operations[operation as usize];
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

/// Gives every message its way.
fn connect(ranks: &mut [LinkedRank], options: LinkOptions) {
    let (sends, receives) = endpoints(ranks);
    let pairing = matching::pair(&sends, &receives);
    for (send, receive) in pairing.pairs {
        let linked = &ranks[receive.rank as usize];
        let record = linked.schedule.view().operations()[receive.operation as usize];
        let own = linked.links[receive.operation as usize].owner;
        let independent = record.dependencies == 0;
        let early = independent
            && !own
            && record.start_edge_count == 0
            && is_untouched_before(linked, &record);
        let delivery = if early {
            Delivery::Immediate
        } else if record.bytes <= options.eager_limit {
            Delivery::Eager(0)
        } else {
            Delivery::Rendezvous
        };
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
        let mail = (send.bytes <= options.eager_limit).then_some(0);
        let (rank, operation, tag, bytes) =
            (send.rank, send.operation, send.tag.unwrap_or(0), send.bytes);
        ranks[peer as usize].wildcard_sends.push(WildcardSend {
            rank,
            operation,
            tag,
            bytes,
            mail,
        });
        ranks[send.rank as usize].links[send.operation as usize].delivery =
            Delivery::Wildcard(number);
    }
}

/// Numbers ends by the rank at which they are matched.
fn numbered(ends: &[Endpoint]) -> impl Iterator<Item = (u32, Endpoint)> {
    let mut counts = std::collections::HashMap::new();
    ends.iter().map(move |end| {
        // A send is matched where it goes to, a wildcard receive where it is. Both lists come one
        // kind at a time, and a wildcard's own peer is its source, so its rank is the place.
        let place = if end.is_wildcard() { end.rank } else { end.peer.unwrap_or(end.rank) };
        let count = counts.entry(place).or_insert(0u32);
        *count += 1;
        (*count - 1, *end)
    })
}

/// Whether the destination of an independent receive lies where nothing is written or read at the
/// start of a run: in the scratchpad, or in the staged copy of an output.
fn is_untouched_before(linked: &LinkedRank, record: &OperationRecord) -> bool {
    let view = linked.schedule.view();
    view.destination(record).iter().all(|block| {
        block.memory == SCRATCHPAD
            || view.buffers().get(block.memory as usize).is_some_and(|buffer| {
                buffer.access == Access::Output as u32 && buffer.length <= STAGED_BYTES
            })
    })
}

/// Settles how many arrivals every operation waits for, and what starting a run sets going.
///
/// A message may be early: it comes, and is passed on, before its rank has started the run. What it
/// enables must not look at the rank's buffers before they are there. So an operation that waits
/// for early messages only waits for the start as well; all others have, somewhere behind them, an
/// operation that only the start sets going.
fn count_arrivals(rank: &mut LinkedRank) {
    let view = rank.schedule.view();
    let mut implied = vec![false; view.operations().len()];
    for (index, record) in view.operations().iter().enumerate() {
        let link = &mut rank.links[index];
        let early = link.delivery == Delivery::Immediate && record.kind() == Kind::Receive;
        let message = u32::from(
            matches!(link.delivery, Delivery::Eager(_) | Delivery::Rendezvous)
                && record.kind() == Kind::Receive,
        );
        if !implied[index] && !early {
            link.local += 1;
            rank.starts.push(index as u32);
            implied[index] = true;
        }
        link.threshold = if early { 1 } else { link.local + message };
        if implied[index] {
            for successor in view.successors(record).chain(view.start_successors(record)) {
                implied[successor as usize] = true;
            }
        }
    }
}

/// For every join, the operation of each rank. All ranks have the same number: the checker has
/// seen to it.
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

/// Decides where everything of a rank's frame lies.
fn lay_out(rank: &mut LinkedRank, needs_owner: bool) {
    let view = rank.schedule.view();
    let operations = view.operations();
    let mut end = 128u64;
    let mut take = |bytes: u64| {
        let at = end;
        end = (at + bytes).next_multiple_of(64);
        at
    };
    let mut frame =
        FrameLayout { bindings: take(8 * view.buffers().len() as u64), ..FrameLayout::default() };
    frame.node_count = operations.len() as u32;
    for (record, link) in operations.iter().zip(&mut rank.links) {
        if record.start_edge_count > 0
            && matches!(link.delivery, Delivery::Eager(_) | Delivery::Rendezvous)
            && record.kind() == Kind::Receive
        {
            link.post = Some(frame.node_count);
            link.threshold = 2;
            frame.node_count += 1;
        }
    }
    frame.nodes = take(64 * u64::from(frame.node_count));
    frame.ready_count = if needs_owner { (2 * frame.node_count).next_power_of_two() } else { 0 };
    frame.ready = take(8 * u64::from(frame.ready_count));
    let events = (rank.wildcards.len() + rank.wildcard_sends.len()) as u64;
    frame.matcher =
        take(if events > 0 { crate::linked::matcher::matcher_bytes(events) } else { 0 });
    for (index, (record, link)) in operations.iter().zip(&mut rank.links).enumerate() {
        if let Delivery::Eager(at) = &mut link.delivery
            && record.kind() == Kind::Receive
        {
            *at = if record.bytes <= NODE_PAYLOAD {
                frame.nodes + 64 * index as u64 + 8
            } else {
                take(record.bytes)
            };
        }
    }
    for send in rank.wildcard_sends.iter_mut().filter(|send| send.mail.is_some()) {
        send.mail = Some(take(send.bytes));
    }
    frame.scratchpad = take(view.header().scratchpad_bytes);
    rank.staging = view
        .buffers()
        .iter()
        .map(|buffer| (buffer.length <= STAGED_BYTES).then(|| take(buffer.length)))
        .collect();
    frame.bytes = take(0);
    rank.written = written(&view);
    rank.frame = frame;
}

/// Bytes of the user buffers that have no place in the frame: private ones get one for each slot.
fn long_bytes(rank: &LinkedRank) -> u64 {
    let view = rank.schedule.view();
    let buffers = view.buffers().iter().zip(&rank.staging);
    buffers.filter(|(_, staged)| staged.is_none()).map(|(buffer, _)| buffer.length).sum()
}

/// The byte ranges of each user buffer that operations write, as (offset, length), merged.
fn written(view: &ScheduleView<'_>) -> Vec<Vec<(u64, u64)>> {
    let mut ranges: Vec<Vec<(u64, u64)>> = vec![Vec::new(); view.buffers().len()];
    for record in view.operations().iter().filter(|record| record.kind() != Kind::Send) {
        for block in view.destination(record).iter().filter(|block| block.memory != SCRATCHPAD) {
            ranges[block.memory as usize].push((block.offset, block.length));
        }
    }
    for list in &mut ranges {
        list.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (at, length) in list.drain(..) {
            match merged.last_mut() {
                Some((start, reach)) if at <= *start + *reach => {
                    *reach = (*reach).max(at + length - *start)
                }
                _ => merged.push((at, length)),
            }
        }
        *list = merged;
    }
    ranges
}
