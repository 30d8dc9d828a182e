//! Where the result of a meeting goes.

use crate::lane::{Argument, Binding};
use shm::segment::Offset;

/// Where a meeting's result goes, in one word: requests are moved about, and this keeps them small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultBinding(u64);

impl ResultBinding {
    const PRIVATE: u64 = u64::MAX;

    #[inline]
    pub(super) fn of(arguments: &[Argument<'_>]) -> Self {
        match arguments {
            [_, Argument { binding: Binding::Segment(at), .. }] => ResultBinding(at.0),
            _ => ResultBinding(ResultBinding::PRIVATE),
        }
    }

    #[inline]
    pub(super) fn output(self) -> Binding {
        if self.0 == ResultBinding::PRIVATE {
            Binding::Private
        } else {
            Binding::Segment(Offset(self.0))
        }
    }
}
