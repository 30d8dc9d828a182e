//! Packets of this node that other nodes have not acknowledged yet.

use crate::error::LoadError;
use crate::system;
use aya::maps::{Array, Map, MapData};
use network::carrier::Outbox;
use std::os::fd::{AsFd, OwnedFd};

/// 64-bit words of `struct stream` in `bpf/streams.h`, of which the first two are read.
const STREAM_WORDS: usize = 80;

/// The program's streams to the other nodes. The program keeps every packet until the other node
/// has acknowledged it, and is gone with the process that has loaded it: that process should end
/// when the outbox is empty.
pub(crate) struct Packets {
    streams: Array<MapData, [u64; STREAM_WORDS]>,
    nodes: u32,
    tend: OwnedFd,
}

impl Packets {
    /// The outbox of a program with this map, for a job of so many nodes.
    pub(crate) fn new(streams: Option<Map>, nodes: u32, tend: OwnedFd) -> Result<Self, LoadError> {
        let missing = || LoadError::Refused("it has no map `streams`".into());
        let streams = streams.and_then(|map| Array::try_from(map).ok()).ok_or_else(missing)?;
        Ok(Packets { streams, nodes, tend })
    }
}

impl std::fmt::Debug for Packets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Packets").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Outbox for Packets {
    fn is_empty(&mut self, lost: &[bool]) -> bool {
        // The program asks a node for an acknowledgement when one is missing since the last time it
        // was run for this. A node that only receives acknowledges every half window by itself.
        let _ = system::run_program(self.tend.as_fd(), [0; 2]);
        (0..self.nodes).filter(|node| lost.get(*node as usize) != Some(&true)).all(|node| {
            // A map that cannot be read, though it was made here, is no reason to stay for ever.
            self.streams.get(&node, 0).map_or(true, |stream| {
                let [sent, acknowledged, ..] = stream;
                acknowledged >= sent
            })
        })
    }
}
