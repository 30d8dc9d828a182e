//! Barrier: no rank's run completes before every rank has started its own.

use crate::CollectiveError;
use crate::drawing::Drawing;
use crate::folding::{Folding, Role};
use crate::member::doublings;
use crate::tree::Tree;
use goal::graph::{Blocks, Graph, JoinMode};

algorithms! {
    "barrier",
    /// In round k each rank tells the rank 2^k places further on that it, and everyone it has heard
    /// of, has arrived. ⌈log₂ ranks⌉ rounds of empty messages; any number of ranks.
    ///
    /// Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", International Journal
    /// of Parallel Programming 17(1), 1988: the dissemination algorithm.
    Dissemination = "dissemination",
    /// Up a binomial tree to rank 0 and down again: 2 · (`ranks` − 1) messages, 2 · ⌊log₂ ranks⌋
    /// deep.
    ///
    /// Mellor-Crummey, Scott: "Algorithms for Scalable Synchronization on Shared-Memory
    /// Multiprocessors", ACM Transactions on Computer Systems 9(1), 1991, section 3.3: combining
    /// trees with a wake-up tree.
    Tree = "tree",
    /// In round k partners 2^k apart tell each other. ⌊log₂ ranks⌋ rounds, and two messages more on
    /// some ranks when the number of ranks is not a power of two.
    ///
    /// Brooks: "The Butterfly Barrier", International Journal of Parallel Programming 15(4), 1986.
    RecursiveDoubling = "recursive-doubling",
    /// Everyone tells rank 0, and rank 0 tells everyone. 2 · (`ranks` − 1) messages, two deep.
    ///
    /// Mellor-Crummey, Scott 1991, section 3.1: the centralised barrier.
    Flat = "flat",
    /// All ranks meet in one join vertex.
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`].
    ///
    /// ```
    /// let graph = collectives::barrier::Algorithm::Dissemination.graph(0, 5)?;
    /// assert_eq!(graph.vertices().len(), 6); // three rounds, each a send and a receive
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn graph(self, rank: u32, ranks: u32) -> Result<Graph, CollectiveError> {
        let mut drawing = Drawing::new(rank, ranks)?;
        self.draw(&mut drawing)?;
        Ok(drawing.finish())
    }

    /// Draws it for the ranks of a group.
    pub(crate) fn draw(self, drawing: &mut Drawing) -> Result<(), CollectiveError> {
        match self {
            Algorithm::Dissemination => dissemination(drawing),
            Algorithm::Tree => {
                let tree = Tree::binomial(drawing.member(), 0)?;
                come_together(drawing, &tree);
                set_free(drawing, &tree);
            }
            Algorithm::RecursiveDoubling => recursive_doubling(drawing),
            Algorithm::Flat => {
                let tree = Tree::flat(drawing.member(), 0)?;
                come_together(drawing, &tree);
                set_free(drawing, &tree);
            }
            Algorithm::Join => {
                drawing.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
            }
        }
        Ok(())
    }
}

const UP: u32 = 0;
const DOWN: u32 = 1;

/// The root of the tree hears that all have arrived.
pub(crate) fn come_together(drawing: &mut Drawing, tree: &Tree) {
    for child in tree.children.iter().rev() {
        drawing.hear(*child, UP);
    }
    if let Some(parent) = tree.parent {
        drawing.signal(parent, UP);
    }
}

/// All hear from the root of the tree.
pub(crate) fn set_free(drawing: &mut Drawing, tree: &Tree) {
    if let Some(parent) = tree.parent {
        drawing.hear(parent, DOWN);
    }
    for child in &tree.children {
        drawing.signal(*child, DOWN);
    }
}

fn dissemination(drawing: &mut Drawing) {
    let member = drawing.member();
    for (round, distance) in member.doublings().enumerate() {
        drawing.signal(member.after(distance), round as u32);
        drawing.hear(member.before(distance), round as u32);
    }
}

fn recursive_doubling(drawing: &mut Drawing) {
    let member = drawing.member();
    let folding = Folding::new(member.ranks());
    match folding.role(member.rank()) {
        Role::Folded { into } => {
            drawing.signal(into, UP);
            drawing.hear(into, DOWN);
        }
        Role::Core { position, folded } => {
            folded.into_iter().for_each(|folded| drawing.hear(folded, UP));
            for (round, distance) in doublings(folding.core()).enumerate() {
                let (partner, tag) = (folding.rank(position ^ distance), round as u32 + 2);
                drawing.signal(partner, tag);
                drawing.hear(partner, tag);
            }
            folded.into_iter().for_each(|folded| drawing.signal(folded, DOWN));
        }
    }
}
