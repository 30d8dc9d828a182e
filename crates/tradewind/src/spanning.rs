//! Communicators whose ranks are on several nodes.
//!
//! Their collectives always go by a graph, which a [`Carrier`] runs; nothing is linked. Where ranks
//! lie is known to all of them, so all draw graphs of the same algorithm. The ranks of one node
//! have a group of their own besides: memory that is used in place comes from its segment, and a
//! part of the communicator that lies on one node goes on with it alone.

mod clocks;
mod flight;
mod recording;
pub(crate) mod trial;
mod watch;

pub(crate) use flight::{Carried, Flight};
use watch::Watch;

use crate::collective::plan::Course;
use crate::communicator::{Communicator, LinkKey};
use crate::error::{Error, Result, argument};
use collectives::Tuning;
use engine::call::{Call, CallKind};
use engine::group::Group;
use goal::compile::compile;
use goal::graph::Graph;
use network::carrier::{Carrier, Context, Ticket};
use network::nodes::Nodes;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Words that ranks exchange at once, as within a node.
pub(crate) const EXCHANGE_WORDS: usize = 6;

/// What a job on several nodes has, once for all its communicators.
#[derive(Debug)]
pub(crate) struct Reach {
    /// Which rank of the job is where.
    pub(crate) nodes: Nodes,
    /// The engines between nodes, the one to be preferred first; the last one takes everything.
    pub(crate) carriers: Vec<Arc<dyn Carrier>>,
    /// Communicators that this process has numbered.
    numbered: AtomicU32,
    /// Leaves the job when the last communicator between nodes is gone.
    leave: Option<Arc<Leave>>,
}

/// Leaves a job when it is dropped.
#[derive(Debug)]
struct Leave {
    /// The engines of which this process is a rank, in the order in which it leaves them.
    carriers: Mutex<Vec<Arc<dyn Carrier>>>,
    limit: Duration,
}

impl Drop for Leave {
    fn drop(&mut self) {
        // A rank that fails is not to keep the others from learning of it.
        if std::thread::panicking() {
            return;
        }
        let deadline = Instant::now() + self.limit;
        // The agent comes last: when the last rank of a node leaves it, it waits for what the ranks
        // have sent by the other engines, too.
        let carriers = self.carriers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for carrier in carriers.drain(..) {
            // The end of a node service is reported by those that it fails.
            if let Ok(false) = carrier.drain(deadline) {
                let seconds = self.limit.as_secs_f64();
                eprintln!(
                    "tradewind: this rank leaves its job with messages that other nodes have not \
                     received within {seconds} s: complete the collectives on all ranks, or allow \
                     more time by TRADEWIND_NODE_TIMEOUT"
                );
                return;
            }
        }
    }
}

impl Reach {
    pub(crate) fn new(nodes: Nodes, carriers: Vec<Arc<dyn Carrier>>) -> Arc<Self> {
        Arc::new(Reach { nodes, carriers, numbered: AtomicU32::new(0), leave: None })
    }

    /// The same for a process that is a rank of a job, and may take so long to leave it.
    pub(crate) fn of_process(
        nodes: Nodes,
        carriers: Vec<Arc<dyn Carrier>>,
        limit: Duration,
    ) -> Arc<Self> {
        let leave = Some(Arc::new(Leave { carriers: Mutex::new(carriers.clone()), limit }));
        Arc::new(Reach { nodes, carriers, numbered: AtomicU32::new(0), leave })
    }

    /// A number that no communicator of the job has had, to be given to one whose first rank this
    /// is. So that nobody needs to be asked, one half of it is the rank.
    fn next_number(&self, rank: u32) -> Result<u32> {
        const HALF: u32 = 16;
        let count = self.numbered.fetch_add(1, Ordering::Relaxed) + 1;
        if rank >> HALF == 0 && count >> HALF == 0 {
            return Ok(rank << HALF | count);
        }
        let found = format!("{count}, made by rank {rank}");
        Err(argument(
            "the number of a communicator between nodes",
            found,
            "below 65536, and its first rank too",
        ))
    }
}

