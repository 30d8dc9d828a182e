//! The forms of a collective: blocking, nonblocking and persistent, each with counts of 32 and of 64
//! bits.
//!
//! Programs may also find the names with the suffix `_c` here that their MPI library lacks. Such a
//! call reaches the form with counts of 32 bits where the counts fit.

use crate::host::{Count, Handle, Pointer};
use std::ffi::c_int;

/// An argument of a function with the suffix `_c`, in the form without it.
pub(crate) trait Narrow {
    type Narrow;
    /// `None` if the value does not fit.
    fn narrow(self) -> Option<Self::Narrow>;
}

impl Narrow for Count {
    type Narrow = c_int;
    fn narrow(self) -> Option<c_int> {
        self.try_into().ok()
    }
}

macro_rules! unchanged {
    ($($type:ty),*) => {$(
        impl Narrow for $type {
            type Narrow = $type;
            fn narrow(self) -> Option<$type> {
                Some(self)
            }
        }
    )*};
}

unchanged!(c_int, Handle, Pointer);

/// Adds the handles among the arguments of a call to a list.
pub(crate) trait AddHandle {
    fn add_to(self, _handles: &mut Vec<Handle>);
}

impl AddHandle for Handle {
    fn add_to(self, handles: &mut Vec<Handle>) {
        handles.push(self);
    }
}

macro_rules! without_handle {
    ($($type:ty),*) => {$(
        impl AddHandle for $type {
            fn add_to(self, _handles: &mut Vec<Handle>) {}
        }
    )*};
}

without_handle!(c_int, Count, Pointer);

impl<T> AddHandle for *const T {
    fn add_to(self, _handles: &mut Vec<Handle>) {}
}

/// The handles among these arguments.
macro_rules! handles {
    ($($argument:ident),*) => {{
        let mut handles = Vec::new();
        $($argument.add_to(&mut handles);)*
        handles
    }};
}

/// The [`Decisive`](crate::selection::Decisive) block of a call.
macro_rules! decisive {
    () => {
        Decisive::None
    };
    ($count:ident of $datatype:ident) => {
        Decisive::Everywhere((i64::from($count), $datatype))
    };
    ($count:ident of $datatype:ident at $root:ident else $other:ident of $other_type:ident) => {
        Decisive::Rooted($root, [(i64::from($count), $datatype), (i64::from($other), $other_type)])
    };
}

