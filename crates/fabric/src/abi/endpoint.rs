//! Endpoints: the objects that send and receive, and read remote memory.

use super::object::Fid;
use std::ffi::{c_int, c_void};

/// `struct fi_ops_cm`, up to `getname`.
#[repr(C)]
#[derive(Debug)]
pub struct ConnectionOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Unused.
    pub setname: *const c_void,
    /// Returns the address of the endpoint.
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

/// `struct fi_ops_msg`, up to `inject`.
#[repr(C)]
#[derive(Debug)]
pub struct MessageOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Posts a receive: memory, length, descriptor, source, context.
    pub recv: unsafe extern "C" fn(
        *mut EndpointFid,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        *mut c_void,
    ) -> isize,
    /// Unused.
    pub unused_receives: [*const c_void; 2],
    /// Posts a send: memory, length, descriptor, destination, context.
    pub send: unsafe extern "C" fn(
        *mut EndpointFid,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        *mut c_void,
    ) -> isize,
    /// Unused.
    pub unused_sends: [*const c_void; 2],
    /// Sends a short message without a completion. Its memory may be reused at once.
    pub inject: unsafe extern "C" fn(*mut EndpointFid, *const c_void, usize, u64) -> isize,
}

/// `struct fi_ops_rma`, up to `read`.
#[repr(C)]
#[derive(Debug)]
pub struct RmaOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Reads memory of a peer: memory, length, descriptor, the peer, address and key of its memory,
    /// context.
    pub read: unsafe extern "C" fn(
        *mut EndpointFid,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
}

/// `struct fid_ep`, up to `rma`.
#[repr(C)]
#[derive(Debug)]
pub struct EndpointFid {
    /// The object.
    pub fid: Fid,
    /// Unused.
    pub ops: *const c_void,
    /// Functions of addresses and connections.
    pub cm: *const ConnectionOps,
    /// Functions of messages.
    pub msg: *const MessageOps,
    /// Functions of remote memory.
    pub rma: *const RmaOps,
}
