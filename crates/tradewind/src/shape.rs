//! Lengths of a collective's buffers on one rank, and the checks of what a caller passes.

use crate::buffer_error::Elements;
use crate::communicator::Communicator;
use crate::error::{Error, Result, argument, does_not_fit};
use engine::signature::CallKind;

/// Lengths and roles of the input and the output on one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferShape {
    /// Bytes of the input; `None` where the rank contributes nothing, whatever buffer it passes.
    pub(crate) input: Option<u64>,
    /// Bytes of the result; `None` where the rank receives nothing.
    pub(crate) output: Option<u64>,
    pub(crate) in_place: InPlaceRule,
    /// The rank's own block, copied from input to output when the collective starts.
    pub(crate) own: Option<OwnBlock>,
}

/// A block that is in both buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnBlock {
    /// Offset in the input.
    pub(crate) from: u64,
    /// Offset in the output.
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

/// The buffer that may be [in place](crate::InPlace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InPlaceRule {
    /// The input, which then lies in the output from this offset on.
    InputAt(u64),
    /// The output: the result then stays in the input.
    Output,
    /// Neither, on this rank.
    Never,
}

impl BufferShape {
    /// An input and an output of these lengths; in place, the input is at the start of the output.
    #[inline]
    pub(crate) fn new(input: u64, output: u64) -> Self {
        BufferShape {
            input: Some(input),
            output: Some(output),
            in_place: InPlaceRule::InputAt(0),
            own: None,
        }
    }

    /// Fails if buffers of these lengths do not fit; `None` is a buffer in place. The call is that of
    /// the error.
    #[inline]
    pub(crate) fn check<T>(
        &self,
        (input, output): (Option<u64>, Option<u64>),
        call: impl FnOnce() -> CallKind,
    ) -> Result<()> {
        let whole = match (input, self.in_place, self.input, self.output) {
            // In place the output also holds the input.
            (None, InPlaceRule::InputAt(at), Some(input), Some(output)) => {
                Some(output.max(at + input))
            }
            (_, _, _, output) => output,
        };
        let input_fits = match (input, self.input) {
            (Some(found), Some(expected)) => found == expected,
            (None, Some(_)) => matches!(self.in_place, InPlaceRule::InputAt(_)),
            (_, None) => true,
        };
        let output_fits = match (output, whole) {
            (Some(found), Some(expected)) => found == expected,
            (None, Some(_)) => self.in_place == InPlaceRule::Output,
            (_, None) => true,
        };
        if input_fits && output_fits {
            return Ok(());
        }
        Err(self.mismatch(call(), size_of::<T>(), [input, output, whole]))
    }

    #[cold]
    fn mismatch(&self, kind: CallKind, each: usize, lengths: [Option<u64>; 3]) -> Error {
        let [input, output, whole] = lengths;
        let elements = |bytes: u64| Elements { bytes, each };
        let in_place = |what| does_not_fit(kind, what, "is in place", "be a buffer on this rank");
        let wrong =
            |what, found: Option<u64>, expected: Option<u64>, other, beside: Option<u64>| {
                let mut text = format!("has {}", elements(found.unwrap_or(0)));
                // The other one may be the wrong one.
                if let Some(beside) = beside {
                    text += &format!(" beside an {other} of {}", elements(beside));
                }
                let expected = format!("have {}", elements(expected.unwrap_or(0)));
                does_not_fit(kind, what, text, expected)
            };
        match (input, output) {
            (None, _) if !matches!(self.in_place, InPlaceRule::InputAt(_)) => in_place("the input"),
            (_, None) if self.in_place != InPlaceRule::Output => in_place("the output"),
            (Some(found), beside) if self.input.is_some_and(|bytes| bytes != found) => {
                wrong("the input", Some(found), self.input, "output", beside)
            }
            (beside, found) => wrong("the output", found, whole, "input", beside),
        }
    }

    /// The part of private memory that the result is written to.
    #[inline]
    pub(crate) fn result_in<'a>(&self, private: &'a mut [u8]) -> &'a mut [u8] {
        let length = private.len().min(self.output.unwrap_or(0) as usize);
        &mut private[..length]
    }
}

impl OwnBlock {
    /// Copies the block from the input to the output, if both have it.
    pub(crate) fn copy(self, input: &[u8], output: &mut [u8]) {
        let piece = |at: u64| at as usize..(at + self.bytes) as usize;
        if let (Some(from), Some(to)) =
            (input.get(piece(self.from)), output.get_mut(piece(self.to)))
        {
            to.copy_from_slice(from);
        }
    }
}

impl Communicator {
    /// Fails if `root` is not a rank of the communicator.
    #[inline]
    pub(crate) fn check_root(&self, root: u32) -> Result<()> {
        if root < self.size() {
            return Ok(());
        }
        Err(argument("the root", root.to_string(), format!("below {}", self.size())))
    }

    /// Fails unless these are two ranks of the communicator.
    pub(crate) fn check_pair(&self, from: u32, to: u32) -> Result<()> {
        let size = self.size();
        if from >= size || to >= size || from == to {
            let ends = format!("{from} and {to}");
            return Err(argument("the pair of ranks", ends, format!("two ranks below {size}")));
        }
        Ok(())
    }

    /// Bytes of each rank's part of a buffer `what` of elements `T` in a collective.
    #[inline]
    pub(crate) fn equal_part<T>(
        &self,
        kind: CallKind,
        what: &'static str,
        bytes: u64,
    ) -> Result<u64> {
        let ranks = u64::from(self.size());
        let part = bytes / ranks;
        // A part of an element is the same error: lengths are whole elements. The quotient and the
        // remainder are one division, and the size of an element is a constant.
        if bytes.is_multiple_of(ranks) && part.is_multiple_of((size_of::<T>() as u64).max(1)) {
            return Ok(part);
        }
        let found = format!("has {}", Elements { bytes, each: size_of::<T>() });
        Err(does_not_fit(
            kind,
            what,
            found,
            format!("have a multiple of {ranks}, the number of ranks"),
        ))
    }

    /// Bytes of a block for each rank together.
    #[inline]
    pub(crate) fn for_each_rank(&self, block: u64) -> Result<u64> {
        let all = block.checked_mul(u64::from(self.size()));
        all.ok_or_else(|| {
            argument(
                "the length of a block",
                format!("{block} bytes"),
                "short enough for 64 bits to count all",
            )
        })
    }
}

/// Bytes of `count` elements.
#[inline]
pub(crate) fn bytes_of<T>(count: usize) -> Result<u64> {
    let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
    bytes.ok_or_else(|| {
        argument("the number of elements", count.to_string(), "one whose bytes 64 bits can count")
    })
}
