//! Where the result of a collective goes.

use crate::argument::{Argument, Binding};
use shm::segment::Offset;

/// Where a collective's result goes, in one word: requests are moved about, and this keeps them small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultBinding(u64);

impl ResultBinding {
    const PRIVATE: u64 = u64::MAX;

    #[inline]
    pub(crate) fn of(arguments: &[Argument<'_>]) -> Self {
        match arguments {
            [_, Argument { binding: Binding::Segment(at), .. }] => ResultBinding(at.0),
            _ => ResultBinding(ResultBinding::PRIVATE),
        }
    }

    #[inline]
    pub(crate) fn output(self) -> Binding {
        if self.0 == ResultBinding::PRIVATE {
            Binding::Private
        } else {
            Binding::Segment(Offset(self.0))
        }
    }
}
