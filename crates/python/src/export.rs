//! Exports by the buffer protocol. The type of the crate `pyo3` refuses arrays without a dimension.

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char};

/// An export of an object's memory, which stays valid and in place until this is dropped.
pub(crate) struct Export(Box<ffi::Py_buffer>);

// SAFETY: any thread may read the description, and release it while it has the interpreter's lock.
unsafe impl Send for Export {}
// SAFETY: nothing changes the description.
unsafe impl Sync for Export {}

impl Export {
    /// Exports the memory of an object; `None` if it does not have the protocol.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        // SAFETY: the object is valid. The check reads its type.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            return Ok(None);
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is valid, and the description has space. It stays where it is.
        let outcome =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_FULL_RO) };
        match outcome {
            0 => Ok(Some(Export(view))),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.0.buf.cast()
    }

    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    pub(crate) fn element_bytes(&self) -> usize {
        usize::try_from(self.0.itemsize).unwrap_or(0)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.0.readonly == 0
    }

    /// Returns whether the elements follow each other, the last dimension fastest.
    pub(crate) fn is_contiguous(&self) -> bool {
        // SAFETY: the description is that of an export.
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *self.0, b'C' as c_char) == 1 }
    }

    /// Format of the elements, as in the module `struct`.
    pub(crate) fn format(&self) -> &[u8] {
        match self.0.format.is_null() {
            true => b"B",
            // SAFETY: a terminated string, which lives as long as the export.
            false => unsafe { CStr::from_ptr(self.0.format) }.to_bytes(),
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Without an interpreter nothing is left to release.
        // SAFETY: this thread has the lock, and the export is released once.
        Python::try_attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}
