//! Arrays by DLPack: the structures of its ABI, version 0.8, which every producer offers.

use crate::elements::Elements;
use crate::errors::ArrayError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_void;

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    data_type: DataType,
    shape: *const i64,
    /// Null if the elements follow each other.
    strides: *const i64,
    byte_offset: u64,
}

/// Devices with memory that this process reaches: the processor, and memory that is pinned for CUDA or
/// ROCm.
const REACHABLE: [i32; 3] = [1, 3, 11];

/// Memory of an array.
pub(crate) struct Exported {
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) elements: Elements,
    /// The owner: the memory is valid as long as this.
    pub(crate) capsule: Py<PyAny>,
}

/// Memory of an object with DLPack; `None` for another object.
pub(crate) fn export(object: &Bound<'_, PyAny>) -> PyResult<Option<Exported>> {
    let (Ok(export), Ok(device)) =
        (object.getattr("__dlpack__"), object.getattr("__dlpack_device__"))
    else {
        return Ok(None);
    };
    let (kind, number): (i32, i32) = device.call0()?.extract()?;
    if !REACHABLE.contains(&kind) {
        let text = format!(
            "the array is on device {number} of kind {kind} of DLPack: copy it to the processor first"
        );
        return Err(ArrayError::new_err(text));
    }
    let capsule = export.call0()?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(c"dltensor"))?;
    // SAFETY: a capsule of this name holds a structure that begins with a tensor, and lives as long as
    // the capsule: no other consumer has taken the tensor over.
    let tensor = unsafe { pointer.cast::<Tensor>().as_ref() };
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    // SAFETY: a tensor has as many lengths as dimensions; strides are null or as many.
    let [shape, strides] = [tensor.shape, tensor.strides].map(|list| unsafe {
        if list.is_null() { &[][..] } else { std::slice::from_raw_parts(list, dimensions) }
    });
    if !is_contiguous(shape, strides) {
        return Err(ArrayError::new_err("the array is not contiguous: copy it first"));
    }
    let DataType { code, bits, lanes } = tensor.data_type;
    let elements = Elements::of_dlpack(code, bits, lanes).ok_or_else(|| {
        ArrayError::new_err(format!("elements of {bits} bits are no whole bytes: pack them first"))
    })?;
    let bytes = shape.iter().try_fold(elements.size, |bytes, length| {
        usize::try_from(*length).ok().and_then(|length| bytes.checked_mul(length))
    });
    let bytes = bytes.ok_or_else(|| ArrayError::new_err("the array has an impossible shape"))?;
    let address = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    Ok(Some(Exported { address, bytes, elements, capsule: capsule.unbind() }))
}

/// Returns whether elements of an array follow each other, the last dimension fastest.
fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(length, stride)| {
        let fits = *length == 1 || *stride == expected;
        // The strides of an array that fits into memory do not overflow.
        expected = i64::wrapping_mul(expected, *length);
        fits
    })
}
