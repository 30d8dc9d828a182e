//! The names of the collectives: blocking, nonblocking and persistent, each with counts of 32 and of
//! 64 bits. [`with_collectives`] has a row for each.

use crate::collectives::{self, Elements, Listed, Typed};
use crate::combining::{self, Prefix, Reduced, Reduction};
use crate::host::{self, Aint, Count, Handle, Offset, Pointer, Types, call, pass};
use crate::kind::{Collective, Form, Kind};
use crate::names::export;
use crate::narrow::{Argument, Narrowed, neighbors_of, none, own_group, ranks, ranks_at_root};
use crate::neighbors;
use crate::selection::{self, Decisive};
use crate::signatures::with_collectives;
use crate::take;
use std::ffi::c_int;

fn elements(at: Pointer, count: impl Into<i64>, datatype: Handle) -> Elements {
    Elements { at, count: count.into(), datatype }
}

fn blocks<N, D>(
    at: Pointer,
    counts: *const N,
    displacements: *const D,
    datatype: Handle,
) -> Listed<N, D> {
    Listed { at, counts, displacements, datatype }
}

fn typed<N, D>(
    at: Pointer,
    counts: *const N,
    displacements: *const D,
    datatypes: Types,
) -> Typed<N, D> {
    Typed { at, counts, displacements, datatypes }
}

fn reduced(send: Pointer, receive: Pointer, count: impl Into<i64>) -> Reduced {
    Reduced { send, receive, count: count.into() }
}

fn reduction(datatype: Handle, operation: Handle) -> Reduction {
    Reduction { datatype, operation }
}

/// The [`Decisive`] block of a call.
macro_rules! decisive {
    ([]) => {
        Decisive::None
    };
    ([$count:ident of $datatype:ident]) => {
        Decisive::Everywhere((i64::from($count), $datatype))
    };
    ([$count:ident of $datatype:ident at $root:ident else $other:ident of $other_type:ident]) => {
        Decisive::Rooted($root, [(i64::from($count), $datatype), (i64::from($other), $other_type)])
    };
}

/// Passes a call to a function of the MPI library if its kind is not examined; otherwise executes
/// the block. That is a function of its own, so that the first way takes two loads, two comparisons
/// and a jump, and saves no register.
macro_rules! examine {
    ($kind:ident $($host:ident)::+($($argument:ident: $type:ty),*) $block:block) => {{
        #[inline(never)]
        unsafe extern "C-unwind" fn examined($($argument: $type),*) -> c_int $block

        match host::$($host)::+.known() {
            // SAFETY: the program's arguments, for the function of this name.
            Some(function) if !selection::is_examined($kind) => unsafe {
                function($($argument),*)
            },
            // SAFETY: the program's arguments, which fulfil what the MPI standard demands.
            _ => unsafe { examined($($argument),*) },
        }
    }};
}

/// Runs a call here, by `run`, if it is selected, and leaves it otherwise. `start` and `leave` are
/// formed where they are called: they hold the arguments, which otherwise stay in registers.
macro_rules! run_or_leave {
    ($kind:ident, $communicator:ident, $decisive:expr, $run:path, ($($request:ident)?),
        $start:expr, $leave:expr) => {
        match selection::select($kind, $communicator, $decisive) {
            // SAFETY: the program passes the address of a handle as that of a request.
            #[allow(unused_unsafe, reason = "blocking calls have no request")]
            Some(selected) => unsafe { $run($kind, selected, $($request,)? $start, $leave) },
            None => ($leave)(),
        }
    };
}

