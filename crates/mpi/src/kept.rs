//! Types and operations that active calls and persistent collectives use. A program may free them meanwhile, as MPI allows;
//! they are then freed when the calls are complete.

use crate::abi::Abi;
use crate::host::{Handle, Pointer, call};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Type(Handle),
    Operation(Handle),
}

#[derive(Default)]
struct Use {
    /// Number of active calls.
    calls: usize,
    /// The program has freed the object.
    is_freed: bool,
}

static USES: Mutex<BTreeMap<Object, Use>> = Mutex::new(BTreeMap::new());

fn uses() -> MutexGuard<'static, BTreeMap<Object, Use>> {
    USES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a call uses an object.
pub(crate) fn keep(object: Object) {
    uses().entry(object).or_default().calls += 1;
}

/// Notes that a call that has used an object is complete.
pub(crate) fn release(abi: &Abi, object: Object) {
    let mut uses = uses();
    let Some(known) = uses.get_mut(&object) else { return };
    known.calls -= 1;
    if known.calls > 0 {
        return;
    }
    let is_freed = known.is_freed;
    uses.remove(&object);
    drop(uses);
    if is_freed {
        free_now(abi, object);
    }
}

/// Frees an object of the MPI library.
pub(crate) fn free_now(abi: &Abi, object: Object) {
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    let (Object::Type(handle) | Object::Operation(handle)) = object;
    // SAFETY: the variable is as large as the handles of every ABI.
    unsafe { abi.write(at, 0, handle) };
    match object {
        Object::Type(_) => call!(Type_free(at)),
        Object::Operation(_) => call!(Op_free(at)),
    };
}

/// `MPI_Type_free`.
///
/// # Safety
/// `datatype` points to a handle.
pub(crate) unsafe fn type_free(abi: &Abi, datatype: Pointer) -> c_int {
    // SAFETY: by the caller's promise `datatype` points to a handle, which no other thread changes
    // during the call; `read` reads one of this ABI's size.
    let handle = unsafe { abi.read(datatype, 0) };
    let object = Object::Type(handle);
    if is_put_off(object) {
        // SAFETY: the handle that was read lies there, and MPI lets this call overwrite it.
        unsafe { abi.write(datatype, 0, abi.datatype_null) };
        return 0;
    }
    call!(Type_free(datatype))
}

/// `MPI_Op_free`.
///
/// # Safety
/// `operation` points to a handle.
pub(crate) unsafe fn op_free(abi: &Abi, operation: Pointer) -> c_int {
    // SAFETY: by the caller's promise `operation` points to a handle, which no other thread changes
    // during the call; `read` reads one of this ABI's size.
    let handle = unsafe { abi.read(operation, 0) };
    let object = Object::Operation(handle);
    if is_put_off(object) {
        // SAFETY: the handle that was read lies there, and MPI lets this call overwrite it.
        unsafe { abi.write(operation, 0, abi.op_null) };
        return 0;
    }
    call!(Op_free(operation))
}

/// Marks an object as freed if a call uses it.
fn is_put_off(object: Object) -> bool {
    uses().get_mut(&object).is_some_and(|known| {
        known.is_freed = true;
        true
    })
}
