//! The ends of channels between nodes.

/// The end of a channel that a rank opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The rank sends to this rank of the job.
    SendsTo(u32),
    /// The rank receives from this rank of the job.
    ReceivesFrom(u32),
}
