//! An active collective: tradewind's part of it, and what follows that part.

use crate::abi::Abi;
use crate::buffers::{Area, Staging};
use crate::failures;
use crate::kind::Kind;
use crate::origin::Origin;
use crate::reductions::Fold;
use std::ffi::c_int;
use std::time::Instant;
use tradewind::{Request, interop};

/// A started collective of tradewind.
pub(crate) enum Started {
    One(Request<'static>),
    Two(Request<'static, ((), ())>),
}

impl Started {
    fn test(&mut self) -> tradewind::Result<bool> {
        match self {
            Started::One(request) => request.test(),
            Started::Two(request) => request.test(),
        }
    }

    pub(super) fn uses_arena(&self) -> bool {
        match self {
            Started::One(request) => interop::uses_arena(request),
            Started::Two(request) => interop::uses_arena(request),
        }
    }

    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        match self {
            Started::One(request) => request.is_queued(),
            Started::Two(request) => request.is_queued(),
        }
    }
}

impl From<Request<'static>> for Started {
    fn from(request: Request<'static>) -> Self {
        Started::One(request)
    }
}

impl From<Request<'static, ((), ())>> for Started {
    fn from(request: Request<'static, ((), ())>) -> Self {
        Started::Two(request)
    }
}

/// The rest of a call, when tradewind's part is complete.
pub(crate) enum Rest {
    Unpack(Staging, Area),
    Fold(Fold),
}

impl Rest {
    pub(crate) fn finish(self, abi: &Abi) -> c_int {
        match self {
            Rest::Unpack(staging, area) => {
                area.unpack(abi, staging.at(0));
                area.release(abi);
                0
            }
            Rest::Fold(fold) => fold.finish(abi),
        }
    }
}

/// An active call.
pub(crate) struct Operation {
    // The request comes first, because fields are dropped in order and it uses the input.
    pub(super) started: Started,
    _input: Option<Staging>,
    pub(super) rest: Option<Box<Rest>>,
    pub(super) kind: Kind,
    /// `None` until the operation is entered.
    pub(super) origin: Option<Origin>,
    /// The handle stays with the program: the call is a start of a persistent collective.
    pub(super) is_persistent: bool,
    pub(super) state: State,
}

/// Stage of a call.
pub(super) enum State {
    /// Tradewind runs the collective.
    Active,
    /// Tradewind's part has failed, at this time. The error code is not known yet; a thread that
    /// finds it out holds the error.
    Failed(Instant, Option<tradewind::Error>),
    /// A thread executes the rest.
    Finishing,
    /// Complete, with this error code.
    Complete(c_int),
}

impl Operation {
    pub(crate) fn new(
        started: impl Into<Started>,
        input: Option<Staging>,
        rest: Option<Rest>,
    ) -> Box<Self> {
        // In a box from here on: each move of the whole took 10 ns, because a processor waits where
        // it loads in one piece what it has just stored in several.
        Box::new(Operation {
            started: started.into(),
            _input: input,
            rest: rest.map(Box::new),
            kind: Kind::ALL[0],
            origin: None,
            is_persistent: false,
            state: State::Active,
        })
    }

    /// Returns whether tradewind's part is complete. A failure ends it as well.
    pub(super) fn test(&mut self) -> bool {
        self.started.test().unwrap_or_else(|error| {
            failures::log(self.kind.name(), &error);
            self.state = State::Failed(Instant::now(), Some(error));
            false
        })
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.state, State::Active)
    }
}
