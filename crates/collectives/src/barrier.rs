//! Barrier: no rank's run completes before every rank has started its own.
//!
//! # Algorithms
//!
//! - **dissemination**: In round k each rank signals the rank 2^k places further on that it and all
//!   ranks that have signalled it, directly or indirectly, have arrived. ⌈log₂ ranks⌉ rounds of
//!   empty messages; any number of ranks.
//!
//!   Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", International Journal
//!   of Parallel Programming 17(1), 1988: the dissemination algorithm.
//! - **tree**: Up a binomial tree to rank 0 and down again: 2 · (`ranks` − 1) messages, 2 · ⌊log₂
//!   ranks⌋ deep.
//!
//!   Mellor-Crummey, Scott: "Algorithms for Scalable Synchronization on Shared-Memory
//!   Multiprocessors", ACM Transactions on Computer Systems 9(1), 1991, section 3.3: combining
//!   trees with a wake-up tree.
//! - **recursive-doubling**: In round k partners 2^k apart signal each other. ⌊log₂ ranks⌋ rounds,
//!   and two messages more on some ranks when the number of ranks is not a power of two.
//!
//!   Brooks: "The Butterfly Barrier", International Journal of Parallel Programming 15(4), 1986.
//! - **flat**: Every rank signals rank 0, and rank 0 signals every rank. 2 · (`ranks` − 1)
//!   messages, two deep.
//!
//!   Mellor-Crummey, Scott 1991, section 3.1: the centralised barrier.
//! - **rotated-direct**: Every rank signals every other one, the next rank first. `ranks` − 1 messages
//!   a rank, one deep: no rank passes anything on.
//! - **join**: One join vertex of all ranks.

use crate::builder::GraphBuilder;
use crate::member::doublings;
use crate::power_of_two::{PowerOfTwo, Role};
use crate::tree::Tree;
use crate::{Algorithm, Collective, CollectiveError};
use goal::graph::{Blocks, Graph, JoinMode};

/// Builds the graph of an algorithm.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`].
///
/// ```
/// use collectives::{Algorithm, barrier};
///
/// let graph = barrier::graph(Algorithm::Dissemination, 0, 5)?;
/// assert_eq!(graph.vertices().len(), 6); // three rounds, each a send and a receive
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(algorithm: Algorithm, rank: u32, ranks: u32) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    build(algorithm, &mut builder)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
) -> Result<(), CollectiveError> {
    match algorithm {
        Algorithm::Dissemination => dissemination(builder),
        Algorithm::Tree => {
            let tree = Tree::binomial(builder.member(), 0)?;
            collect_arrivals(builder, &tree);
            release(builder, &tree);
        }
        Algorithm::RecursiveDoubling => recursive_doubling(builder),
        Algorithm::Flat => {
            let tree = Tree::flat(builder.member(), 0)?;
            collect_arrivals(builder, &tree);
            release(builder, &tree);
        }
        Algorithm::RotatedDirect => rotated_direct(builder),
        Algorithm::Join => {
            builder.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
        }
        other => return Err(Collective::Barrier.lacks(other).into()),
    }
    Ok(())
}

const UP: u32 = 0;
const DOWN: u32 = 1;

/// Collects signals up the tree, so that the root completes after all ranks have arrived.
pub(crate) fn collect_arrivals(builder: &mut GraphBuilder, tree: &Tree) {
    for child in tree.children.iter().rev() {
        builder.receive_signal(*child, UP);
    }
    if let Some(parent) = tree.parent {
        builder.send_signal(parent, UP);
    }
}

/// Sends signals from the root down the tree.
pub(crate) fn release(builder: &mut GraphBuilder, tree: &Tree) {
    if let Some(parent) = tree.parent {
        builder.receive_signal(parent, DOWN);
    }
    for child in &tree.children {
        builder.send_signal(*child, DOWN);
    }
}

fn rotated_direct(builder: &mut GraphBuilder) {
    let member = builder.member();
    // No signal waits for one that has arrived.
    for distance in 1..member.ranks() {
        builder.send_signal(member.after(distance), UP);
    }
    for distance in 1..member.ranks() {
        builder.receive_signal(member.before(distance), UP);
    }
}

fn dissemination(builder: &mut GraphBuilder) {
    let member = builder.member();
    for (round, distance) in member.doublings().enumerate() {
        builder.send_signal(member.after(distance), round as u32);
        builder.receive_signal(member.before(distance), round as u32);
    }
}

fn recursive_doubling(builder: &mut GraphBuilder) {
    let member = builder.member();
    let folding = PowerOfTwo::new(member.ranks());
    match folding.role(member.rank()) {
        Role::Folded { into } => {
            builder.send_signal(into, UP);
            builder.receive_signal(into, DOWN);
        }
        Role::Core { position, folded } => {
            folded.into_iter().for_each(|folded| builder.receive_signal(folded, UP));
            for (round, distance) in doublings(folding.core()).enumerate() {
                let partner = folding.rank(position ^ distance);
                let tag = round as u32 + 2;
                builder.send_signal(partner, tag);
                builder.receive_signal(partner, tag);
            }
            folded.into_iter().for_each(|folded| builder.send_signal(folded, DOWN));
        }
    }
}
