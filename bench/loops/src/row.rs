//! What one row of the table measures, as the command line names it: OPERATION:BYTES:ITERATIONS.
//!
//! Bytes follow MPI's own convention, as in `bench/c/collectives.h`: barrier has none, allreduce and bcast count the whole
//! message, alltoall and neighbor count one block (the message of one pair of ranks).

use crate::Failure;

/// Which operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Barrier,
    Allreduce,
    Alltoall,
    Bcast,
    Neighbor,
    /// From rank 0 to rank 1; the name says how.
    Message,
}

const KINDS: [(Kind, &str); 9] = [
    (Kind::Barrier, "barrier"),
    (Kind::Allreduce, "allreduce"),
    (Kind::Alltoall, "alltoall"),
    (Kind::Bcast, "bcast"),
    (Kind::Neighbor, "neighbor"),
    (Kind::Message, "latency"),
    (Kind::Message, "rate"),
    (Kind::Message, "large"),
    (Kind::Message, "threads"),
];

/// One row.
#[derive(Clone, Copy)]
pub struct Row {
    pub kind: Kind,
    /// The name both sides use.
    pub name: &'static str,
    pub bytes: usize,
    /// Of the computation it runs under; 0 measures it alone only.
    pub iterations: u64,
}

impl Row {
    /// Reads one.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mistake = || format!("'{text}' is no row: give OPERATION:BYTES:ITERATIONS, such as allreduce:8:0");
        let [name, bytes, iterations] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(mistake().into());
        };
        let (kind, name) = KINDS.into_iter().find(|(_, known)| *known == name).ok_or_else(mistake)?;
        let bytes = bytes.parse().map_err(|_| mistake())?;
        Ok(Self { kind, name, bytes, iterations: iterations.parse().map_err(|_| mistake())? })
    }
}