/// Leaves a call to the MPI library, by `call` or `pass`. Where that lacks the form with counts of 64
/// bits, the call reaches the other one.
macro_rules! leave {
    (int $call:ident $name:ident $form:ident ($($argument:ident),*) [$($last:ident),*]
        $request:expr $(, $lists:expr)?) => {
        $call!($name::int::$form($($argument,)* $($last),*))
    };
    (large $call:ident $name:ident $form:ident ($($argument:ident),*)
        [$communicator:ident $(, $last:ident)*] $request:expr, $lists:expr) => {
        match host::$name::large::$form.find() {
            Some(_) => $call!($name::large::$form($($argument,)* $communicator $(, $last)*)),
            None => {
                let mut narrowed = Narrowed::new($communicator, $lists);
                $(let $argument = $argument.narrow(&mut narrowed);)*
                narrowed.call(
                    $request,
                    || host::$name::large::$form.missing(),
                    || call!($name::int::$form($($argument,)* $communicator $(, $last)*)),
                )
            }
        }
    };
}

/// Defines the forms of a collective with counts `N` and displacements `D`. `start` translates the
/// arguments for tradewind.
macro_rules! forms {
    ($width:ident $N:ty, $D:ty, $suffix:literal: $Name:ident $name:ident $decisive:tt
        ($($argument:ident: $type:ty),*) |$call:ident| $start:expr $(, $lists:expr)?) => {
        pub(crate) mod $width {
            use $crate::collective_names::*;
            #[allow(dead_code, reason = "some collectives have no counts, or no displacements")]
            type N = $N;
            #[allow(dead_code, reason = "as above")]
            type D = $D;
            const BLOCKING: Kind =
                Kind { form: Form::Blocking, collective: Collective::$Name };
            const NONBLOCKING: Kind = Kind { form: Form::Nonblocking, ..BLOCKING };
            const PERSISTENT: Kind = Kind { form: Form::Persistent, ..BLOCKING };

            export! {
                blocking ["MPI_", stringify!($Name), $suffix](
                    $($argument: $type,)* communicator: Handle
                ) {
                    examine!(BLOCKING $name::$width::blocking(
                        $($argument: $type,)* communicator: Handle
                    ) {
                        run_or_leave!(
                            BLOCKING, communicator, decisive!($decisive), take::run, (),
                            move |$call| $start,
                            move || leave!(
                                $width pass $name blocking ($($argument),*) [communicator]
                                None $(, $lists)?
                            )
                        )
                    })
                }

                nonblocking ["MPI_I", stringify!($name), $suffix](
                    $($argument: $type,)* communicator: Handle, request: Pointer
                ) {
                    examine!(NONBLOCKING $name::$width::nonblocking(
                        $($argument: $type,)* communicator: Handle, request: Pointer
                    ) {
                        run_or_leave!(
                            NONBLOCKING, communicator, decisive!($decisive), take::take, (request),
                            move |$call| $start,
                            move || leave!(
                                $width pass $name nonblocking ($($argument),*)
                                [communicator, request] Some(request) $(, $lists)?
                            )
                        )
                    })
                }

                persistent ["MPI_", stringify!($Name), "_init", $suffix](
                    $($argument: $type,)* communicator: Handle, info: Handle, request: Pointer
                ) {
                    let handles: &[Option<Handle>] = &[$($argument.handle()),*];
                    let handles = handles.iter().flatten().copied().collect();
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        take::prepare(
                            PERSISTENT,
                            (communicator, handles),
                            request,
                            move |$call| $start,
                            || leave!(
                                $width call $name persistent ($($argument),*)
                                [communicator, info, request] Some(request) $(, $lists)?
                            ),
                        )
                    }
                }
            }
        }
    };
}

/// Defines the collectives. Those without counts have one form.
macro_rules! collectives {
    ($($Name:ident $name:ident $lengths:ident $decisive:tt $arguments:tt $(lists $lists:expr,)?
        |$call:ident| $start:expr;)*) => {$(
        pub(crate) mod $name {
            forms! { int c_int, c_int, "": $Name $name $decisive $arguments |$call| $start }
            $(forms! {
                large Count, Aint, "_c": $Name $name $decisive $arguments |$call| $start, $lists
            })?
        }
    )*};
}

with_collectives! { collectives }
