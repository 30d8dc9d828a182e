//! The sending end of a lane.

use super::bell::SocketBell;
use super::{End, LaneError, LaneParts, Memory, Partner, open_ring, too_small};
use crate::basic::ring::{Bell, RingError};
use crate::basic::words::store_bytes;
use crate::basic::{Header, LOOKS, sender};
use crate::name::{QueueName, SourceName};
use crate::post::Dropped;
use crate::post::control::Control;
use crate::table::{DestinationTable, TableError};
use std::sync::Arc;
use std::time::Instant;

/// The sending end, for the messages of one transmit queue to one name.
#[derive(Debug)]
pub struct LaneSender {
    ring: sender::Sender<Memory, SocketBell>,
    end: End,
    table: Arc<DestinationTable>,
    name: QueueName,
    source: SourceName,
    /// The table entry for which the lane was opened, and the one that was seen last.
    opened_for: u16,
    generation: u16,
}

impl LaneSender {
    pub(crate) fn new(
        control: &Arc<Control>,
        table: Arc<DestinationTable>,
        name: QueueName,
        parts: LaneParts,
    ) -> Result<LaneSender, LaneError> {
        let LaneParts { offer, memory, socket } = parts;
        let end = End::new(control, &offer, Dropped::Sender);
        let (_, memory, geometry) = open_ring(&offer, memory)?;
        let generation = table.lookup(name).map_or(0, |destination| destination.generation);
        let ring = sender::Sender::new(
            memory,
            geometry,
            SocketBell::new(control, (offer.lane, false), socket),
            LOOKS,
        );
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        Ok(LaneSender {
            ring,
            end,
            table,
            name,
            source: offer.source,
            opened_for: generation,
            generation,
        })
    }

    /// Who receives.
    pub fn partner(&self) -> &Partner {
        &self.end.partner
    }

    /// The longest message in bytes.
    pub fn longest_message(&self) -> usize {
        self.ring.geometry().longest()
    }

    /// Whether the name has come to lead somewhere else since the lane was opened.
    pub(crate) fn is_outdated(&self) -> bool {
        self.table
            .lookup(self.name)
            .is_ok_and(|destination| destination.generation != self.opened_for)
    }

    /// Sends a message to one of the receiver's handlers; waits for room.
    ///
    /// # Errors
    ///
    /// [`LaneError`]. What was sent before a partner went may have been received or not.
    pub fn send(&mut self, handler: u8, bytes: &[u8]) -> Result<(), LaneError> {
        self.send_until(handler, bytes, None)
    }

    /// As [`Self::send`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`LaneError::TimedOut`].
    pub fn send_by(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), LaneError> {
        self.send_until(handler, bytes, Some(deadline))
    }

    fn send_until(
        &mut self,
        handler: u8,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), LaneError> {
        self.translate()?;
        let room = self
            .ring
            .wait_for_room(bytes.len(), deadline)
            .map_err(|error| self.end.explain(error))?;
        self.compose(handler, bytes, room);
        self.publish();
        Ok(())
    }

    /// As [`Self::send`]; `false` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, LaneError> {
        let put = self.try_put(handler, bytes)?;
        self.publish();
        Ok(put)
    }

    /// As [`Self::try_send`], but the message is seen only after [`Self::publish`], together with
    /// others.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_put(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, LaneError> {
        self.translate()?;
        let room = self.ring.room_for(bytes.len()).map_err(|error| self.end.explain(error))?;
        let found = room.is_some();
        if let Some(room) = room {
            self.compose(handler, bytes, room);
        }
        Ok(found)
    }

    /// Makes visible what has been put, by one store.
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    fn compose(&mut self, handler: u8, bytes: &[u8], room: sender::Room) {
        let message = self.ring.compose(Header { source: self.source, handler }, room);
        store_bytes(message.words(), bytes);
        message.finish();
    }

    /// Every message is sent to a name: whether that still leads here costs one load.
    fn translate(&mut self) -> Result<(), LaneError> {
        if let Some(failed) = &self.end.failed {
            return Err(failed.clone());
        }
        let partner = || self.end.partner.clone();
        match self.table.lookup(self.name) {
            Ok(destination) if destination.generation == self.generation => {}
            // Re-pointed. If the receiving end goes with it, nothing changes here; if the receiver
            // has gone, it shows.
            Ok(destination) => {
                self.generation = destination.generation;
                self.end.patience = 1;
            }
            Err(TableError::ProcessGone { .. }) => {
                let error = LaneError::Gone { partner: partner() };
                return Err(self.end.fail(error));
            }
            Err(_) => {
                let error = LaneError::Revoked { partner: partner() };
                return Err(self.end.fail(error));
            }
        }
        if self.end.is_time() && self.ring.bell().check().is_err() {
            return Err(self.end.explain(RingError::Interrupted));
        }
        Ok(())
    }
}
