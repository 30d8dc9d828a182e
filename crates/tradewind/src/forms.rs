//! The blocking, nonblocking and persistent form of a collective with an input and an output, made
//! from one description.

use crate::buffers::{Input, Output};
use crate::error::Result;
use crate::shape::bytes_of;
use bytemuck::Pod;
pub(crate) use models::decision::CallForm;

/// Beginning of a call: its form, and what it states about the lengths of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallStart {
    /// Bytes of the buffers of a call; `None` is one in place.
    Buffers { form: CallForm, input: Option<u64>, output: Option<u64> },
    /// Bytes of a block of a persistent collective; 0 if lists of counts state them.
    Prepared { block: u64 },
}

impl CallStart {
    /// The start of a call with these buffers.
    #[inline(always)]
    pub(crate) fn with<'i, 'o, T: Pod>(
        form: CallForm,
        input: &impl Input<'i, T>,
        output: &impl Output<'o, T>,
    ) -> Self {
        let input = input.argument().map(|argument| argument.length);
        let output = output.argument().map(|argument| argument.length);
        CallStart::Buffers { form, input, output }
    }

    /// The preparation of blocks of `count` elements.
    pub(crate) fn prepared<T>(count: usize) -> Result<Self> {
        Ok(CallStart::Prepared { block: bytes_of::<T>(count)? })
    }

    /// The form of the call. The starts of a persistent collective match nonblocking ones.
    #[inline(always)]
    pub(crate) fn form(&self) -> CallForm {
        match self {
            CallStart::Buffers { form, .. } => *form,
            CallStart::Prepared { .. } => CallForm::Nonblocking,
        }
    }

    /// Returns `true` if the input lies in the output.
    #[inline(always)]
    pub(crate) fn is_input_in_place(&self) -> bool {
        matches!(self, CallStart::Buffers { input: None, .. })
    }
}

/// Makes the three forms of collectives with an input and an output.
///
/// An entry has the documentation of the blocking form, the names of the forms, the arguments, and
/// the method that plans all three. The method takes the constants in its parentheses, the
/// [`CallStart`], and the arguments around `input` and `output`. The path behind `in` is a function
/// that returns the communicator.
///
/// The parentheses behind the nonblocking form hold its rule about waiting, if it is not the usual
/// one. Those behind the persistent form hold the text on its lengths, and the name of the number of
/// elements if it takes one. The method behind `streamed by` runs the blocking form without a plan, if it can.
macro_rules! forms {
    (
        $(#[$head:meta])*
        impl $type:ident in $members:path;
        $(
            $(#[$doc:meta])*
            $name:ident, $start:ident $(($waits:ident))?,
            $prepare:ident($lengths:literal $(, $count:ident)?):
            (
                input $(, $before:ident: $before_type:ty)*;
                output: $output:ty $(, $after:ident: $after_type:ty)*
            )
            = $plan:ident($($constant:expr),*) $(, streamed by $stream:ident)?;
        )*
    ) => {
        $(#[$head])*
        impl $type {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name<'i, 'o, T: ::bytemuck::Pod>(
                    &self,
                    input: impl $crate::buffers::Input<'i, T, Back = ()>,
                    $($before: $before_type,)*
                    output: $output,
                    $($after: $after_type,)*
                ) -> $crate::error::Result<()> {
                    use $crate::forms::{CallForm, CallStart};
                    let start = CallStart::with(CallForm::Blocking, &input, &output);
                    forms!(
                        @run [$($stream)?] self, $members(self), $plan, input, output,
                        [$($constant,)* start] [$($before,)* $($after,)*]
                    )
                }

                #[doc = concat!(
                    "Starts the nonblocking form of [`", stringify!($name), "`](Self::",
                    stringify!($name), "). Buffers of the segment move in;",
                )]
                /// [`wait`](crate::Request::wait) returns them.
                ///
                /// # Errors
                #[doc = concat!("The errors of [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                #[doc = forms!(@waits $($waits)?)]
                #[inline]
                pub fn $start<
                    'a,
                    T: ::bytemuck::Pod,
                    I: $crate::buffers::Input<'a, T>,
                    O: $crate::buffers::Output<'a, T>,
                >(
                    &self,
                    input: I,
                    $($before: $before_type,)*
                    output: O,
                    $($after: $after_type,)*
                ) -> $crate::error::Result<$crate::request::Request<'a, (I::Back, O::Back)>> {
                    use $crate::forms::{CallForm, CallStart};
                    let start = CallStart::with(CallForm::Nonblocking, &input, &output);
                    self.$plan::<T>($($constant,)* start, $($before,)* $($after,)*)?
                        .start($members(self), input, output)
                }

                #[doc = concat!(
                    "Prepares the persistent form of [`", stringify!($name), "`](Self::",
                    stringify!($name), ") ", $lengths, ".",
                )]
                ///
                /// # Errors
                #[doc = concat!("The errors of [`", stringify!($start), "`](Self::", stringify!($start), ").")]
                pub fn $prepare<T: ::bytemuck::Pod>(
                    &self,
                    $($count: usize,)?
                    $($before: $before_type,)*
                    $($after: $after_type,)*
                ) -> $crate::error::Result<$crate::persistent::Persistent<$crate::plan::TwoBuffers<T>>>
                {
                    let start = $crate::forms::CallStart::prepared::<T>(forms!(@count $($count)?))?;
                    let plan = self.$plan::<T>($($constant,)* start, $($before,)* $($after,)*)?;
                    Ok($crate::persistent::Persistent::new($members(self), plan))
                }
            )*
        }
    };

    (
        @run [] $self:ident, $members:expr, $plan:ident, $input:ident, $output:ident,
        [$($first:expr),*] [$($argument:expr,)*]
    ) => {
        $self.$plan::<T>($($first,)* $($argument,)*)?.run($members, $input, $output)
    };
    (
        @run [$stream:ident] $self:ident, $members:expr, $plan:ident, $input:ident, $output:ident,
        [$($first:expr),*] [$($argument:expr,)*]
    ) => {{
        let mut output = $output;
        let streamed = $self.$stream(&$input, &mut output, $($argument,)*);
        if let Some($crate::streamed_blocks::StreamedCall::Ended(outcome)) = streamed {
            return outcome;
        }
        let plan = $self.$plan::<T>($($first,)* $($argument,)*)?;
        match streamed {
            Some(_) => plan.run_without_streams($members, $input, output),
            None => plan.run($members, $input, output),
        }
    }};

    (@waits) => {
        "Fails if the schedule cannot be linked. Never waits once linked."
    };
    (@waits takes_own_sizes) => {
        "Never waits: on one node the algorithm is always `join`, and between nodes each rank registers \
         its own part of the schedule."
    };

    (@count) => {
        0
    };
    (@count $count:ident) => {
        $count
    };
}
pub(crate) use forms;
