//! The calls that are timed, in the order of the measurement.

use super::purpose::Purpose;
use crate::experiments::algorithms::CollectiveCall;
use crate::harness::options::numbers_of_ranks;
use crate::harness::{Nodes, Setting};
use collectives::Collective;
use models::decision::{CallForm, Query};
use std::collections::BTreeMap;

/// Sizes of a group on one node: all operations and ranks come before the next group.
const GROUP: usize = 3;
/// Calls between nodes of so many bytes or fewer are visited more than once.
const MOST_VISITED: u64 = 64 << 10;

/// Shapes and sizes of the calls of a measurement.
pub(super) struct Grid {
    operations: &'static [Collective],
    forms: &'static [CallForm],
    ranks: Vec<u32>,
    /// On each node, of several.
    ranks_per_node: Option<u32>,
    sizes: &'static [u64],
    /// No call takes more memory than this.
    most_memory: u64,
}

/// Number of visits to a short call between nodes. Four ranks on two cores stay at one of several
/// speeds for a while, with all plans.
pub(super) fn visits(setting: &Setting) -> usize {
    setting.choose(1, 2)
}

impl Grid {
    /// The calls on one node of a setting with these [words](Setting::words).
    pub(super) fn on_one_node(purpose: Purpose, words: &BTreeMap<String, String>) -> Self {
        const QUICK: [Collective; 3] =
            [Collective::Barrier, Collective::Bcast, Collective::Allreduce];
        let is_quick = words.get("effort").is_some_and(|effort| effort == "quick");
        let sizes = purpose.sizes(false);
        Grid {
            operations: if is_quick { &QUICK } else { Collective::ALL },
            forms: match purpose {
                Purpose::Check => &[CallForm::Blocking],
                Purpose::Calibration | Purpose::Decision => CallForm::ALL,
            },
            ranks: numbers_of_ranks(words, is_quick),
            ranks_per_node: None,
            sizes: if is_quick { &sizes[..3] } else { sizes },
            most_memory: 1 << 28,
        }
    }

    /// The calls between these nodes.
    pub(super) fn between(purpose: Purpose, setting: &Setting, nodes: &Nodes) -> Self {
        let sizes = purpose.sizes(true);
        Grid {
            operations: setting.choose(&Collective::ALL[..2], Collective::ALL),
            forms: CallForm::ALL,
            ranks: vec![nodes.size()],
            ranks_per_node: nodes.ranks.first().copied(),
            sizes: setting.choose(&sizes[..2], sizes),
            most_memory: 1 << 27,
        }
    }

    /// The calls of 0 bytes.
    pub(super) fn shapes(&self) -> Vec<Query> {
        let mut shapes = Vec::new();
        for ranks in self.ranks.iter().copied() {
            let ranks_per_node = self.ranks_per_node.unwrap_or(ranks);
            for operation in self.operations.iter().copied() {
                let shape = |form: &CallForm| Query {
                    operation,
                    form: *form,
                    ranks,
                    ranks_per_node,
                    bytes: 0,
                };
                shapes.extend(self.forms.iter().map(shape));
            }
        }
        shapes
    }

    /// All calls on one node: blocking ones first, and most used sizes first.
    pub(super) fn calls(&self) -> Vec<Query> {
        let of_form = |form: &CallForm| {
            let form = *form;
            self.sizes.chunks(GROUP).flat_map(move |sizes| self.sized(form, sizes))
        };
        self.forms.iter().flat_map(of_form).collect()
    }

    /// All calls between nodes, so many times: most used sizes first. Long calls differ less, and take
    /// their time in one visit.
    pub(super) fn visited(&self, visits: usize) -> Vec<Query> {
        let mut calls = Vec::new();
        for visit in 0..visits {
            for size in self.sizes.chunks(1).filter(|size| visit == 0 || size[0] <= MOST_VISITED) {
                calls.extend(self.forms.iter().flat_map(|form| self.sized(*form, size)));
            }
        }
        calls
    }

    /// The calls in this form of these sizes. A barrier has no size and goes with the first one.
    fn sized(&self, form: CallForm, sizes: &[u64]) -> Vec<Query> {
        let mut calls = Vec::new();
        for shape in self.shapes().into_iter().filter(|shape| shape.form == form) {
            let is_barrier = shape.operation == Collective::Barrier;
            for bytes in sizes.iter().filter(|bytes| !is_barrier || **bytes == self.sizes[0]) {
                calls.push(Query { bytes: if is_barrier { 0 } else { *bytes }, ..shape });
            }
        }
        calls.retain(|call| CollectiveCall::from(*call).memory() <= self.most_memory);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_called_once_for_each_form_and_number_of_ranks() {
        let calls = Grid::on_one_node(Purpose::Decision, &BTreeMap::new()).calls();
        let barriers = calls.iter().filter(|call| call.operation == Collective::Barrier);
        let found: Vec<_> = barriers.map(|call| (call.form, call.ranks, call.bytes)).collect();
        let of_form = |form| [2, 4, 8].map(|ranks| (form, ranks, 0));
        assert_eq!(found, [CallForm::Blocking, CallForm::Nonblocking].map(of_form).concat());
        let sizes = |operation| calls.iter().filter(|call| call.operation == operation).count();
        assert_eq!(sizes(Collective::Bcast), 14 * 3 * 2);
    }
}
