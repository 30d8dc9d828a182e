//! The binomial tree over all ranks, as one rank sees it.

use crate::CollectiveError;
use crate::member::Member;

/// A rank's place in the binomial tree. With ranks renumbered so that the root is 0, the parent of
/// a rank is found by clearing its lowest set bit, so each subtree is a run of consecutive numbers.
#[derive(Clone, Debug)]
pub(crate) struct BinomialTree {
    /// The parent, except at the root.
    pub(crate) parent: Option<u32>,
    /// The children, smallest subtree first.
    pub(crate) children: Vec<Child>,
}

/// A child, with its subtree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// Its rank.
    pub(crate) rank: u32,
    /// Distance from its parent; the subtree's numbers start there.
    pub(crate) distance: u32,
    /// The number of ranks in its subtree, itself included.
    pub(crate) size: u32,
}

impl BinomialTree {
    pub(crate) fn new(member: Member, root: u32) -> Result<Self, CollectiveError> {
        let number = member.behind(root)?;
        let ranks = member.ranks();
        let mut tree = BinomialTree { parent: None, children: Vec::new() };
        for distance in member.doublings() {
            if number & distance != 0 {
                tree.parent = Some(member.before(distance));
                break;
            }
            let beyond = ranks - number;
            if distance < beyond {
                let size = distance.min(beyond - distance);
                tree.children.push(Child { rank: member.after(distance), distance, size });
            }
        }
        Ok(tree)
    }

    /// The number of ranks below this one.
    pub(crate) fn descendants(&self) -> u32 {
        self.children.iter().map(|child| child.size).sum()
    }
}
