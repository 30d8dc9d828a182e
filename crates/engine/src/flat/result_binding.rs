//! Location of the result of a flat collective.

use crate::argument::{Argument, Binding};
use shm::segment::Offset;

/// Location of a result in one word, which keeps requests small: they are moved often.
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
