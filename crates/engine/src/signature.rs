//! Signature of a call, which detects ranks of a communicator in different collectives.

/// Kind of a collective.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the collective it names")]
pub enum CallKind {
    None = 0,
    Barrier = 1,
    Allreduce = 2,
    Alltoall = 3,
    Bcast = 4,
    NeighborAlltoall = 5,
    NeighborAllgather = 6,
    Schedule = 7,
    Split = 8,
    Link = 9,
    Windows = 10,
    Channel = 11,
    Queues = 12,
    /// A link for bulk transfers.
    BulkLink = 13,
    Scatter = 14,
    Scatterv = 15,
    Gather = 16,
    Gatherv = 17,
    Allgather = 18,
    Allgatherv = 19,
    Reduce = 20,
    ReduceScatter = 21,
    ReduceScatterBlock = 22,
    Scan = 23,
    Exscan = 24,
    Alltoallv = 25,
    NeighborAllgatherv = 26,
    NeighborAlltoallv = 27,
    /// A collective that another library runs; see
    /// [`Communicator::record_external_collective`](crate::communicator::Communicator::record_external_collective).
    External = 28,
}

impl CallKind {
    const ALL: [CallKind; 29] = [
        CallKind::None,
        CallKind::Barrier,
        CallKind::Allreduce,
        CallKind::Alltoall,
        CallKind::Bcast,
        CallKind::NeighborAlltoall,
        CallKind::NeighborAllgather,
        CallKind::Schedule,
        CallKind::Split,
        CallKind::Link,
        CallKind::Windows,
        CallKind::Channel,
        CallKind::Queues,
        CallKind::BulkLink,
        CallKind::Scatter,
        CallKind::Scatterv,
        CallKind::Gather,
        CallKind::Gatherv,
        CallKind::Allgather,
        CallKind::Allgatherv,
        CallKind::Reduce,
        CallKind::ReduceScatter,
        CallKind::ReduceScatterBlock,
        CallKind::Scan,
        CallKind::Exscan,
        CallKind::Alltoallv,
        CallKind::NeighborAllgatherv,
        CallKind::NeighborAlltoallv,
        CallKind::External,
    ];

    fn from_u8(number: u8) -> CallKind {
        Self::ALL.get(number as usize).copied().unwrap_or(CallKind::None)
    }

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::None => "no collective",
            CallKind::Barrier => "barrier",
            CallKind::Allreduce => "allreduce",
            CallKind::Alltoall => "alltoall",
            CallKind::Bcast => "bcast",
            CallKind::NeighborAlltoall => "neighbor_alltoall",
            CallKind::NeighborAllgather => "neighbor_allgather",
            CallKind::Schedule => "schedule",
            CallKind::Split => "split",
            CallKind::Link => "link",
            CallKind::Windows => "windows",
            CallKind::Channel => "channel",
            CallKind::Queues => "queues",
            CallKind::BulkLink => "bulk link",
            CallKind::Scatter => "scatter",
            CallKind::Scatterv => "scatterv",
            CallKind::Gather => "gather",
            CallKind::Gatherv => "gatherv",
            CallKind::Allgather => "allgather",
            CallKind::Allgatherv => "allgatherv",
            CallKind::Reduce => "reduce",
            CallKind::ReduceScatter => "reduce_scatter",
            CallKind::ReduceScatterBlock => "reduce_scatter_block",
            CallKind::Scan => "scan",
            CallKind::Exscan => "exscan",
            CallKind::Alltoallv => "alltoallv",
            CallKind::NeighborAllgatherv => "neighbor_allgatherv",
            CallKind::NeighborAlltoallv => "neighbor_alltoallv",
            CallKind::External => "a collective of another library",
        }
    }
}

/// One call: the collective, its size and a digest of the other arguments that must agree between
/// the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The collective.
    pub kind: CallKind,
    /// Bytes, as the collective counts them.
    pub bytes: u64,
    /// Digest of the size and the other arguments: root, operation, type, algorithm. The highest
    /// bit is set in calls that match [blocking](Self::blocking) ones only.
    pub digest: u16,
}

