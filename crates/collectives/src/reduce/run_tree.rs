//! Trees with runs of consecutive ranks as subtrees, so that contributions are combined in rank
//! order.

use crate::blocks::Segments;
use crate::builder::GraphBuilder;
use crate::fold::fold;
use crate::member::Member;
use crate::{CollectiveError, Reduction};
use goal::graph::Block;
use std::ops::Range;

/// A rank's place in a tree that data flow up to the root. The children's subtrees and the rank
/// itself, one beside the other, are a run of consecutive ranks.
#[derive(Debug, Default)]
pub(super) struct RunTree {
    parent: Option<u32>,
    /// The children below this rank, in rank order.
    lower: Vec<u32>,
    /// The children above it, in rank order.
    higher: Vec<u32>,
}

const TAG: u32 = 0;

impl RunTree {
    /// All others are children of the root.
    pub(super) fn flat(member: Member, root: u32) -> Self {
        if member.rank() == root {
            RunTree {
                parent: None,
                lower: (0..root).collect(),
                higher: (root + 1..member.ranks()).collect(),
            }
        } else {
            RunTree { parent: Some(root), ..RunTree::default() }
        }
    }

    /// Runs of 1, 2, 4, … ranks become one with the run beside them. A run is headed by the root if
    /// it is in it, by its first rank otherwise.
    pub(super) fn binomial(member: Member, root: u32) -> Self {
        let rank = member.rank();
        let ranks = member.ranks();
        let holds_root = |start: u32, size: u32| root / size == start / size;
        let head = |start: u32, size: u32| if holds_root(start, size) { root } else { start };
        let mut tree = RunTree::default();
        for size in member.doublings() {
            let start = rank / size * size;
            let beside = start ^ size;
            if beside >= ranks {
                continue;
            }
            let other = head(beside, size);
            if holds_root(beside, size) || (!holds_root(start, size) && beside < start) {
                tree.parent = Some(other);
                break;
            }
            if other < rank { tree.lower.insert(0, other) } else { tree.higher.push(other) }
        }
        tree
    }

    /// The ranks on either side of the root are shared out, as evenly as can be, among up to
    /// `degree` runs in all, but at least one on each side where there are ranks; each run is
    /// headed by the rank nearest to the root, and so on.
    pub(super) fn of_degree(member: Member, root: u32, degree: u32) -> Self {
        let mut run = 0..member.ranks();
        let mut head = root;
        let mut parent = None;
        loop {
            let (lower, higher) = shared_out(&run, head, degree);
            if head == member.rank() {
                let lower = lower.iter().map(|run| run.end - 1).collect();
                return RunTree {
                    parent,
                    lower,
                    higher: higher.iter().map(|run| run.start).collect(),
                };
            }
            parent = Some(head);
            let is_below = member.rank() < head;
            let runs = if is_below { lower } else { higher };
            // Some run holds the rank; were there none, the loop would end here.
            run = runs
                .into_iter()
                .find(|run| run.contains(&member.rank()))
                .unwrap_or(member.rank()..member.rank() + 1);
            head = if is_below { run.end - 1 } else { run.start };
        }
    }

    /// Builds it; the output is the root's.
    pub(super) fn build(
        &self,
        builder: &mut GraphBuilder,
        reduction: Reduction,
        input: Block,
        output: Option<Block>,
        segments: Segments,
    ) -> Result<(), CollectiveError> {
        for own in segments.of(input) {
            let mut operands = Vec::with_capacity(self.lower.len() + 1 + self.higher.len());
            for child in &self.lower {
                operands.push(received(builder, *child, own.length)?);
            }
            operands.push(own);
            for child in &self.higher {
                operands.push(received(builder, *child, own.length)?);
            }
            let target = output.map(|output| output.part(own.offset - input.offset, own.length));
            let combined = fold(builder, reduction, &operands, target);
            if let Some(parent) = self.parent {
                builder.send(combined, parent, TAG);
            }
        }
        Ok(())
    }
}

fn received(builder: &mut GraphBuilder, child: u32, bytes: u64) -> Result<Block, CollectiveError> {
    let block = builder.scratchpad(bytes)?;
    builder.receive(block, child, TAG);
    Ok(block)
}

/// The ranks of a run below and above its head, in runs.
fn shared_out(run: &Range<u32>, head: u32, degree: u32) -> (Vec<Range<u32>>, Vec<Range<u32>>) {
    let lower = run.start..head;
    let higher = head + 1..run.end;
    let below = u64::from(head - run.start);
    let above = u64::from(run.end - head - 1);
    let degree = u64::from(degree);
    let share = if above == 0 {
        degree
    } else {
        (degree * below / (below + above).max(1)).max(1).min(degree)
    };
    let rest = if below == 0 { degree } else { (degree - share).max(1) };
    (split(lower, share), split(higher, rest))
}

/// A run in as equal runs as can be, none of them empty.
fn split(run: Range<u32>, parts: u64) -> Vec<Range<u32>> {
    let count = u64::from(run.end - run.start);
    let parts = parts.min(count);
    let start = |part: u64| run.start + (part * count / parts) as u32;
    (0..parts).map(|part| start(part)..start(part + 1)).collect()
}
