//! Barrier: no rank's run completes before every rank has started its own.

use crate::CollectiveError;
use crate::member::Member;
use goal::graph::{Blocks, Graph, JoinMode, Vertex};

algorithms! {
    "barrier",
    /// [`dissemination`].
    Dissemination = "dissemination",
    /// [`join`].
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws.
    ///
    /// # Errors
    /// As the algorithm's function.
    pub fn graph(self, rank: u32, ranks: u32) -> Result<Graph, CollectiveError> {
        match self {
            Algorithm::Dissemination => dissemination(rank, ranks),
            Algorithm::Join => join(rank, ranks),
        }
    }
}

/// In round k each rank tells the rank 2^k places further on that it, and everyone it has heard of, has arrived.
/// ⌈log₂ ranks⌉ rounds of empty messages; any number of ranks.
///
/// Hensgen, Finkel, Manber: "Two Algorithms for Barrier Synchronization", International Journal of Parallel
/// Programming 17(1), 1988: the dissemination algorithm.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`].
///
/// ```
/// let graph = collectives::barrier::dissemination(0, 5)?;
/// assert_eq!(graph.vertices().len(), 6); // three rounds, each a send and a receive
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn dissemination(rank: u32, ranks: u32) -> Result<Graph, CollectiveError> {
    let member = Member::new(rank, ranks)?;
    let mut graph = member.graph();
    let mut previous: Option<(Vertex, Vertex)> = None;
    for (round, distance) in member.doublings().enumerate() {
        let send = graph.send(Blocks::none(), member.after(distance), round as u32);
        let receive = graph.receive(Blocks::none(), member.before(distance), round as u32);
        if let Some((earlier_send, earlier_receive)) = previous {
            graph.requires(send, earlier_receive);
            // Messages of different rounds come from different ranks and may overtake each other. That the previous
            // send has started says that all receives before the previous one are complete, too.
            graph.irequires(send, earlier_send);
        }
        previous = Some((send, receive));
    }
    Ok(graph)
}

/// All ranks meet in one join vertex.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`].
///
/// ```
/// assert_eq!(collectives::barrier::join(0, 5)?.vertices().len(), 1);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn join(rank: u32, ranks: u32) -> Result<Graph, CollectiveError> {
    let mut graph = Member::new(rank, ranks)?.graph();
    graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
    Ok(graph)
}
