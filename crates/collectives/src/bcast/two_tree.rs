//! Two binary trees at once: the ranks inside the one are leaves of the other.

use crate::CollectiveError;
use crate::blocks::Segments;
use crate::builder::GraphBuilder;
use crate::tree::Tree;
use goal::graph::Block;

/// Segments go down the trees in turn. Sanders, Speck, Träff 2009, section 3: all ranks but the
/// root, numbered 1, 2, … from it, are the nodes of both trees. In the first tree the odd numbers
/// are leaves. The second one is the mirror image of the first if the number of nodes is even, and
/// the first moved on by one otherwise.
pub(super) fn build(
    builder: &mut GraphBuilder,
    root: u32,
    data: Block,
    segments: Segments,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    let number = member.behind(root)?;
    let nodes = member.ranks() - 1;
    let trees = [Shape::Plain, Shape::of_second(nodes)].map(|shape| {
        let place = |number: u32| member.beyond(root, number);
        let tree = shape.tree(number, nodes);
        Tree {
            parent: tree.parent.map(place),
            children: tree.children.into_iter().map(place).collect(),
        }
    });
    for (index, segment) in segments.of(data).enumerate() {
        let tree = &trees[index % 2];
        let tag = index as u32 % 2;
        let received = tree.parent.map(|parent| builder.receive(segment, parent, tag));
        for child in &tree.children {
            let sent = builder.send(segment, *child, tag);
            if let Some(received) = received
                && segment.length == 0
            {
                builder.requires(sent, received);
            }
        }
    }
    Ok(())
}

/// Which node stands where in the in-order tree.
#[derive(Clone, Copy)]
enum Shape {
    Plain,
    Mirrored,
    Moved,
}

impl Shape {
    fn of_second(nodes: u32) -> Self {
        if nodes.is_multiple_of(2) { Shape::Mirrored } else { Shape::Moved }
    }

    /// The tree of the root, 0, and the nodes.
    fn tree(self, number: u32, nodes: u32) -> Tree {
        if nodes == 0 {
            return Tree::default();
        }
        let top = 1 << nodes.ilog2();
        if number == 0 {
            return Tree { parent: None, children: vec![self.node(top, nodes)] };
        }
        let position = self.position(number, nodes);
        let parent = if position == top { 0 } else { self.node(parent(position, nodes), nodes) };
        let children = children(position, nodes).map(|child| self.node(child, nodes));
        Tree { parent: Some(parent), children: children.collect() }
    }

    fn position(self, node: u32, nodes: u32) -> u32 {
        match self {
            Shape::Plain => node,
            Shape::Mirrored => nodes + 1 - node,
            Shape::Moved => {
                if node == 1 {
                    nodes
                } else {
                    node - 1
                }
            }
        }
    }

    fn node(self, position: u32, nodes: u32) -> u32 {
        match self {
            Shape::Plain => position,
            Shape::Mirrored => nodes + 1 - position,
            Shape::Moved => position % nodes + 1,
        }
    }
}

/// The children in the in-order tree over 1, 2, …, `nodes`, where the lowest set bit of a position
/// determines its height.
fn children(position: u32, nodes: u32) -> impl Iterator<Item = u32> {
    let half = (position & position.wrapping_neg()) / 2;
    let left = (half > 0).then(|| position - half);
    // Where the tree ends early, the right child is what remains of its subtree.
    let right =
        std::iter::successors((half > 0).then_some(half), |step| (*step > 1).then_some(step / 2))
            .map(move |step| position + step)
            .find(|right| *right <= nodes);
    left.into_iter().chain(right)
}

/// The parent of a position that is not the top.
fn parent(position: u32, nodes: u32) -> u32 {
    let up = |position: &u32| {
        let height = position & position.wrapping_neg();
        Some((position & !height & !(height << 1)) | height << 1)
    };
    std::iter::successors(up(&position), up).find(|parent| *parent <= nodes).unwrap_or(1)
}
