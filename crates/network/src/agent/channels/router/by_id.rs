//! Channels found by their identification.

use crate::agent::session::ProtocolViolation;
use crate::transport::records::channels::ChannelId;
use std::collections::HashMap;

/// A channel with its identification.
pub(super) trait Named {
    fn id(&self) -> ChannelId;
}

/// Channels in one direction, and their places.
#[derive(Debug)]
pub(super) struct Channels<C> {
    pub(super) all: Vec<C>,
    places: HashMap<ChannelId, usize>,
}

impl<C: Named> Channels<C> {
    pub(super) fn new() -> Self {
        Channels { all: Vec::new(), places: HashMap::new() }
    }

    pub(super) fn insert(&mut self, channel: C) -> Result<(), ProtocolViolation> {
        if self.places.contains_key(&channel.id()) {
            return Err(ProtocolViolation);
        }
        self.places.insert(channel.id(), self.all.len());
        self.all.push(channel);
        Ok(())
    }

    pub(super) fn get(&mut self, id: ChannelId) -> Option<&mut C> {
        self.all.get_mut(*self.places.get(&id)?)
    }

    pub(super) fn remove(&mut self, id: ChannelId) -> Option<C> {
        let place = self.places.remove(&id)?;
        let removed = self.all.swap_remove(place);
        if let Some(moved) = self.all.get(place) {
            self.places.insert(moved.id(), place);
        }
        Some(removed)
    }

    pub(super) fn retain(&mut self, mut remains: impl FnMut(&mut C) -> bool) {
        let before = self.all.len();
        self.all.retain_mut(&mut remains);
        if self.all.len() != before {
            self.places = self.all.iter().zip(0..).map(|(one, place)| (one.id(), place)).collect();
        }
    }
}
