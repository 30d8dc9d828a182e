//! Algorithms of the all-to-all.

#[cfg(doc)]
use crate::Tuning;

algorithms! {
    "alltoall",
    /// Blocks move by powers of two: in round k all blocks with 2^k in their remaining distance
    /// move 2^k ranks on, packed into one message. ⌈log₂ ranks⌉ messages a rank, each of about half
    /// the blocks; for small blocks.
    ///
    /// Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient Algorithms for All-to-All Communications in
    /// Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems
    /// 8(11), 1997: the index algorithm, with radix 2 and one port. Its first and last phases, a
    /// rotation of all blocks by the rank and the inverse, cost nothing here: scatter/gather lists
    /// name the position of each block in the input and in the output. Only blocks to be forwarded
    /// lie in the scratchpad, each time at a different position, so that all receives can be posted
    /// at once.
    Bruck = "bruck",
    /// Every rank sends to rank 0, then to rank 1, …, all at once: `ranks` − 1 messages a rank,
    /// straight from input to output. Its weakness: all ranks send to the same rank first.
    ///
    /// Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
    /// Communications" (2004), section 5: direct exchange.
    Direct = "direct",
    /// [`Direct`](Self::Direct), but step i sends to the rank i places further on and receives from
    /// the rank i places back, so that in each step every rank is the destination of exactly one
    /// other. No step waits for another: an engine takes them in vertex order as far as it can. For
    /// large blocks.
    ///
    /// Barchet-Estefanel, Mounié 2004, section 5; Thakur, Rabenseifner, Gropp: "Optimization of
    /// Collective Communication Operations in MPICH", International Journal of High Performance
    /// Computing Applications 19(1), 2005: the all-to-all for medium and long messages.
    RotatedDirect = "rotated-direct",
    /// One partner after the other: step i exchanges with rank `rank ^ i` if the number of ranks is
    /// a power of two; otherwise it is as in
    /// [`RotatedDirect`](Self::RotatedDirect). A step waits for the one before it. `ranks` − 1
    /// messages deep.
    ///
    /// Thakur, Rabenseifner, Gropp 2005: the pairwise exchange.
    Pairwise = "pairwise",
    /// One phase for each dimension of a grid of ranks: all ranks of a line exchange with each
    /// other what the line's members need or have to pass on. Extents are chosen by
    /// [`degree`](Tuning::degree), as [`phases`](crate::alltoall::phases) says.
    ///
    /// Bokhari: "Multiphase Complete Exchange on a Circuit Switched Hypercube", International
    /// Conference on Parallel Processing, 1991. On 2^d ranks, extents of 2, 4, … are the paper's
    /// subcubes of 1, 2, … dimensions; other numbers of ranks are split into their prime factors in
    /// place of dimensions. With one phase it is a direct exchange, and for a prime number of ranks
    /// nothing else is possible.
    Multiphase = "multiphase",
    /// One join vertex of all ranks that exchanges their blocks.
    Join = "join",
}
