//! Arrays that calls make for their results, with numpy.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

fn numpy<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.import(py, "numpy", name)
}

/// The object as an array of numpy, without a copy if it has memory.
pub(crate) fn as_array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static CONVERT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if object.is_instance(numpy(object.py(), &CLASS, "ndarray")?)? {
        return Ok(object.clone());
    }
    numpy(object.py(), &CONVERT, "asarray")?.call1((object,))
}

/// A new array of this shape with elements of the type of `like`. Its elements are zero if `is_zero`.
pub(crate) fn new<'py>(
    like: &Bound<'py, PyAny>,
    shape: &[usize],
    is_zero: bool,
) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static ZEROS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (cell, name) = if is_zero { (&ZEROS, "zeros") } else { (&EMPTY, "empty") };
    let make = numpy(like.py(), cell, name)?;
    make.call1((pyo3::types::PyTuple::new(like.py(), shape)?, like.getattr("dtype")?))
}
