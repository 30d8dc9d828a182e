//! Types and operations that active calls and persistent collectives use. A program may free them
//! meanwhile, as MPI allows; they are then freed when the calls are complete.

use crate::abi::{Abi, abi};
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
    match object {
        Object::Type(handle) => abi.by_address(handle, |at| call!(Type_free(at))),
        Object::Operation(handle) => abi.by_address(handle, |at| call!(Op_free(at))),
    };
}

/// `MPI_Type_free`.
pub(crate) fn type_free(datatype: Pointer) -> c_int {
    let null = |abi: &Abi| abi.datatype_null;
    if is_put_off(datatype, Object::Type, null) { 0 } else { call!(Type_free(datatype)) }
}

/// `MPI_Op_free`.
pub(crate) fn op_free(operation: Pointer) -> c_int {
    let null = |abi: &Abi| abi.op_null;
    if is_put_off(operation, Object::Operation, null) { 0 } else { call!(Op_free(operation)) }
}

/// Marks an object as freed and its handle as null if a call uses it. Also inside the MPI library: it
/// may call a function of the program, which frees an object that a call uses. The library's own
/// objects are in no call.
fn is_put_off(at: Pointer, object: fn(Handle) -> Object, null: fn(&Abi) -> Handle) -> bool {
    let Some(abi) = abi().filter(|_| !at.is_null()) else { return false };
    // SAFETY: the program passes the address of a handle, which no other thread changes during the
    // call; `read` reads one of this ABI's size.
    let handle = unsafe { abi.read(at, 0) };
    let is_used = uses().get_mut(&object(handle)).map(|known| known.is_freed = true).is_some();
    if is_used {
        // SAFETY: the handle that was read lies there, and MPI lets this call overwrite it.
        unsafe { abi.write(at, 0, null(abi)) };
    }
    is_used
}
