//! UnacknowledgedPackets of this node that other nodes have not acknowledged yet.

use crate::error::LoadError;
use crate::system;
use aya::maps::{Array, Map, MapData};
use network::backend::PendingTraffic;
use std::os::fd::{AsFd, OwnedFd};

/// 64-bit words of `struct stream` in `bpf/streams.h`, of which the first two are read.
const STREAM_WORDS: usize = 80;

/// The program's streams to the other nodes. The program keeps every packet until the other node
/// has acknowledged it. It is unloaded when the process ends that has loaded it, so that process
/// should wait until all packets are acknowledged.
pub(crate) struct UnacknowledgedPackets {
    streams: Array<MapData, [u64; STREAM_WORDS]>,
    nodes: u32,
    tend: OwnedFd,
}

impl UnacknowledgedPackets {
    /// Reads the streams from this map; `tend` is the program that requests acknowledgements.
    pub(crate) fn new(streams: Option<Map>, nodes: u32, tend: OwnedFd) -> Result<Self, LoadError> {
        let missing = || LoadError::Refused("it has no map `streams`".into());
        let streams = streams.and_then(|map| Array::try_from(map).ok()).ok_or_else(missing)?;
        Ok(UnacknowledgedPackets { streams, nodes, tend })
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
        // A node that only receives acknowledges every half window by itself. The program requests
        // an acknowledgement that has been missing since its last call.
        let _ = system::run_program(self.tend.as_fd(), [0; 2]);
        (0..self.nodes).filter(|node| lost.get(*node as usize) != Some(&true)).all(|node| {
            // An error cannot happen: the map was created here. It would block the last rank.
            self.streams.get(&node, 0).map_or(true, |stream| {
                let [sent, acknowledged, ..] = stream;
                acknowledged >= sent
            })
        })
    }
}
