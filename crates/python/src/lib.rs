//! The Python module `tradewind._native`, over the interface of the crate [`tradewind`].
//!
//! Programs import `python/tradewind/__init__.py`. An array is any object with the buffer
//! protocol or DLPack; its memory is used in place, and a request keeps it. Waits release the
//! interpreter's lock and end with the exception of a signal.

mod arrays;
mod collectives;
mod communicator;
mod dlpack;
mod elements;
mod errors;
mod export;
mod forms;
mod handle;
mod interrupts;
mod job;
mod kind;
mod memory;
mod messages;
mod neighbors;
mod persistent;
mod prepared;
mod request;
mod started;
mod status;
mod waiter;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<neighbors::Neighbors>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<persistent::Persistent>()?;
    module.add_class::<status::Status>()?;
    module.add_class::<elements::Op>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<prepared::InPlace>()?;
    module.add("IN_PLACE", prepared::InPlace)?;
    module.add_function(wrap_pyfunction!(job::world, module)?)?;
    module.add_function(wrap_pyfunction!(job::joined, module)?)?;
    module.add_function(wrap_pyfunction!(job::join, module)?)?;
    module.add_function(wrap_pyfunction!(job::leave, module)?)?;
    module.add_function(wrap_pyfunction!(job::local, module)?)?;
    module.add_function(wrap_pyfunction!(job::local_nodes, module)?)?;
    module.add_function(wrap_pyfunction!(handle::forked, module)?)
}