/// What a communicator has whose ranks are on several nodes.
#[derive(Debug)]
pub(crate) struct Span {
    reach: Arc<Reach>,
    /// Those of its ranks that are on this node.
    group: Arc<Group>,
    context: Context,
    /// Collectives started.
    sequence: AtomicU64,
    /// Schedules that an engine was to take.
    programs: AtomicU64,
    /// Begun when a rank first waits long for an engine that does not notice who is gone.
    watch: OnceLock<Watch>,
}

impl Span {
    /// All ranks of a job.
    pub(crate) fn world(reach: Arc<Reach>, group: &Arc<Group>, rank: u32) -> Arc<Self> {
        let (members, group) = ((0..reach.nodes.ranks()).collect(), Arc::clone(group));
        Arc::new(Span {
            reach,
            group,
            context: Context { number: 0, members, rank },
            sequence: AtomicU64::new(0),
            programs: AtomicU64::new(0),
            watch: OnceLock::new(),
        })
    }

    /// The same ranks with another engine before the others, for what it takes. Runs are numbered
    /// on.
    pub(crate) fn preferring(&self, carrier: Arc<dyn Carrier>) -> Arc<Self> {
        let Reach { nodes, carriers, leave, .. } = &*self.reach;
        if let Some(leave) = leave {
            let mut left = leave.carriers.lock().unwrap_or_else(PoisonError::into_inner);
            left.insert(0, Arc::clone(&carrier));
        }
        let carriers = [carrier].into_iter().chain(carriers.iter().cloned()).collect();
        let (nodes, numbered, leave) = (nodes.clone(), AtomicU32::new(0), leave.clone());
        let reach = Arc::new(Reach { nodes, carriers, numbered, leave });
        let copy = |count: &AtomicU64| AtomicU64::new(count.load(Ordering::Relaxed));
        Arc::new(Span {
            reach,
            group: Arc::clone(&self.group),
            context: self.context.clone(),
            sequence: copy(&self.sequence),
            programs: copy(&self.programs),
            watch: OnceLock::new(),
        })
    }

    /// Why a run of this engine never will be complete, as far as the general engine knows; it
    /// knows of its own runs itself.
    fn verdict(&self, carrier: &Arc<dyn Carrier>, ticket: Ticket) -> Result<()> {
        let Some(general) =
            self.reach.carriers.last().filter(|general| !Arc::ptr_eq(general, carrier))
        else {
            return Ok(());
        };
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => {
                let begun = Watch::begin(self, general)?;
                self.watch.get_or_init(|| begun)
            }
        };
        watch.verdict(self, || carrier.awaited(ticket))
    }

    pub(crate) fn rank(&self) -> u32 {
        self.context.rank
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.context.members.len() as u32
    }

    /// The node of a rank, by the number that the job gives it.
    fn node_of(&self, rank: u32) -> Option<u32> {
        self.reach.nodes.of(*self.context.members.get(rank as usize)?)
    }

    /// The node of each rank.
    pub(crate) fn nodes_of_ranks(&self) -> Vec<u32> {
        (0..self.ranks()).filter_map(|rank| self.node_of(rank)).collect()
    }

    /// The rank of a rank of the job.
    fn rank_of(&self, member: u32) -> Option<u32> {
        self.context.members.iter().position(|other| *other == member).map(|rank| rank as u32)
    }

    /// How the ranks lie.
    pub(crate) fn layout(&self) -> Layout {
        let nodes = self.nodes_of_ranks();
        // The one that takes what is small enough comes first.
        let engine = self.reach.carriers.first().map_or("no", |carrier| carrier.name());
        Layout::Nodes(Spread { engine, ..Spread::of(&nodes) })
    }
}

/// How the ranks of a communicator lie on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All on one.
    OneNode,
    Nodes(Spread),
}