/// Bit of a digest that is set in calls that match blocking ones only.
const BLOCKING: u16 = 1 << 15;

impl Signature {
    /// Returns the signature of a call. `arguments` is a number that differs if the other arguments
    /// differ.
    pub fn new(kind: CallKind, bytes: u64, arguments: u64) -> Self {
        Signature {
            kind,
            bytes,
            digest: fold(arguments ^ bytes.rotate_left(32)) as u16 & !BLOCKING,
        }
    }

    /// Returns the signature of the blocking form of this call, for collectives in which a blocking
    /// call matches blocking calls only.
    pub fn blocking(self) -> Self {
        Signature { digest: self.digest | BLOCKING, ..self }
    }

    /// Returns the 24-bit digest that a rank publishes when it arrives: the kind and the digest of
    /// the arguments. It is never 0 for a collective.
    #[inline]
    pub fn digest24(&self) -> u32 {
        u32::from(self.kind as u8) << 16 | u32::from(self.digest)
    }

    /// Returns the end of a message about two calls of one kind with these 24-bit digests if one of
    /// them matches blocking calls only.
    pub fn different_forms(first: u32, second: u32) -> Option<&'static str> {
        let differs = (first ^ second) & u32::from(BLOCKING) != 0;
        (differs && Self::kind_of(first) == Self::kind_of(second))
            .then_some(": in the blocking form on one side only; all ranks must use the same form")
    }

    /// Returns the kind in a 24-bit digest.
    pub fn kind_of(digest24: u32) -> CallKind {
        CallKind::from_u8((digest24 >> 16) as u8)
    }

    /// Encodes the call in two journal words.
    pub(crate) fn encode(&self, sequence: u64) -> [u64; 2] {
        [(sequence << 24) | u64::from(self.kind as u8) << 16 | u64::from(self.digest), self.bytes]
    }

    /// Decodes the words of [`encode`](Self::encode). Returns the low 40 bits of the sequence number
    /// and the call.
    pub(crate) fn decode(words: [u64; 2]) -> (u64, Signature) {
        let call = Signature {
            kind: CallKind::from_u8((words[0] >> 16) as u8),
            bytes: words[1],
            digest: words[0] as u16,
        };
        (words[0] >> 24, call)
    }

    /// Describes the call, as in "allreduce #17", on request with the size.
    pub fn describe(&self, sequence: u64, with_arguments: bool) -> String {
        let size = if with_arguments && self.kind != CallKind::None {
            format!(" of {} bytes", self.bytes)
        } else {
            String::new()
        };
        format!("{} #{sequence}{size}", self.kind.name())
    }
}

/// Mixes 64 bits so that any part of the result depends on all of them (the finaliser of
/// SplitMix64, Steele et al. 2014).
fn fold(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_words_hold_a_call() {
        let call = Signature::new(CallKind::Alltoall, 1 << 40, 99);
        assert_eq!(Signature::decode(call.encode(1234)), (1234, call));
    }

    #[test]
    fn signatures_of_other_kinds_and_arguments_differ() {
        let call = Signature::new(CallKind::Bcast, 8, 1);
        assert_ne!(call.digest24(), Signature::new(CallKind::Barrier, 8, 1).digest24());
        assert_ne!(call.digest24(), Signature::new(CallKind::Bcast, 8, 2).digest24());
        assert_ne!(call.digest24(), Signature::new(CallKind::Bcast, 16, 1).digest24());
        assert_eq!(Signature::kind_of(call.digest24()), CallKind::Bcast);
    }

    #[test]
    fn a_blocking_form_beside_another_one_is_recognised() {
        for arguments in 0..100 {
            let call = Signature::new(CallKind::Allreduce, 8, arguments);
            let (any, blocking) = (call.digest24(), call.blocking().digest24());
            assert!(Signature::different_forms(any, blocking).is_some());
            assert!(Signature::different_forms(blocking, any).is_some());
            assert_eq!(Signature::different_forms(any, any), None);
            let other = Signature::new(CallKind::Barrier, 8, arguments).blocking().digest24();
            assert_eq!(Signature::different_forms(any, other), None);
        }
    }
}
