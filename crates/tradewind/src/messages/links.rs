//! Opening of bulk connections, on one node and between nodes.

use super::basic::Pair;
use super::bulk::{BulkReceiver, BulkSender};
use super::internode::Internode;
use super::queues::Offered;
use super::ranks::{Place, PortRanks};
use super::{BasicEnd, BulkEnd, pair};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::signature::{CallKind, Signature};
use queues::bulk::{self, BulkLink, CarriedReceiver, CarriedSender, lines_for};
use queues::error::CreateError;
use shm::segment::Offset;
use std::sync::Arc;

impl Communicator {
    /// Opens a bulk connection between two ranks that exist.
    pub(super) fn open_bulk(&self, from: u32, to: u32, staging: u64) -> Result<Option<BulkEnd>> {
        let call = Signature::new(CallKind::BulkLink, staging, pair(from, to));
        let (internode, ranks) = self.next_port_ranks();
        let is_between = |one: &Internode<'_>| one.group.node_of(from) != one.group.node_of(to);
        if !internode.as_ref().is_some_and(is_between) {
            return self.open_link(call, Pair { from, to, lines: 0 }, staging, &ranks);
        }
        if staging == 0 {
            let error = CreateError::Size {
                object: "staging area",
                requested: staging,
                unit: "bytes",
                limits: "at least one",
            };
            return Err(error.into());
        }
        let ends = Pair { from, to, lines: lines_for(staging) };
        let end = self.open_basic(call, ends, internode, ranks)?;
        Ok(end.map(|(end, at)| match end {
            BasicEnd::Sender(ring) => {
                BulkEnd::Sender(BulkSender::elsewhere(CarriedSender::new(ring, at)))
            }
            BasicEnd::Receiver(ring) => {
                BulkEnd::Receiver(BulkReceiver::elsewhere(CarriedReceiver::new(ring, at)))
            }
        }))
    }

    /// Opens a link between two ranks of a node.
    fn open_link(
        &self,
        call: Signature,
        Pair { from, to, .. }: Pair,
        staging: u64,
        ranks: &Arc<PortRanks>,
    ) -> Result<Option<BulkEnd>> {
        let rank = self.rank();
        let made = (rank == to).then(|| BulkLink::create(self.arena(), staging)).transpose();
        let link = made.as_ref().ok().and_then(Option::as_ref).map(BulkLink::offset);
        let own = Offered { queue: link.unwrap_or_default(), ..Offered::default() };
        self.agree_on_port(call, own, |offered| {
            if let Some(memory) = made? {
                let receiver = bulk::Receiver::connect(self.segment(), memory.offset())?;
                let receiver = BulkReceiver::here(receiver, memory);
                return Ok(Some(BulkEnd::Receiver(receiver)));
            }
            if rank != from {
                return Ok(None);
            }
            let place = ranks.places().get(to as usize);
            let link = match place {
                Some(Place::Here(member)) => offered.get(*member as usize).map(|one| one.queue),
                _ => None,
            };
            let link = link.filter(|link| *link != Offset(0));
            let link = link.ok_or(Error::CreationFailed { rank: to, what: "a link" })?;
            let sender = bulk::Sender::connect(self.segment(), link)?;
            Ok(Some(BulkEnd::Sender(BulkSender::here(sender))))
        })
    }
}
