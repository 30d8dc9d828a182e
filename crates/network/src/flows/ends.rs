//! Open ends of flows: by number, by name, and those that are polled.

use super::marks::{EndNumber, Resting};
use crate::transport::records::flows::FlowId;
use queues::internode::{Announcement, Requested};
use std::collections::HashMap;
use std::fmt::Debug;

/// An end of one or several flows.
pub(super) trait End: Debug {
    /// Returns the names by which it is found.
    fn names(&self) -> impl Iterator<Item = FlowId>
    where
        Self: Sized;

    /// Returns the rank with its object.
    fn rank(&self) -> Option<u32>;

    /// Returns the way in which the node service learns that it is ready.
    fn announcement(&self) -> Announcement;

    /// Requests a notification of the next thing to do.
    fn request(&mut self) -> Requested;

    /// Withdraws the request: nothing is taken from a source while one is pending.
    fn withdraw(&mut self);

    /// Returns true if it has something to do now, or waits for what no notification reports.
    fn is_busy(&self) -> bool;

    /// Returns true if it may rest: the request has not been served, and there is nothing to do.
    fn may_rest(&mut self) -> bool;

    /// Returns its activity.
    fn activity(&mut self) -> &mut Activity;

    /// Returns true if it is polled in every turn, also with nothing to do.
    fn is_watched(&self) -> bool {
        self.announcement() != Announcement::ByEvent
    }
}

/// Activity of an end.
#[derive(Debug)]
pub(super) struct Activity {
    /// It is polled in every turn.
    pub(super) is_active: bool,
    /// Bytes have passed since the last search for unused ends.
    pub(super) was_used: bool,
}

/// State of an end after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    StaysActive,
    BecomesInactive,
    IsRemoved,
}

/// Ends that may rest after a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// All active ones with nothing to do.
    Idle,
    /// Those of them without traffic since the last search.
    Unused,
}

/// The open ends of one direction, each with a number.
#[derive(Debug)]
pub(super) struct Ends<E> {
    all: Vec<Option<E>>,
    free: Vec<usize>,
    /// Numbers of ends that were removed. They may be among `active`, so they are not free yet.
    removed: Vec<usize>,
    numbers: HashMap<FlowId, usize>,
    /// Ends that are polled in every turn, each once.
    active: Vec<usize>,
}

impl Default for Activity {
    fn default() -> Self {
        Activity { is_active: false, was_used: true }
    }
}

impl<E> Default for Ends<E> {
    fn default() -> Self {
        Ends {
            all: Vec::new(),
            free: Vec::new(),
            removed: Vec::new(),
            numbers: HashMap::new(),
            active: Vec::new(),
        }
    }
}

impl<E: End> Ends<E> {
    /// Adds an end. None of its names is open.
    pub(super) fn insert(&mut self, end: E) -> usize {
        let number = self.free.pop().unwrap_or(self.all.len());
        if number == self.all.len() {
            self.all.push(None);
        }
        self.numbers.extend(end.names().map(|id| (id, number)));
        let is_watched = end.is_watched();
        self.all[number] = Some(end);
        if is_watched {
            self.activate(number);
        }
        number
    }

    /// Returns the number of the end of a flow.
    pub(super) fn number(&self, id: &FlowId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    pub(super) fn contains(&self, id: &FlowId) -> bool {
        self.numbers.contains_key(id)
    }

    pub(super) fn get(&self, number: usize) -> Option<&E> {
        self.all.get(number)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut E> {
        self.all.get_mut(number)?.as_mut()
    }

    /// Returns the end of a flow.
    pub(super) fn of(&self, id: &FlowId) -> Option<&E> {
        self.get(self.number(id)?)
    }

    /// Returns the end of a flow.
    pub(super) fn of_mut(&mut self, id: &FlowId) -> Option<&mut E> {
        self.get_mut(self.number(id)?)
    }

    /// Returns the numbers of the ends for which `is_over` returns true.
    pub(super) fn find(&self, is_over: impl Fn(&E) -> bool) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let over = all.filter(|(_, end)| end.as_ref().is_some_and(&is_over));
        over.map(|(number, _)| number).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &E> {
        self.all.iter().flatten()
    }

    /// Removes an end with its names.
    pub(super) fn remove(&mut self, number: usize) -> Option<E> {
        let removed = self.all.get_mut(number)?.take()?;
        self.removed.push(number);
        for id in removed.names() {
            self.numbers.remove(&id);
        }
        Some(removed)
    }

    /// Polls an end in every turn from now on.
    pub(super) fn activate(&mut self, number: usize) {
        if let Some(end) = self.get_mut(number)
            && !std::mem::replace(&mut end.activity().is_active, true)
        {
            self.active.push(number);
        }
    }

    /// Calls a function with each active end and its number.
    pub(super) fn for_active(&mut self, mut body: impl FnMut(usize, &mut E)) {
        let Ends { all, active, .. } = self;
        for number in active {
            if let Some(end) = &mut all[*number] {
                body(*number, end);
            }
        }
    }

    /// Polls the active ends for which `is_due` returns true.
    pub(super) fn poll_active(
        &mut self,
        is_due: impl Fn(&E) -> bool,
        mut poll: impl FnMut(&mut E) -> Next,
    ) {
        for index in 0..self.active.len() {
            let number = self.active[index];
            let Some(end) = self.get_mut(number).filter(|end| is_due(end)) else { continue };
            let next = poll(end);
            end.activity().is_active = next == Next::StaysActive;
            if next == Next::IsRemoved {
                self.remove(number);
            }
        }
        self.drop_inactive();
    }

    /// Removes the ends that are not active from the list of active ones.
    pub(super) fn drop_inactive(&mut self) {
        let Ends { all, free, removed, active, .. } = self;
        active.retain(|number| all[*number].as_mut().is_some_and(|end| end.activity().is_active));
        // No list has these numbers any more.
        free.append(removed);
    }

    /// Returns true if an active end is polled without a notification, or waits for space of which a
    /// refused barrier may hide the notification.
    pub(super) fn is_watching(&self) -> bool {
        let is_watched = |end: &E| end.is_watched() || end.is_busy();
        self.active.iter().any(|number| self.get(*number).is_some_and(is_watched))
    }

    /// Returns the active ends that may rest, each named by its number.
    pub(super) fn resting_candidates(
        &mut self,
        which: Candidates,
        named: fn(usize) -> EndNumber,
    ) -> Vec<Resting> {
        let mut candidates = Vec::new();
        self.for_active(|number, end| {
            let was_used =
                which == Candidates::Unused && std::mem::take(&mut end.activity().was_used);
            if let Announcement::ByMark(at) = end.announcement()
                && let Some(rank) = end.rank()
                && !was_used
                && !end.is_busy()
            {
                candidates.push(Resting { end: named(number), rank, at });
            }
        });
        candidates
    }

    /// Number of active ends.
    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }
}
