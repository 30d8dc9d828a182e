//! Work of the busiest node: the time that all messages of a plan take of one node.
//!
//! A formula follows the longest chain of messages, and lets everything beside it run at the same
//! time. But the ranks of a node share its cores, so the overheads of all their messages add up, and
//! they share its way to the others, where one gap follows the other. Where nodes share cores, their
//! messages add up too; the built-in overheads, which were fitted to times of collectives on such
//! nodes, contain that.
//!
//! Ranks have consecutive numbers on each node, and the root is rank 0.

use super::level::Costs;
use crate::query::Query;
use collectives::{Algorithm, Choice, Collective, Levels};

/// Links of a tree that are counted. Those of farther ranks belong to nodes that do no more than
/// these.
const MOST_RANKS: u32 = 4096;

/// Returns the time that the messages of a plan take of the busiest node, in microseconds: a lower
/// bound of the plan's time. Not more than zero for plans without a known pattern of messages.
pub(super) fn of_busiest_node(
    inside: &Costs,
    between: &Costs,
    plan: &Choice,
    query: &Query,
) -> f64 {
    let here = query.ranks_per_node.clamp(1, query.ranks.max(1));
    let nodes = query.nodes();
    let Query { operation, ranks, bytes, .. } = *query;
    let tally = |members, per_node| Tally::new(inside, between, members, per_node);
    if plan.levels == Levels::One {
        let mut all = tally(ranks, here);
        all.add(operation, plan, bytes);
        return all.most();
    }
    // A part among the ranks of each node, and a part among the leaders.
    let within = |parts: &[(Collective, Algorithm, u64)]| {
        let mut node = tally(here, here);
        for (operation, algorithm, bytes) in parts {
            let choice = Choice { levels: Levels::One, algorithm: *algorithm, ..*plan };
            node.add(*operation, &choice, *bytes);
        }
        node.most()
    };
    let mut leaders = tally(nodes, 1);
    use Algorithm::{Binomial, RotatedDirect, Tree};
    use Collective as O;
    let of_node = bytes.saturating_mul(u64::from(here));
    let of_all = bytes.saturating_mul(u64::from(ranks));
    let within = match operation {
        O::Barrier => within(&[(O::Barrier, Tree, 0)]),
        O::Bcast | O::Reduce => within(&[(operation, plan.algorithm, bytes)]),
        O::Allreduce => within(&[(O::Reduce, Binomial, bytes), (O::Bcast, Binomial, bytes)]),
        O::Allgather => within(&[(O::Gather, Binomial, bytes), (O::Bcast, Binomial, of_all)]),
        O::Alltoall => {
            // Each rank sends what is for a node to the rank that leads for it, and receives what
            // has come from there; a node exchanges one message with each other one.
            let shares = of_node.saturating_mul(u64::from((nodes - 1).div_ceil(here)));
            let exchange = (O::Alltoall, RotatedDirect, shares);
            leaders.add(O::Alltoall, plan, of_node.saturating_mul(u64::from(here)));
            return within(&[exchange, exchange]) + leaders.most();
        }
        _ => return 0.0,
    };
    leaders.add(operation, plan, if operation == O::Allgather { of_node } else { bytes });
    within + leaders.most()
}

/// Time for which parts of a node are busy, in microseconds.
#[derive(Clone, Copy, Default)]
struct Busy {
    /// Its processors.
    overheads: f64,
    /// Its way to the other nodes, in both directions.
    sending: f64,
    receiving: f64,
}

impl Busy {
    fn plus(self, other: Busy) -> Busy {
        Busy {
            overheads: self.overheads + other.overheads,
            sending: self.sending + other.sending,
            receiving: self.receiving + other.receiving,
        }
    }

    fn times(self, count: f64) -> Busy {
        Busy {
            overheads: self.overheads * count,
            sending: self.sending * count,
            receiving: self.receiving * count,
        }
    }

    fn longest(self) -> f64 {
        self.overheads.max(self.sending).max(self.receiving)
    }
}

/// Messages among some members, of which so many share a node.
struct Tally<'a> {
    inside: &'a Costs,
    between: &'a Costs,
    members: u32,
    per_node: u32,
    /// Of single nodes, by number.
    nodes: Vec<Busy>,
    /// Of every node alike.
    every: Busy,
}

/// Messages of one size; each is combined with what its receiver has, if that is so.
#[derive(Clone, Copy)]
struct Messages {
    count: f64,
    bytes: u64,
    combined: bool,
}