/// Passes a call to a function of the MPI library if its kind is not examined; otherwise executes
/// the block. That is a function of its own, so that the first way takes two loads, two comparisons
/// and a jump, and saves no register.
macro_rules! examine {
    ($kind:ident $host:ident($($argument:ident: $type:ty),*) $block:block) => {{
        #[inline(never)]
        unsafe extern "C-unwind" fn examined($($argument: $type),*) -> c_int $block

        match host::$host.known() {
            // SAFETY: the program's arguments, for the function of this name.
            Some(function) if !selection::is_examined(Kind::$kind) => unsafe {
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
    ($kind:ident, $communicator:ident, $decisive:expr, $run:ident::$function:ident($($request:ident)?),
        $start:expr, $leave:expr) => {
        match selection::select(Kind::$kind, $communicator, $decisive) {
            // SAFETY: the program passes the address of a handle as that of a request.
            #[allow(unused_unsafe, reason = "blocking calls have no request")]
            Some(selected) => unsafe {
                $run::$function(Kind::$kind, selected, $($request,)? $start, $leave)
            },
            None => ($leave)(),
        }
    };
}

/// Defines blocking, nonblocking and persistent collectives, with counts `N` and displacements `D`
/// in both forms. `start` translates the arguments for tradewind. The brackets name
/// the [`Decisive`](crate::selection::Decisive) block, if the call has one.
macro_rules! collectives {
    ($($blocking:ident $blocking_large:ident
        $host:ident $host_large:ident $init:ident $init_large:ident
        $int_blocking:ident $profiling_blocking:ident
        $large_blocking:ident $profiling_large_blocking:ident
        $int:ident $profiling_int:ident $large:ident $profiling_large:ident
        $int_init:ident $profiling_int_init:ident $large_init:ident $profiling_large_init:ident
        $lists:tt($($argument:ident: $type:ty),* $(,)?) $([$($decisive:tt)*])?
        |$call:ident| $start:expr;)*) => {
        pub(crate) mod int {
            use super::*;
            type N = c_int;
            type D = c_int;
            export! {$(
                $int_blocking $profiling_blocking($($argument: $type,)* communicator: Handle) {
                    examine!($blocking $blocking($($argument: $type,)* communicator: Handle) {
                        run_or_leave!(
                            $blocking, communicator, decisive!($($($decisive)*)?), blocking::run(),
                            move |$call| $start,
                            move || pass!($blocking($($argument,)* communicator))
                        )
                    })
                }

                $int $profiling_int($($argument: $type,)* communicator: Handle, request: Pointer) {
                    examine!($host $host(
                        $($argument: $type,)* communicator: Handle, request: Pointer
                    ) {
                        run_or_leave!(
                            $host, communicator, decisive!($($($decisive)*)?), take::take(request),
                            move |$call| $start,
                            move || pass!($host($($argument,)* communicator, request))
                        )
                    })
                }

                $int_init $profiling_int_init(
                    $($argument: $type,)*
                    communicator: Handle,
                    info: Handle,
                    request: Pointer,
                ) {
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        prepare(
                            Kind::$init,
                            (communicator, handles!($($argument),*)),
                            request,
                            move |$call| $start,
                            || call!($init($($argument,)* communicator, info, request)),
                        )
                    }
                }
            )*}
        }
        mod large {
            use super::*;
            type N = Count;
            type D = Aint;
            export! {$(
                $large_blocking $profiling_large_blocking(
                    $($argument: $type,)*
                    communicator: Handle,
                ) {
                    examine!($blocking $blocking_large($($argument: $type,)* communicator: Handle) {
                        run_or_leave!(
                            $blocking, communicator, decisive!($($($decisive)*)?), blocking::run(),
                            move |$call| $start,
                            move || match host::$blocking_large.find() {
                                Some(_) => pass!($blocking_large($($argument,)* communicator)),
                                None => without_large!(
                                    $lists $host $blocking $blocking_large ($($argument),*)
                                    communicator,
                                    (std::ptr::null_mut(), Form::Blocking),
                                    [communicator]
                                ),
                            }
                        )
                    })
                }

                $large $profiling_large($($argument: $type,)* communicator: Handle, request: Pointer) {
                    examine!($host $host_large(
                        $($argument: $type,)* communicator: Handle, request: Pointer
                    ) {
                        run_or_leave!(
                            $host, communicator, decisive!($($($decisive)*)?), take::take(request),
                            move |$call| $start,
                            move || match host::$host_large.find() {
                                Some(_) => pass!($host_large($($argument,)* communicator, request)),
                                None => without_large!(
                                    $lists $host $host $host_large ($($argument),*)
                                    communicator, (request, Form::Nonblocking),
                                    [communicator, request]
                                ),
                            }
                        )
                    })
                }

                $large_init $profiling_large_init(
                    $($argument: $type,)*
                    communicator: Handle,
                    info: Handle,
                    request: Pointer,
                ) {
                    let leave = || match host::$init_large.find() {
                        Some(_) => call!($init_large($($argument,)* communicator, info, request)),
                        None => without_large!(
                            $lists $host $init $init_large ($($argument),*)
                            communicator, (request, Form::Persistent(info)),
                            [communicator, info, request]
                        ),
                    };
                    let handles = handles!($($argument),*);
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        prepare(
                            Kind::$init,
                            (communicator, handles),
                            request,
                            move |$call| $start,
                            leave,
                        )
                    }
                }
            )*}
        }
    };
}

/// Calls the form with counts of 32 bits where the MPI library lacks the other one.
macro_rules! without_large {
    (scalars $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        (|| Some(call!($host($($argument.narrow()?,)* $($last),*))))()
            .unwrap_or_else(|| host::missing(stringify!($large)))
    };
    ([$($group:expr),*] $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        narrow::$narrow($($group,)* $communicator, $form)
    };
    ([$($group:expr),*; $root:ident] $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        narrow::$narrow($($group,)* ($root, $communicator), $form)
    };
}

pub(crate) use {collectives, decisive, examine, handles, run_or_leave, without_large};
