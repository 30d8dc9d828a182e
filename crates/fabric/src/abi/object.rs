//! The start of every object.

use std::ffi::{c_int, c_void};

/// `struct fid`: the start of every object.
#[repr(C)]
#[derive(Debug)]
pub struct Fid {
    /// Class of the object.
    pub fclass: usize,
    /// Context of the user.
    pub context: *mut c_void,
    /// Functions of every object.
    pub ops: *const FidOps,
}

/// `struct fi_ops`.
#[repr(C)]
#[derive(Debug)]
pub struct FidOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Frees the object.
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    /// Binds another object to this one.
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    /// Executes a command.
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}