impl Messages {
    fn one(bytes: u64) -> Self {
        Messages { count: 1.0, bytes, combined: false }
    }

    fn combined(self) -> Self {
        Messages { combined: true, ..self }
    }
}

/// Direction of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Root,
    Leaves,
}

impl<'a> Tally<'a> {
    fn new(inside: &'a Costs, between: &'a Costs, members: u32, per_node: u32) -> Self {
        let counted = members.min(MOST_RANKS).div_ceil(per_node.max(1));
        let nodes = vec![Busy::default(); counted as usize];
        Tally { inside, between, members, per_node, nodes, every: Busy::default() }
    }

    fn most(&self) -> f64 {
        let busiest = |most: f64, node: &Busy| most.max(self.every.plus(*node).longest());
        self.nodes.iter().fold(self.every.longest(), busiest)
    }

    /// Returns the time that a message takes of its sender's node.
    fn sent(&self, bytes: u64) -> Busy {
        let network = &self.between.network;
        let overheads = network.send_overhead(bytes);
        Busy { overheads, sending: network.gap(bytes), receiving: 0.0 }
    }

    /// Returns the time that it takes of its receiver's node.
    fn received(&self, bytes: u64) -> Busy {
        let network = &self.between.network;
        let overheads = network.receive_overhead(bytes);
        Busy { overheads, sending: 0.0, receiving: network.gap(bytes) }
    }

    /// Returns the time that it takes of a node with both ranks.
    fn kept(&self, bytes: u64) -> Busy {
        let network = &self.inside.network;
        let overheads = network.send_overhead(bytes) + network.receive_overhead(bytes);
        Busy { overheads, ..Busy::default() }
    }

    fn combination(&self, messages: Messages) -> Busy {
        let bytes = if messages.combined { messages.bytes as f64 } else { 0.0 };
        Busy { overheads: self.between.combine * bytes, ..Busy::default() }
    }

    fn link(&mut self, from: u32, to: u32, messages: Messages) {
        let [from, to] = [from, to].map(|member| (member / self.per_node) as usize);
        let combined = self.combination(messages);
        let parts = if from == to {
            [(from, self.kept(messages.bytes)), (to, combined)]
        } else {
            [(from, self.sent(messages.bytes)), (to, self.received(messages.bytes).plus(combined))]
        };
        for (node, busy) in parts {
            if let Some(all) = self.nodes.get_mut(node) {
                *all = all.plus(busy.times(messages.count));
            }
        }
    }

    /// Messages of every rank to a rank at a distance, of which so many of a node leave it.
    fn every_rank_sends(&mut self, leaving: f64, messages: Messages) {
        let here = f64::from(self.per_node.min(self.members));
        let across = self.sent(messages.bytes).plus(self.received(messages.bytes));
        let busy = across
            .times(leaving)
            .plus(self.kept(messages.bytes).times(here - leaving))
            .plus(self.combination(messages).times(here));
        self.every = self.every.plus(busy.times(messages.count));
    }

    /// Every rank sends to the one so much farther on, and the last ones to the first.
    fn shift(&mut self, distance: u32, messages: Messages) {
        let leaving = if self.members > self.per_node {
            distance.min(self.members - distance).min(self.per_node)
        } else {
            0
        };
        self.every_rank_sends(f64::from(leaving), messages);
    }

    /// Adds an exchange between ranks with numbers that differ in one bit. Additional messages of
    /// ranks beyond a power of two are not counted.
    fn exchange(&mut self, distance: u32, messages: Messages) {
        if self.per_node.is_power_of_two() {
            let leaving = if distance >= self.per_node { self.per_node } else { 0 };
            self.every_rank_sends(f64::from(leaving), messages);
        } else {
            self.shift(distance, messages);
        }
    }

    /// Every rank sends to every other one.
    fn all_pairs(&mut self, messages: Messages) {
        let others = f64::from(self.members - 1);
        let here = f64::from(self.per_node.min(self.members));
        let leaving = here * f64::from(self.members) - here * here;
        let count = messages.count * others;
        self.every_rank_sends(leaving / others, Messages { count, ..messages });
    }

    fn tree(
        &mut self,
        towards: Towards,
        parent: impl Fn(u32) -> u32,
        messages: impl Fn(u32) -> Messages,
    ) {
        for child in 1..self.members.min(MOST_RANKS) {
            let parent = parent(child);
            match towards {
                Towards::Root => self.link(child, parent, messages(child)),
                Towards::Leaves => self.link(parent, child, messages(child)),
            }
        }
    }

