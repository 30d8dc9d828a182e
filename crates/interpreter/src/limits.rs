//! Bounds on the memory of an interpreter.

/// Bounds on what an interpreter sends eagerly and on the unexpected messages it stores. The
/// [crate documentation](crate) describes what happens beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest message, in bytes, that is sent eagerly. Longer messages use the rendezvous
    /// protocol.
    pub eager_limit: u64,
    /// Total size of the stored unexpected payloads, in bytes.
    pub unexpected_bytes: u64,
    /// Number of stored unexpected payloads.
    pub unexpected_messages: u64,
    /// Shortest message, in bytes, that is sent and received in place. See
    /// [`Effect::TransmitInPlace`](crate::Effect::TransmitInPlace).
    pub in_place: u64,
}

impl Limits {
    /// Returns limits with this eager limit and space for 64 MiB in 65,536 unexpected payloads. No
    /// message is sent in place.
    pub const fn new(eager_limit: u64) -> Self {
        Limits {
            eager_limit,
            unexpected_bytes: 64 << 20,
            unexpected_messages: 1 << 16,
            in_place: u64::MAX,
        }
    }

    /// Returns the same limits, with messages of at least `bytes` bytes in place.
    pub const fn with_in_place(self, bytes: u64) -> Self {
        Limits { in_place: bytes, ..self }
    }
}
