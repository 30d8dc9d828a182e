//! Classes of pairs of ranks: how far two ranks are from each other.

collectives::named_enum! {
    /// Distance of the two ranks of a pair, nearest first. The placement of tasks matters as much
    /// as the length of their messages (Bokhari: "Communication Overhead on the Intel
    /// Paragon, IBM SP2 & Meiko CS-2", 1995, section 6), so each class has parameters of its own.
    pub enum PairClass ("class of pairs") {
        /// Both run on one core, in turn or as its hardware threads.
        SameCore = "same-core",
        /// Two cores that share a cache besides the last level of the socket.
        SharedCache = "shared-cache",
        /// Two cores of one socket.
        SameSocket = "same-socket",
        /// Two sockets of one node.
        OtherSocket = "other-socket",
        /// Two nodes.
        OtherNode = "other-node",
    }
}

impl PairClass {
    /// Returns `true` if both ranks run on one node.
    pub const fn is_inside_node(self) -> bool {
        !matches!(self, PairClass::OtherNode)
    }
}