    /// Halves of halves, of the ranks of a power of two: the longest with the nearest partner, or
    /// with the farthest.
    fn halves(&mut self, bytes: u64, farthest_first: bool, combined: bool) {
        let rounds = self.members.max(1).ilog2();
        for round in 1..=rounds {
            let part = bytes.div_ceil(1 << round);
            let distance = 1 << if farthest_first { rounds - round } else { round - 1 };
            self.exchange(distance, Messages { combined, ..Messages::one(part) });
        }
    }

    /// A binomial tree towards the root in which the farthest ranks send first.
    fn gathered_halves(&mut self, bytes: u64) {
        let core = 1u32 << self.members.max(1).ilog2();
        let part = bytes.div_ceil(core.into());
        for distance in self.doublings() {
            for from in distance..(2 * distance).min(core.min(MOST_RANKS)) {
                let blocks = u64::from(core / (2 * distance));
                self.link(from, from - distance, Messages::one(part.saturating_mul(blocks)));
            }
        }
    }

    fn doublings(&self) -> impl Iterator<Item = u32> + use<> {
        let members = self.members;
        (0..32).map(|round| 1 << round).take_while(move |distance| *distance < members)
    }

    /// A binomial tree in which each rank sends or gets the blocks of its subtree.
    fn subtrees(&mut self, towards: Towards, bytes: u64) {
        let members = self.members;
        let blocks = move |child: u32| lowest_bit(child).min(members - child);
        self.tree(towards, binomial, |child| {
            Messages::one(bytes.saturating_mul(u64::from(blocks(child))))
        });
    }

    /// Adds the messages of an algorithm in one level.
    fn add(&mut self, operation: Collective, plan: &Choice, bytes: u64) {
        use Algorithm as A;
        use Collective as O;
        use Towards::{Leaves, Root};
        if self.members < 2 {
            return;
        }
        let bytes = if operation == O::Barrier { 0 } else { bytes };
        let ranks = u64::from(self.members);
        let part = bytes.div_ceil(ranks);
        let all = bytes.saturating_mul(ranks);
        let one = Messages::one(bytes);
        let rounds = f64::from(self.members - 1);
        match (operation, plan.algorithm) {
            (O::Barrier, A::Dissemination) => {
                self.doublings().for_each(|distance| self.shift(distance, one));
            }
            (O::Barrier, A::Tree) => {
                self.tree(Root, binomial, |_| one);
                self.tree(Leaves, binomial, |_| one);
            }
            (O::Barrier, A::Flat) => {
                self.tree(Root, |_| 0, |_| one);
                self.tree(Leaves, |_| 0, |_| one);
            }
            (O::Barrier | O::Allgather, A::RotatedDirect) => self.all_pairs(one),
            (O::Allreduce, A::RotatedDirect) => self.all_pairs(one.combined()),
            (O::Bcast, A::ScatterAllgather) => {
                self.subtrees(Leaves, part);
                self.shift(1, Messages { count: rounds, ..Messages::one(part) });
            }
            (O::Bcast, _) => self.tree(Leaves, parent(plan), |_| pieces(plan, bytes)),
            (O::Reduce, A::Rabenseifner) => {
                self.halves(bytes, false, true);
                self.gathered_halves(bytes);
            }
            (O::Reduce, _) => self.tree(Root, parent(plan), |_| pieces(plan, bytes).combined()),
            (O::Scatter, _) => self.blocks(Leaves, plan, bytes),
            (O::Gather, _) => self.blocks(Root, plan, bytes),
            (O::Allgather, A::Ring) => self.shift(1, Messages { count: rounds, ..one }),
            (O::Allgather, A::RecursiveDoubling) => self.doublings().for_each(|distance| {
                self.exchange(distance, Messages::one(bytes.saturating_mul(distance.into())));
            }),
            (O::Allgather, A::Bruck) => self.doublings().for_each(|distance| {
                let blocks = u64::from(distance.min(self.members - distance));
                self.shift(distance, Messages::one(bytes.saturating_mul(blocks)));
            }),
            (O::Allgather, _) => {
                self.subtrees(Root, bytes);
                self.tree(Leaves, binomial, |_| Messages::one(all));
            }
            (O::Allreduce, A::Ring) => {
                let parts = Messages { count: rounds, ..Messages::one(part) };
                self.shift(1, parts.combined());
                self.shift(1, parts);
            }
            (O::Allreduce, A::Rabenseifner) => {
                self.halves(bytes, false, true);
                self.halves(bytes, false, false);
            }
            (O::Allreduce, A::ReduceBcast) => {
                self.tree(Root, binomial, |_| one.combined());
                self.tree(Leaves, binomial, |_| one);
            }
            (O::Allreduce, A::Dissemination) => {
                self.doublings().for_each(|distance| self.shift(distance, one.combined()));
            }
            (O::Barrier | O::Allreduce, _) => self.doublings().for_each(|distance| {
                self.exchange(distance, Messages { combined: operation == O::Allreduce, ..one });
            }),
            (O::ReduceScatter, A::Ring) => {
                self.shift(1, Messages { count: rounds, ..one.combined() });
            }
            (O::ReduceScatter, A::Pairwise) => self.all_pairs(one.combined()),
            (O::ReduceScatter, A::RecursiveHalving) => self.halves(all, true, true),
            (O::ReduceScatter, _) => {
                self.tree(Root, binomial, |_| Messages::one(all).combined());
                self.subtrees(Leaves, bytes);
            }
            (O::Scan | O::Exscan, A::Chain) => {
                self.tree(Leaves, |child| child - 1, |_| one.combined());
            }
            (O::Scan | O::Exscan, _) => self.doublings().for_each(|distance| {
                // The last ranks do not send.
                let count = f64::from(self.members - distance) / f64::from(self.members);
                self.shift(distance, Messages { count, ..one.combined() });
            }),
            (O::Alltoall, A::Bruck) => self.phases(2, bytes),
            (O::Alltoall, A::Multiphase) => self.phases(plan.tuning().degree.get(), bytes),
            (O::Alltoall, _) => self.all_pairs(one),
        }
    }

