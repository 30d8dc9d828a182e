//! The three forms of a collective as methods of a class.

use crate::errors::exception;
use crate::interrupts::{interruptible, wait_in_slices};
use crate::prepared::Prepared;
use crate::request::Request;
use crate::started::Used;
use pyo3::prelude::*;
use std::sync::Arc;

/// An array that a program passes.
pub(crate) type Array<'a, 'py> = &'a Bound<'py, PyAny>;

/// An array that a program may leave out.
pub(crate) type Maybe<'a, 'py> = Option<Array<'a, 'py>>;

/// Declares the methods of a class: those in braces, and three for each collective. `from` and `to` are
/// the arrays that it reads and writes, `with` are its other arguments.
macro_rules! collectives {
    (@call $self:ident, $Kind:ident, $input:expr, $output:expr, $($fields:tt)*) => {
        $crate::prepared::Prepared::new(
            $self.ranks()?,
            $crate::kind::Kind::$Kind,
            $crate::prepared::Arguments { $($fields)* ..Default::default() },
            $input,
            $output,
        )?
    };
    (
        $class:ident { $($methods:tt)* }
        $(
            $(#[$doc:meta])*
            $run:ident, $start:ident, $prepare:ident = $Kind:ident
            ($($parameter:ident: $type:ty $(= $default:tt)?),*)
            from $input:expr, to $output:expr, with { $($field:ident $(: $value:expr)?),* };
        )*
    ) => {
        #[::pyo3::pymethods]
        impl $class {
            $($methods)*
            $(
                $(#[$doc])*
                #[pyo3(signature = ($($parameter $(= $default)?),*))]
                fn $run(
                    &self,
                    py: ::pyo3::Python<'_>,
                    $($parameter: $type),*
                ) -> ::pyo3::PyResult<::pyo3::Py<::pyo3::PyAny>> {
                    let call = collectives!(
                        @call self, $Kind, $input, $output, $($field $(: $value)?,)*
                    );
                    $crate::forms::run(py, call)
                }

                #[doc = concat!("Starts the nonblocking form of `", stringify!($run), "`.")]
                #[pyo3(signature = ($($parameter $(= $default)?),*))]
                fn $start(
                    &self,
                    $($parameter: $type),*
                ) -> ::pyo3::PyResult<$crate::request::Request> {
                    let call = collectives!(
                        @call self, $Kind, $input, $output, $($field $(: $value)?,)*
                    );
                    $crate::forms::start(call)
                }

                #[doc = concat!("Prepares the persistent form of `", stringify!($run), "` on these arrays.")]
                #[pyo3(signature = ($($parameter $(= $default)?),*))]
                fn $prepare(
                    &self,
                    $($parameter: $type),*
                ) -> ::pyo3::PyResult<$crate::persistent::Persistent> {
                    let call = collectives!(
                        @call self, $Kind, $input, $output, $($field $(: $value)?,)*
                    );
                    $crate::persistent::Persistent::new(call)
                }
            )*
        }
    };
}
pub(crate) use collectives;

/// Executes the blocking form of a call, and returns its result.
pub(crate) fn run(py: Python<'_>, call: Prepared) -> PyResult<Py<PyAny>> {
    if call.ranks.communicator.nodes() == 1 {
        // SAFETY: the call alone writes its output.
        interruptible(py, || unsafe { call.run() })?;
        return call.result(py);
    }
    // Between nodes signals end waits in slices only.
    // SAFETY: the call outlives its request, which alone writes the output.
    let started = unsafe { call.start() };
    let mut started = started.map_err(|error| exception(&error))?;
    wait_in_slices(py, None, |slice| started.pending().wait_timeout(slice))?;
    drop(started);
    call.result(py)
}

/// Starts the nonblocking form of a call.
pub(crate) fn start(call: Prepared) -> PyResult<Request> {
    let call = Arc::new(call);
    // SAFETY: the request keeps the call, and alone writes its output.
    let started = unsafe { call.start() };
    let started = started.map_err(|error| exception(&error))?;
    Ok(Request::new(started, Used::Collective(call)))
}
