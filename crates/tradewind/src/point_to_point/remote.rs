//! The way to ranks on other nodes: through the agent of this rank's node.

use crate::error::Result;
use crate::internode::group::{InternodeGroup, InternodeJob};
use network::agent::messages::port::MessagePort;
use network::agent::messages::record::{Class, Head, MAX_BYTES, record_bytes};
use queues::matching::{REMOTE_RECORD_BYTES, RemoteLink, RemoteOptions, RemoteRecord};
use std::sync::Arc;

const _: () = assert!(REMOTE_RECORD_BYTES == MAX_BYTES);

/// Memory for the messages of a rank on their way, in each direction, divided among many ranks.
const ALL_RINGS: u64 = 256 << 20;

/// Opens this rank's way to the ranks on other nodes, once.
pub(super) fn open(job: &InternodeJob) -> Result<RemoteOptions> {
    let ranks = job.nodes.ranks();
    let port = job.agent().open_messages(ALL_RINGS / u64::from(ranks.max(1)))?;
    let waits = Arc::new(port.wait_mark());
    Ok(RemoteOptions { ranks, link: Box::new(AgentLink(port)), waits })
}

/// Returns the places of the ranks of a communicator: those of this node have their numbers on the
/// node, the others follow with their numbers in the job.
pub(super) fn places(internode: &InternodeGroup) -> Arc<[u32]> {
    let nodes = &internode.job().nodes;
    let members = &internode.context().members;
    let own = nodes.of(members[internode.rank() as usize]);
    let on_node: Vec<u32> = own.into_iter().flat_map(|own| nodes.members(own)).collect();
    // The ranks of a node are in order.
    let place = |member: &u32| match on_node.binary_search(member) {
        Ok(local) => local as u32,
        Err(_) => on_node.len() as u32 + member,
    };
    members.iter().map(place).collect()
}

/// Records of the agent.
#[derive(Debug)]
struct AgentLink(MessagePort);

impl RemoteLink for AgentLink {
    #[inline]
    fn put(&mut self, to: u32, words: [u64; 3], bytes: &[u8]) -> bool {
        let head = Head { peer: to, class: Class::Message, bytes: bytes.len(), words };
        self.0.put(head, bytes)
    }

    fn has_space(&mut self, count: usize, bytes: usize, last: usize) -> bool {
        self.0.has_space(count as u64 * record_bytes(bytes) + record_bytes(last))
    }

    #[inline]
    fn publish(&mut self) {
        self.0.publish();
    }

    #[inline]
    fn first(&mut self) -> Option<RemoteRecord> {
        let Head { peer: from, class, bytes, words } = self.0.first()?;
        Some(RemoteRecord { from, is_exit: class == Class::Exit, words, bytes })
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        self.0.read(at, into);
    }

    #[inline]
    fn release(&mut self) {
        self.0.release();
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed()
    }
}