    fn blocks(&mut self, towards: Towards, plan: &Choice, bytes: u64) {
        use Algorithm as A;
        let members = self.members;
        // A rank of a chain passes on the blocks of those behind it.
        let behind = move |child: u32| members - child;
        match plan.algorithm {
            A::Binomial => self.subtrees(towards, bytes),
            A::Chain => self.tree(
                towards,
                |child| child - 1,
                |child| Messages::one(bytes.saturating_mul(behind(child).into())),
            ),
            A::PipelinedChain => self.tree(
                towards,
                |child| child - 1,
                |child| Messages { count: behind(child).into(), ..Messages::one(bytes) },
            ),
            _ => self.tree(towards, |_| 0, |_| Messages::one(bytes)),
        }
    }

    /// The phases of an all-to-all of a degree.
    fn phases(&mut self, degree: u32, bytes: u64) {
        let ranks = u64::from(self.members);
        let degree = u64::from(degree.max(2));
        let mut place = 1;
        while place < ranks {
            for digit in 1..degree.min(ranks.div_ceil(place)) {
                let blocks = crate::formulas::alltoall::with_digit(ranks, place, degree, digit);
                let distance = (digit * place) as u32;
                self.shift(distance, Messages::one(blocks.saturating_mul(bytes)));
            }
            place *= degree;
        }
    }
}

fn lowest_bit(number: u32) -> u32 {
    number & number.wrapping_neg()
}

fn binomial(child: u32) -> u32 {
    child - lowest_bit(child)
}

/// The parent of a rank in the tree of a broadcast or a reduction.
fn parent(plan: &Choice) -> impl Fn(u32) -> u32 + use<> {
    use Algorithm as A;
    let degree = match plan.algorithm {
        A::Chain | A::ChainRendezvous | A::SegmentedChain => Some(1),
        // A rank is inner in one of the two trees: it sends as much as it receives.
        A::TwoTree => Some(1),
        A::Binary => Some(2),
        A::Dary => Some(plan.tuning().degree.get()),
        A::Flat | A::FlatRendezvous | A::SegmentedFlat => Some(u32::MAX),
        _ => None,
    };
    move |child| degree.map_or_else(|| binomial(child), |degree| (child - 1) / degree)
}

/// The messages that carry the bytes of a broadcast or a reduction to one rank.
fn pieces(plan: &Choice, bytes: u64) -> Messages {
    match plan.segment_bytes {
        Some(segment) => {
            let (size, count) = crate::formulas::segments(bytes, segment);
            Messages { count, ..Messages::one(size) }
        }
        None => Messages::one(bytes),
    }
}
