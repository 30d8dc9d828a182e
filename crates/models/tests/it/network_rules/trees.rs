//! Messages of one-to-all and all-to-one operations.

use super::network::Message;

/// Messages in the order in which they are added.
#[derive(Default)]
pub(crate) struct Schedule {
    pub(crate) messages: Vec<Message>,
}

impl Schedule {
    pub(crate) fn send(
        &mut self,
        from: u32,
        to: u32,
        bytes: u64,
        after: impl IntoIterator<Item = usize>,
    ) -> usize {
        self.messages.push(Message {
            from,
            to,
            bytes,
            after: after.into_iter().collect(),
            combined: false,
        });
        self.messages.len() - 1
    }

    pub(crate) fn send_combined(
        &mut self,
        from: u32,
        to: u32,
        bytes: u64,
        after: impl IntoIterator<Item = usize>,
    ) -> usize {
        let index = self.send(from, to, bytes, after);
        self.messages[index].combined = true;
        index
    }

    /// The messages in reverse: each receiver sends, and later messages come first.
    pub(crate) fn reversed(self, combined: bool) -> Self {
        let count = self.messages.len();
        let mut back: Vec<Message> = self
            .messages
            .iter()
            .rev()
            .map(|message| Message {
                from: message.to,
                to: message.from,
                bytes: message.bytes,
                after: Vec::new(),
                combined,
            })
            .collect();
        for (index, message) in self.messages.iter().enumerate() {
            for before in &message.after {
                back[count - 1 - before].after.push(count - 1 - index);
            }
        }
        Schedule { messages: back }
    }
}

/// The children of each rank, in the order in which it serves them. Parents have lower numbers than
/// children.
pub(crate) type Tree = Vec<Vec<u32>>;

pub(crate) fn flat(ranks: u32) -> Tree {
    (0..ranks).map(|rank| if rank == 0 { (1..ranks).collect() } else { Vec::new() }).collect()
}

pub(crate) fn chain(ranks: u32) -> Tree {
    dary(ranks, 1)
}

/// Level by level.
pub(crate) fn dary(ranks: u32, degree: u32) -> Tree {
    (0..ranks)
        .map(|rank| {
            (degree * rank + 1..=degree * rank + degree).filter(|child| *child < ranks).collect()
        })
        .collect()
}

/// The parent of a rank has its number without the lowest set bit; the largest subtree is served
/// first.
pub(crate) fn binomial(ranks: u32) -> Tree {
    let mut tree = vec![Vec::new(); ranks as usize];
    for rank in 1..ranks {
        tree[(rank & (rank - 1)) as usize].push(rank);
    }
    for children in &mut tree {
        children.sort_by_key(|child| std::cmp::Reverse(child & child.wrapping_neg()));
    }
    tree
}

/// The number of ranks in each rank's subtree.
pub(crate) fn subtrees(tree: &Tree) -> Vec<u64> {
    let mut sizes = vec![1; tree.len()];
    for rank in (0..tree.len()).rev() {
        sizes[rank] += tree[rank].iter().map(|child| sizes[*child as usize]).sum::<u64>();
    }
    sizes
}

/// Each rank passes the whole message on once it has it.
pub(crate) fn bcast(tree: &Tree, bytes: u64) -> Schedule {
    pass_on(tree, |_| bytes)
}

/// Each rank passes on what is for its children's subtrees.
pub(crate) fn scatter(tree: &Tree, bytes: u64) -> Schedule {
    let sizes = subtrees(tree);
    pass_on(tree, |child| sizes[child as usize] * bytes)
}

fn pass_on(tree: &Tree, bytes: impl Fn(u32) -> u64) -> Schedule {
    let mut schedule = Schedule::default();
    let mut arrival: Vec<Option<usize>> = vec![None; tree.len()];
    for rank in 0..tree.len() {
        for child in &tree[rank] {
            arrival[*child as usize] =
                Some(schedule.send(rank as u32, *child, bytes(*child), arrival[rank]));
        }
    }
    schedule
}

