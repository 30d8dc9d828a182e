//! Trees over all ranks, as one rank sees them.

use crate::CollectiveError;
use crate::binomial_tree::BinomialTree;
use crate::member::Member;

/// A rank's place in a tree that data flow down from the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The parent, except at the root.
    pub(crate) parent: Option<u32>,
    /// The children, in the order in which they are served.
    pub(crate) children: Vec<u32>,
}

impl Tree {
    /// All others are children of the root.
    pub(crate) fn flat(member: Member, root: u32) -> Result<Self, CollectiveError> {
        if member.behind(root)? > 0 {
            return Ok(Tree { parent: Some(root), children: Vec::new() });
        }
        Ok(Tree {
            parent: None,
            children: (1..member.ranks()).map(|distance| member.after(distance)).collect(),
        })
    }

    /// Every rank has up to `degree` children: with ranks renumbered so that the root is 0, those
    /// of n are degree · n + 1, …, degree · n + degree.
    pub(crate) fn of_degree(
        member: Member,
        root: u32,
        degree: u32,
    ) -> Result<Self, CollectiveError> {
        let number = u64::from(member.behind(root)?);
        let degree = u64::from(degree);
        let rank = |number: u64| member.beyond(root, number as u32);
        let parent = number.checked_sub(1).map(|before| rank(before / degree));
        let first = (number * degree).saturating_add(1);
        let children = first..first.saturating_add(degree).min(u64::from(member.ranks()));
        Ok(Tree { parent, children: children.map(rank).collect() })
    }

    /// Every rank has one child, the next one.
    pub(crate) fn chain(member: Member, root: u32) -> Result<Self, CollectiveError> {
        Tree::of_degree(member, root, 1)
    }

    /// The binomial tree; the child with the largest subtree comes first.
    pub(crate) fn binomial(member: Member, root: u32) -> Result<Self, CollectiveError> {
        let tree = BinomialTree::new(member, root)?;
        Ok(Tree {
            parent: tree.parent,
            children: tree.children.iter().rev().map(|child| child.rank).collect(),
        })
    }
}
