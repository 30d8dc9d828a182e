//! Ends of flows by number and by name.

use crate::transport::records::flows::FlowId;
use std::collections::HashMap;

/// Ends, each with a number for as long as it is open.
#[derive(Debug)]
pub(super) struct Ends<E> {
    all: Vec<Option<E>>,
    free: Vec<usize>,
    numbers: HashMap<FlowId, usize>,
}

impl<E> Default for Ends<E> {
    fn default() -> Self {
        Ends { all: Vec::new(), free: Vec::new(), numbers: HashMap::new() }
    }
}

impl<E> Ends<E> {
    /// Adds an end with the flows that it belongs to, none of which is open.
    pub(super) fn insert(&mut self, flows: impl IntoIterator<Item = FlowId>, end: E) -> usize {
        let number = self.free.pop().unwrap_or(self.all.len());
        if number == self.all.len() {
            self.all.push(None);
        }
        self.all[number] = Some(end);
        self.numbers.extend(flows.into_iter().map(|id| (id, number)));
        number
    }

    /// Returns the number of the end of a flow.
    pub(super) fn number(&self, id: &FlowId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    pub(super) fn get(&self, number: usize) -> Option<&E> {
        self.all.get(number)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut E> {
        self.all.get_mut(number)?.as_mut()
    }

    /// Returns the end of a flow.
    pub(super) fn of_mut(&mut self, id: &FlowId) -> Option<&mut E> {
        self.get_mut(self.number(id)?)
    }

    /// Removes an end with its flows.
    pub(super) fn remove(&mut self, number: usize, flows: &[FlowId]) -> Option<E> {
        let removed = self.all.get_mut(number)?.take()?;
        self.free.push(number);
        for id in flows {
            self.numbers.remove(id);
        }
        Some(removed)
    }

    /// Returns all ends with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut E)> {
        let all = self.all.iter_mut().enumerate();
        all.filter_map(|(number, end)| Some((number, end.as_mut()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &E> {
        self.all.iter().flatten()
    }
}
