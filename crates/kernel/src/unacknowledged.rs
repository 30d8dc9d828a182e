//! Packets of this node that other nodes have not acknowledged yet.

use crate::error::LoadError;
use crate::memory::mapping;
use crate::retransmitter::RETRANSMIT;
use aya::maps::{Array, Map, MapData};
use network::backend::PendingTraffic;
use std::os::fd::{AsFd, OwnedFd};

/// Number of 64-bit words of `struct stream` in `bpf/streams.h`; the first two are read.
const STREAM_WORDS: usize = 80;

/// Streams of the program to the other nodes. The program keeps every packet until the other node
/// has acknowledged it, and ends with the process that has loaded it: that process should stay
/// until all packets are acknowledged. If it is killed earlier, lost packets stay lost.
pub(crate) struct UnacknowledgedPackets {
    streams: Array<MapData, [u64; STREAM_WORDS]>,
    nodes: u32,
    program: OwnedFd,
}

impl UnacknowledgedPackets {
    /// Returns the streams of a program with this map, for a job of `nodes` nodes.
    pub(crate) fn new(
        streams: Option<Map>,
        nodes: u32,
        program: OwnedFd,
    ) -> Result<Self, LoadError> {
        let missing = || LoadError::Refused("it has no map `streams`".into());
        let streams = streams.and_then(|map| Array::try_from(map).ok()).ok_or_else(missing)?;
        Ok(UnacknowledgedPackets { streams, nodes, program })
    }
}

impl std::fmt::Debug for UnacknowledgedPackets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UnacknowledgedPackets")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

impl PendingTraffic for UnacknowledgedPackets {
    fn is_empty(&mut self, lost: &[bool]) -> bool {
        // The program requests an acknowledgement that is missing since its last run. Without
        // requests, a node that only receives acknowledges every half window.
        let _ = mapping::run_program(self.program.as_fd(), [0, RETRANSMIT]);
        (0..self.nodes).filter(|node| lost.get(*node as usize) != Some(&true)).all(|node| {
            // A map that cannot be read counts as empty, so that the process can end.
            self.streams.get(&node, 0).map_or(true, |stream| {
                // The two words are not read at one instant, so `acknowledged` may be ahead.
                let [sent, acknowledged, ..] = stream;
                acknowledged >= sent
            })
        })
    }
}