/// How ranks lie on several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) nodes: u32,
    /// Where each node has so many consecutive ranks, the last one perhaps fewer; two at least.
    pub(crate) ranks_per_node: Option<NonZeroU32>,
    /// The engine between them.
    pub(crate) engine: &'static str,
}

impl Spread {
    /// From the node of each rank.
    fn of(nodes: &[u32]) -> Self {
        let mut distinct = nodes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let count = distinct.len();
        let each = nodes.iter().take_while(|node| Some(*node) == nodes.first()).count();
        let regular = each > 1
            && nodes.len().div_ceil(each) == count
            && nodes.chunks(each).all(|chunk| chunk.iter().all(|node| *node == chunk[0]));
        let ranks_per_node = if regular { NonZeroU32::new(each as u32) } else { None };
        Spread { nodes: count as u32, ranks_per_node, engine: "" }
    }
}

impl Communicator {
    /// A graph of this rank, taken by an engine between nodes. With more than one of them the ranks
    /// agree which one it is, for what one rank's graph is fit for, another's may not be.
    pub(crate) fn carry(
        &self,
        span: &Arc<Span>,
        graph: &Graph,
        call: Call,
    ) -> Result<Arc<Carried>> {
        let schedule = compile(graph)?;
        let Some((general, special)) = span.reach.carriers.split_last() else {
            return Err(Error::NoCarrier);
        };
        for carrier in special {
            let taken = Carried::prepare(span, carrier, &schedule, call);
            let mine = [u64::from(taken.is_ok()), 0, 0, 0, 0, 0];
            let told = self.exchange_words(mine, Call { kind: CallKind::Link, ..call })?;
            if let (Ok(carried), true) = (taken, told.iter().all(|words| words[0] == 1)) {
                return Ok(carried);
            }
        }
        Carried::prepare(span, general, &schedule, call)
    }

    /// Every rank gives a few words and gets those of all, in rank order. Waits for all ranks.
    pub(crate) fn exchange_words(
        &self,
        words: [u64; EXCHANGE_WORDS],
        call: Call,
    ) -> Result<Vec<[u64; EXCHANGE_WORDS]>> {
        let Some(span) = self.span() else { return Ok(self.group().exchange_words(words, call)?) };
        let (tuning, levels) = (Tuning::default(), crate::algorithms::Levels::One);
        let key = LinkKey {
            call,
            algorithm: "exchange",
            tuning,
            levels,
            arguments: 0,
            sizes: Vec::new(),
        };
        let course = self.known_or(key, || {
            let graph = exchange_graph(span.rank(), span.ranks())?;
            let general = span.reach.carriers.last().ok_or(Error::NoCarrier)?;
            Ok(Course::Carried(Carried::prepare(span, general, &compile(&graph)?, call)?))
        })?;
        let Course::Carried(carried) = course else { return Err(Error::NoCarrier) };
        let mut told = vec![[0; EXCHANGE_WORDS]; span.ranks() as usize];
        let output = bytemuck::cast_slice_mut(&mut told);
        let given = [bytemuck::cast_slice(&words), &[]];
        let mut flight = carried.start_bytes(&given)?;
        flight.wait(None)?;
        flight.fetch(&mut [&mut [], output])?;
        Ok(told)
    }

