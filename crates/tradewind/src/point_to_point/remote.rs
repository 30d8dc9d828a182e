//! The way to ranks on other nodes: over the connections of this rank, or through the agent of its
//! node. All ranks of a job have the same.

use crate::error::Result;
use crate::internode::group::{InternodeGroup, InternodeJob};
use network::agent::messages::port::MessagePort;
use network::direct::DirectPort;
use network::transport::records::messages::{Class, Head, MAX_BYTES, record_bytes};
use queues::matching::{
    REMOTE_RECORD_BYTES, RemoteLink, RemoteOptions, RemoteProgress, RemoteRecord,
};
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use std::sync::Arc;

const _: () = assert!(REMOTE_RECORD_BYTES == MAX_BYTES);

/// Memory for the messages of a rank on their way, in each direction, divided among many ranks.
const ALL_RINGS: u64 = 256 << 20;

/// Opens this rank's way to the ranks on other nodes, once. `wakeup` wakes its threads that wait for
/// messages.
pub(super) fn open(job: &InternodeJob, wakeup: Mapped<AtomicU32>) -> Result<RemoteOptions> {
    let ranks = job.nodes.ranks();
    let leave_limit = job.leave_limit();
    let Some(direct) = &job.backends.blocking else {
        let port = job.agent().open_messages(ALL_RINGS / u64::from(ranks.max(1)))?;
        let progress = RemoteProgress::Process(Arc::new(port.wait_mark()));
        return Ok(RemoteOptions { ranks, link: Box::new(AgentLink(port)), progress, leave_limit });
    };
    // The shortest rings: they carry the reports of exits only.
    let reports = job.agent().open_messages(0)?;
    let (port, driver) = direct.open_messages(reports, wakeup, &job.nodes);
    let progress = RemoteProgress::Connections(Arc::new(driver));
    Ok(RemoteOptions { ranks, link: Box::new(DirectLink(port)), progress, leave_limit })
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

    fn has_space(&mut self, _: u32, count: usize, bytes: usize, last: usize) -> bool {
        self.0.has_space(count as u64 * record_bytes(bytes) + record_bytes(last))
    }

    #[inline]
    fn publish(&mut self) {
        self.0.publish();
    }

    #[inline]
    fn first(&mut self) -> Option<RemoteRecord> {
        self.0.first().map(arrived)
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

/// Records over the connections of this rank.
#[derive(Debug)]
struct DirectLink(DirectPort);

impl RemoteLink for DirectLink {
    #[inline]
    fn put(&mut self, to: u32, words: [u64; 3], bytes: &[u8]) -> bool {
        self.0.put(to, words, bytes)
    }

    fn has_space(&mut self, to: u32, count: usize, bytes: usize, last: usize) -> bool {
        let count = count as u64;
        self.0.has_space(to, count + 1, count * record_bytes(bytes) + record_bytes(last))
    }

    #[inline]
    fn publish(&mut self) {
        self.0.publish();
    }

    #[inline]
    fn publish_soon(&mut self) {
        self.0.publish_soon();
    }

    #[inline]
    fn first(&mut self) -> Option<RemoteRecord> {
        self.0.first().map(arrived)
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

    fn look(&mut self, is_awaited: bool) -> bool {
        self.0.look(is_awaited)
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn held_up(&self, to: u32) -> Option<u64> {
        self.0.held_up(to)
    }

    fn give_up(&mut self, to: u32) {
        log::warn!(
            "this rank leaves its job with messages for rank {to}, which has read nothing for the \
             time of TRADEWIND_NODE_TIMEOUT: receive them there, or allow more time"
        );
        self.0.give_up(to);
    }
}

/// A record with this head.
fn arrived(Head { peer: from, class, bytes, words }: Head) -> RemoteRecord {
    RemoteRecord { from, is_exit: class == Class::Exit, words, bytes }
}
