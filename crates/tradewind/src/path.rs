//! The execution path of a collective: flat or linked on one node, or on a backend between nodes.

use crate::error::Result;
use crate::internode::request::InternodeRequest;
use crate::internode::schedule::InternodeSchedule;
use engine::InputReaders;
use engine::LinkedSchedule;
use engine::Request as NodeRequest;
use engine::argument::Argument;
use engine::communicator::Communicator as NodeCommunicator;
use engine::flat::FlatCollective;
use engine::signature::Signature;
use models::decision::CallForm;
use std::sync::Arc;
use std::time::Duration;

/// Execution path of a collective.
#[derive(Clone, Debug)]
pub(crate) enum ExecutionPath {
    /// A flat collective in the shared memory of one node.
    Flat(FlatCollective),
    /// A linked schedule on one node.
    Linked(Arc<LinkedSchedule>),
    /// A schedule on a backend between nodes.
    Internode(Arc<InternodeSchedule>),
}

impl ExecutionPath {
    /// The signature of the call.
    pub(crate) fn call(&self) -> Signature {
        match self {
            ExecutionPath::Flat(flat) => flat.call,
            ExecutionPath::Linked(linked) => linked.call(),
            ExecutionPath::Internode(schedule) => schedule.call(),
        }
    }

    /// Returns `true` if it leads between nodes.
    #[inline]
    pub(crate) fn is_internode(&self) -> bool {
        matches!(self, ExecutionPath::Internode(_))
    }

    /// The schedule, if a blocking call runs it on the buffers themselves.
    #[inline]
    pub(crate) fn in_place_schedule(&self) -> Option<&Arc<InternodeSchedule>> {
        match self {
            ExecutionPath::Internode(schedule) => Some(schedule).filter(|one| one.runs_in_place()),
            ExecutionPath::Flat(_) | ExecutionPath::Linked(_) => None,
        }
    }

    /// Starts the collective with these buffers; `group` has the ranks of this node. The caller of
    /// a blocking form waits at once.
    ///
    /// Always inlined: where the caller knows that the path is flat, the pattern is a constant.
    #[inline(always)]
    pub(crate) fn start(
        &self,
        group: &Arc<NodeCommunicator>,
        form: CallForm,
        arguments: &[Argument<'_>],
    ) -> Result<StartedCollective> {
        Ok(match self {
            ExecutionPath::Flat(flat) => {
                StartedCollective::Node(group.start_flat(flat, arguments)?)
            }
            ExecutionPath::Linked(linked) => StartedCollective::Node(linked.start(arguments)?),
            ExecutionPath::Internode(schedule) => {
                StartedCollective::Internode(InternodeRequest::start(schedule, form, arguments)?)
            }
        })
    }
}

/// A started collective with a result still to fetch. Dropping it is sound: the collective
/// continues, its result is discarded.
#[derive(Debug)]
#[must_use = "the result is there only after test or wait"]
pub(crate) enum StartedCollective {
    /// Among ranks of one node.
    Node(NodeRequest),
    /// Between nodes.
    Internode(InternodeRequest),
}

impl StartedCollective {
    /// The signature of the call.
    pub(crate) fn call(&self) -> Signature {
        match self {
            StartedCollective::Node(pending) => pending.call(),
            StartedCollective::Internode(request) => request.call(),
        }
    }

    /// The ranks that read an input in the segment in place, if any.
    pub(crate) fn input_readers(&self) -> Option<InputReaders> {
        match self {
            StartedCollective::Node(pending) => pending.input_readers(),
            StartedCollective::Internode(_) => None,
        }
    }

    /// Returns `true` if ranks hold memory of their parts of a segment for it.
    pub(crate) fn uses_arena(&self) -> bool {
        match self {
            StartedCollective::Node(pending) => pending.uses_arena(),
            StartedCollective::Internode(_) => false,
        }
    }

    /// Returns `true` if a later call of this rank starts it.
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        match self {
            StartedCollective::Node(pending) => pending.is_queued(),
            StartedCollective::Internode(_) => false,
        }
    }

    /// Number of participating ranks.
    pub(crate) fn ranks(&self) -> u32 {
        match self {
            StartedCollective::Node(pending) => pending.communicator().size(),
            StartedCollective::Internode(request) => request.ranks(),
        }
    }

    /// Returns `true` if the collective is flat, that is, runs without a schedule.
    pub(crate) fn is_flat(&self) -> bool {
        match self {
            StartedCollective::Node(pending) => pending.is_flat(),
            StartedCollective::Internode(_) => false,
        }
    }

    /// Name of the backend that runs it, between nodes.
    pub(crate) fn backend(&self) -> Option<&'static str> {
        match self {
            StartedCollective::Node(_) => None,
            StartedCollective::Internode(request) => Some(request.backend()),
        }
    }

    /// Returns `true` if it is complete. Makes no progress itself: one load, but for collectives
    /// between nodes that the ranks run.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            StartedCollective::Node(pending) => pending.is_complete(),
            StartedCollective::Internode(request) => request.is_complete(),
        }
    }

    /// Executes the work that only this rank can do, then returns `true` if it is complete.
    #[inline]
    pub(crate) fn test(&self) -> Result<bool> {
        match self {
            StartedCollective::Node(pending) => Ok(pending.test()?),
            StartedCollective::Internode(request) => request.test(),
        }
    }

    /// Waits until it is complete, at most `limit`. `outputs` are those of the following
    /// [`collect`](Self::collect), and may have results after this call.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        limit: Option<Duration>,
        outputs: &mut [&mut [u8]],
    ) -> Result<()> {
        match self {
            StartedCollective::Node(pending) => Ok(pending.wait(limit)?),
            StartedCollective::Internode(request) => request.wait(limit, outputs),
        }
    }

    /// Copies the results of a complete collective into `outputs`, one slice a buffer; an empty
    /// slice skips its buffer.
    #[inline]
    pub(crate) fn collect(&mut self, outputs: &mut [&mut [u8]]) -> Result<()> {
        match self {
            StartedCollective::Node(pending) => Ok(pending.collect(outputs)?),
            StartedCollective::Internode(request) => request.fetch(outputs),
        }
    }
}