    /// As [`split`](Self::split), where ranks are on several nodes: the ranks of each node divide
    /// their own group alike, each of them once, whether its part will need it or not.
    pub(crate) fn split_between_nodes(
        &self,
        span: &Arc<Span>,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Communicator>> {
        let number = span.reach.next_number(span.context.members[span.rank() as usize])?;
        let mine = [
            u64::from(color.is_some()),
            u64::from(color.unwrap_or(0)),
            key.cast_unsigned(),
            u64::from(number),
            0,
            0,
        ];
        let told = self.exchange_words(mine, Call::new(CallKind::Split, 0, 0))?;
        let mut chosen: Vec<u32> = (0..span.ranks())
            .filter(|rank| color.is_some() && told[*rank as usize][..2] == mine[..2])
            .collect();
        chosen.sort_by_key(|rank| (told[*rank as usize][2].cast_signed(), *rank));
        let rank = chosen.iter().position(|rank| *rank == span.rank()).unwrap_or(0) as u32;
        let group = self.group().split(color, i64::from(rank))?;
        let (Some(group), Some(first)) = (group, chosen.first()) else { return Ok(None) };
        if group.size() as usize == chosen.len() {
            return Ok(Some(self.part(group, None)));
        }
        let number = told[*first as usize][3] as u32;
        let members = chosen.iter().map(|rank| span.context.members[*rank as usize]).collect();
        let context = Context { number, members, rank };
        let (sequence, programs) = (AtomicU64::new(0), AtomicU64::new(0));
        let (reach, watch) = (Arc::clone(&span.reach), OnceLock::new());
        let part = Span { reach, group: Arc::clone(&group), context, sequence, programs, watch };
        Ok(Some(self.part(group, Some(Arc::new(part)))))
    }

    /// The ranks of this communicator that are on this rank's node, in the same order: those that
    /// can share memory. A collective call that waits for all ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     assert_eq!(world.split_by_node()?.size(), 3);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn split_by_node(&self) -> Result<Communicator> {
        match self.split(Some(self.node()), i64::from(self.rank()))? {
            Some(part) => Ok(part),
            None => unreachable!("every rank has a colour"),
        }
    }

    /// The number of nodes that its ranks are on.
    pub fn nodes(&self) -> u32 {
        match self.rules().layout() {
            Layout::OneNode => 1,
            Layout::Nodes(spread) => spread.nodes,
        }
    }

    /// The number of the node that this rank is on.
    pub(crate) fn node(&self) -> u32 {
        self.span().and_then(|span| span.node_of(span.rank())).unwrap_or(0)
    }

    /// Refuses what lives in memory that all ranks share.
    pub(crate) fn expect_one_node(&self, what: &'static str) -> Result<()> {
        if self.span().is_none() { Ok(()) } else { Err(Error::SeveralNodes { what }) }
    }
}

/// Everybody's words to everybody, in few rounds.
fn exchange_graph(rank: u32, ranks: u32) -> Result<Graph> {
    let sizes = collectives::Sizes::equal(ranks, (EXCHANGE_WORDS * size_of::<u64>()) as u64)?;
    Ok(collectives::allgather::Algorithm::Bruck.graph(rank, &sizes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_consecutive_ranks_have_levels() {
        let levels = |nodes: &[u32]| {
            let spread = Spread::of(nodes);
            (spread.nodes, spread.ranks_per_node.map_or(1, NonZeroU32::get))
        };
        assert_eq!(levels(&[0, 0, 1, 1]), (2, 2));
        assert_eq!(levels(&[3, 3, 3, 0, 0, 0, 1]), (3, 3), "the last may have fewer");
        assert_eq!(levels(&[0, 1]), (2, 1), "one rank a node is one level");
        assert_eq!(levels(&[0, 0, 1, 1, 1]), (2, 1), "the last has more");
        assert_eq!(levels(&[0, 0, 1, 2, 2]), (3, 1), "one in the middle has fewer");
        assert_eq!(levels(&[0, 1, 0, 1]), (2, 1), "not consecutive");
        assert_eq!(levels(&[0, 0, 1, 1, 0, 0]), (2, 1), "not consecutive");
    }

    #[test]
    fn numbers_of_communicators_are_never_the_same() {
        let reach = Reach::new(Nodes::new([0, 1]), Vec::new());
        let numbers = [
            reach.next_number(0),
            reach.next_number(0),
            reach.next_number(1),
            reach.next_number(65535),
        ];
        let mut numbers: Vec<u32> =
            numbers.into_iter().map(|number| number.expect("there are many")).collect();
        assert!(numbers.iter().all(|number| *number != 0), "that is all ranks'");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4);
        assert!(reach.next_number(65536).is_err());
    }
}
