//! Parts down a binomial tree, then round a ring.

use crate::binomial_tree::BinomialTree;
use crate::blocks::Parts;
use crate::builder::GraphBuilder;
use crate::{CollectiveError, Sizes};
use goal::graph::Block;

const SCATTER: u32 = 0;
const RING: u32 = 1;

/// Ranks are numbered from the root, and part n is the one that rank number n gets from the tree. A
/// rank gets its subtree's parts, too, and keeps them.
pub(super) fn build(
    builder: &mut GraphBuilder,
    root: u32,
    data: Block,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let number = member.behind(root)?;
    let ranks = member.ranks();
    let parts = Parts::new(data, &Sizes::even(ranks, data.length, 1));
    let tree = BinomialTree::new(member, root)?;
    if let Some(parent) = tree.parent {
        builder.receive(parts.range(number, subtree(number, ranks)), parent, SCATTER);
    }
    for child in tree.children.iter().rev() {
        builder.send(parts.range(number + child.distance, child.size), child.rank, SCATTER);
    }
    let next = (number + 1) % ranks;
    let right = member.after(1);
    for step in 0..ranks - 1 {
        // Part by part backwards: what comes from the left in one step goes to the right in the
        // next.
        let (passed, wanted) =
            ((number + ranks - step) % ranks, (number + ranks - step - 1) % ranks);
        if !holds(next, passed, ranks) {
            builder.send(parts.at(passed), right, RING);
        }
        if !holds(number, wanted, ranks) {
            builder.receive(parts.at(wanted), member.before(1), RING);
        }
    }
    Ok(())
}

/// Returns `true` if a rank has a part from the tree.
fn holds(number: u32, part: u32, ranks: u32) -> bool {
    (number..number + subtree(number, ranks)).contains(&part)
}

/// The number of ranks below a rank, itself included.
fn subtree(number: u32, ranks: u32) -> u32 {
    if number == 0 { ranks } else { (number & number.wrapping_neg()).min(ranks - number) }
}
