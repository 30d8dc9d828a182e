//! Memory of arrays.

use crate::dlpack::{self, Exported};
use crate::elements::Elements;
use crate::errors::ArrayError;
use crate::export::Export;
use pyo3::prelude::*;
use std::ptr::NonNull;

/// Owner of memory, which keeps it valid.
enum Owner {
    /// An export by the buffer protocol, which also hinders the array from changing its size.
    Buffer { _buffer: Export },
    /// An object that is not asked again.
    Object { _object: Py<PyAny> },
}

/// Contiguous memory of an array, which is valid as long as this.
///
/// Programs make it for arrays of libraries that tradewind does not know: `Memory(address, bytes,
/// type, owner)`, with a type as in numpy (`"float64"`). A wrong address is read and written all the same.
#[pyclass(frozen, module = "tradewind")]
pub(crate) struct Memory {
    address: NonNull<u8>,
    bytes: usize,
    elements: Elements,
    is_writable: bool,
    _owner: Owner,
}

// SAFETY: an address and an owner, which any thread may drop. Access to the bytes is that of arrays in
// Python, which threads share: the program orders it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[pymethods]
impl Memory {
    /// Describes memory at an address, which `owner` keeps valid and in place.
    #[new]
    fn new(address: usize, bytes: usize, r#type: &str, owner: Py<PyAny>) -> PyResult<Self> {
        let elements = Elements::of_name(r#type).ok_or_else(|| {
            let text = format!(
                "the type {:?} is unknown: use a name as in numpy, such as \"float64\"",
                r#type
            );
            ArrayError::new_err(text)
        })?;
        let _owner = Owner::Object { _object: owner };
        Ok(Memory {
            address: at(address as *mut u8, bytes)?,
            bytes,
            elements,
            is_writable: true,
            _owner,
        })
    }
}

/// The address of this number of bytes.
fn at(address: *mut u8, bytes: usize) -> PyResult<NonNull<u8>> {
    match NonNull::new(address) {
        Some(address) => Ok(address),
        None if bytes == 0 => Ok(NonNull::dangling()),
        None => Err(ArrayError::new_err("the array has no memory")),
    }
}

impl Memory {
    /// The memory of an array that is read.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(export) = Export::of(object)? {
            return Memory::of_export(export);
        }
        if let Ok(memory) = object.cast::<Memory>() {
            let Memory { address, bytes, elements, is_writable, .. } = *memory.get();
            let _owner = Owner::Object { _object: object.clone().unbind() };
            return Ok(Memory { address, bytes, elements, is_writable, _owner });
        }
        if let Some(Exported { address, bytes, elements, capsule }) = dlpack::export(object)? {
            let address = at(address, bytes)?;
            let _owner = Owner::Object { _object: capsule };
            return Ok(Memory { address, bytes, elements, is_writable: true, _owner });
        }
        let name = object.get_type().name()?;
        let text = format!(
            "{name} is no array: pass one with the buffer protocol or DLPack, such as numpy.ndarray"
        );
        Err(ArrayError::new_err(text))
    }

    /// The memory of an array that is written.
    pub(crate) fn of_output(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Memory::of(object)?;
        if memory.is_writable {
            return Ok(memory);
        }
        Err(ArrayError::new_err("the output is read-only: pass an array that may be written"))
    }

    fn of_export(export: Export) -> PyResult<Self> {
        if !export.is_contiguous() {
            let text = "the array is not contiguous: pass numpy.ascontiguousarray of an input, or a \
                        contiguous output";
            return Err(ArrayError::new_err(text));
        }
        if Elements::has_objects(export.format()) {
            let text = "the array has references to objects, which mean nothing to other ranks: use \
                        send_object, allgather_object and their like";
            return Err(ArrayError::new_err(text));
        }
        let elements = Elements::of_format(export.format(), export.element_bytes());
        let bytes = export.bytes();
        let address = at(export.address(), bytes)?;
        let is_writable = export.is_writable();
        let _owner = Owner::Buffer { _buffer: export };
        Ok(Memory { address, bytes, elements, is_writable, _owner })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn elements(&self) -> Elements {
        self.elements
    }

    /// Returns whether this is the block of this number, of `blocks` in the other memory.
    pub(crate) fn is_block(&self, other: &Memory, number: usize, blocks: usize) -> bool {
        let begin = (other.address.as_ptr() as usize).checked_add(self.bytes * number);
        begin == Some(self.address.as_ptr() as usize)
            && self.bytes.checked_mul(blocks) == Some(other.bytes)
    }

    /// Returns whether both are the same bytes.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        self.address == other.address && self.bytes == other.bytes
    }

    /// Returns whether a byte belongs to both.
    pub(crate) fn overlaps(&self, other: &Memory) -> bool {
        let [one, two] = [self, other].map(|memory| memory.address.as_ptr() as usize);
        let are_empty = self.bytes == 0 || other.bytes == 0;
        !are_empty && one < two + other.bytes && two < one + self.bytes
    }

    /// The bytes.
    ///
    /// # Safety
    /// The memory outlives the slice.
    pub(crate) unsafe fn slice<'a>(&self) -> &'a [u8] {
        // SAFETY: the owner keeps these bytes valid, as long as the memory lives.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) }
    }

    /// The bytes of an output.
    ///
    /// # Safety
    /// The memory outlives the slice, and this call has no other slice of these bytes.
    pub(crate) unsafe fn slice_mut<'a>(&self) -> &'a mut [u8] {
        // SAFETY: as above. Other threads of Python access the bytes only if the program lets them, and it
        // knows that the operation writes them.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }
}