/// A request and an answer of one byte before each message.
pub(crate) fn rendezvous(tree: &Tree, bytes: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let mut arrival: Vec<Option<usize>> = vec![None; tree.len()];
    for rank in 0..tree.len() {
        for child in &tree[rank] {
            let request = schedule.send(rank as u32, *child, 1, arrival[rank]);
            let answer = schedule.send(*child, rank as u32, 1, [request]);
            arrival[*child as usize] = Some(schedule.send(rank as u32, *child, bytes, [answer]));
        }
    }
    schedule
}

/// Requests to all first, then each message when its answer has come.
pub(crate) fn flat_rendezvous_at_once(ranks: u32, bytes: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let requests: Vec<usize> = (1..ranks).map(|rank| schedule.send(0, rank, 1, [])).collect();
    let answers: Vec<usize> = (1..ranks)
        .zip(requests)
        .map(|(rank, request)| schedule.send(rank, 0, 1, [request]))
        .collect();
    for (rank, answer) in (1..ranks).zip(answers) {
        schedule.send(0, rank, bytes, [answer]);
    }
    schedule
}

/// Segments, served child by child: passed on as they come, or only when all of them have.
pub(crate) fn segmented(tree: &Tree, segment: u64, count: usize, as_they_come: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let mut arrivals: Vec<Vec<usize>> = vec![Vec::new(); tree.len()];
    for rank in 0..tree.len() {
        for child in &tree[rank] {
            arrivals[*child as usize] = (0..count)
                .map(|index| {
                    let needed = if as_they_come { index } else { count - 1 };
                    let after = arrivals[rank].get(needed).copied();
                    schedule.send(rank as u32, *child, segment, after)
                })
                .collect();
        }
    }
    schedule
}

/// The blocks of the ranks go down the chain one after the other, the one with the longest way
/// first.
pub(crate) fn pipelined_chain(ranks: u32, bytes: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let mut arrivals: Vec<Option<usize>> = vec![None; ranks as usize];
    for rank in 0..ranks.saturating_sub(1) {
        for block in (rank + 1..ranks).rev() {
            arrivals[block as usize] =
                Some(schedule.send(rank, rank + 1, bytes, arrivals[block as usize]));
        }
    }
    schedule
}

/// Two in-order binary trees over the ranks but the root, each for one half; inner ranks of one are
/// leaves of the other.
pub(crate) fn two_tree(ranks: u32, segment: u64, count: usize) -> Schedule {
    let others = ranks - 1;
    let mut children = vec![Vec::new(); ranks as usize];
    let root = in_order(1, others, &mut children);
    // In the second tree, rank r plays the part that the rank before it plays in the first; rank 1
    // that of the last.
    let second = |role: u32| role % others + 1;
    let mut schedule = Schedule::default();
    let mut first_arrivals = vec![Vec::new(); ranks as usize];
    let mut second_arrivals = vec![Vec::new(); ranks as usize];
    for _ in 0..count {
        first_arrivals[root as usize].push(schedule.send(0, root, segment, []));
        second_arrivals[root as usize].push(schedule.send(0, second(root), segment, []));
    }
    for role in from_the_top(root, &children) {
        for index in 0..count {
            for child in &children[role as usize] {
                let after = first_arrivals[role as usize][index];
                first_arrivals[*child as usize].push(schedule.send(role, *child, segment, [after]));
            }
            for child in &children[role as usize] {
                let after = second_arrivals[role as usize][index];
                second_arrivals[*child as usize].push(schedule.send(
                    second(role),
                    second(*child),
                    segment,
                    [after],
                ));
            }
        }
    }
    schedule
}

/// The tree over consecutive ranks whose root has the largest power of two of them up to itself.
/// Returns the root.
fn in_order(first: u32, count: u32, children: &mut [Vec<u32>]) -> u32 {
    let left = (1 << count.ilog2()) - 1;
    let root = first + left;
    for (start, size) in [(first, left), (root + 1, count - left - 1)] {
        if size > 0 {
            let child = in_order(start, size, children);
            children[root as usize].push(child);
        }
    }
    root
}

fn from_the_top(root: u32, children: &[Vec<u32>]) -> Vec<u32> {
    let mut order = vec![root];
    let mut next = 0;
    while let Some(rank) = order.get(next).copied() {
        order.extend(&children[rank as usize]);
        next += 1;
    }
    order
}
