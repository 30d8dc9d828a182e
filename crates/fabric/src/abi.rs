//! The structures and constants of libfabric's interface, version 1.17, on 64-bit Linux.
//!
//! The interface is stable: a library returns the layouts of the symbol version that a program
//! looks up (`FABRIC_1.3`, see [`Library`](crate::Library)). Functions lie in tables, which grow
//! at their ends, so the tables here end with the last function that is used. A test compares these
//! layouts with the C headers where those are installed. Names are those of the headers.

mod attributes;
mod constants;
mod endpoint;
mod object;

pub use attributes::*;
pub use constants::*;
pub use endpoint::*;
pub use object::*;
use std::ffi::{c_char, c_int, c_void};

/// Version of the interface that is requested: 1.17.
pub const API_VERSION: u32 = 1 << 16 | 17;

/// An operation's context: 8 words for the provider's use.
pub type ContextWords = [*mut c_void; 8];

/// `struct fi_ops_fabric`, up to `trywait`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Opens a domain.
    pub domain:
        unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
    /// Unused.
    pub unused: [*const c_void; 3],
    /// Returns 0 if the user may sleep on the descriptors of these objects.
    pub trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fid_fabric`.
#[repr(C)]
#[derive(Debug)]
pub struct Fabric {
    /// The object.
    pub fid: Fid,
    /// Its functions.
    pub ops: *const FabricOps,
    /// Version of the interface.
    pub api_version: u32,
}

/// `struct fi_cq_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionAttributes {
    /// Number of entries.
    pub size: usize,
    /// Flags.
    pub flags: u64,
    /// Format of entries.
    pub format: c_int,
    /// Kind of wait object.
    pub wait_obj: c_int,
    /// Processor of interrupts.
    pub signaling_vector: c_int,
    /// Condition of waits.
    pub wait_cond: c_int,
    /// Set of wait objects.
    pub wait_set: *mut c_void,
}

/// `struct fi_av_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressAttributes {
    /// Type of the vector.
    pub kind: c_int,
    /// Bits for receive contexts.
    pub rx_ctx_bits: c_int,
    /// Number of addresses.
    pub count: usize,
    /// Number of endpoints on a node.
    pub ep_per_node: usize,
    /// Name of a shared vector.
    pub name: *const c_char,
    /// Address of a shared vector.
    pub map_addr: *mut c_void,
    /// Flags.
    pub flags: u64,
}

/// `struct fi_ops_domain`, up to `endpoint`.
#[repr(C)]
#[derive(Debug)]
pub struct DomainOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Opens an address vector.
    pub av_open: unsafe extern "C" fn(
        *mut Domain,
        *mut AddressAttributes,
        *mut *mut AddressVector,
        *mut c_void,
    ) -> c_int,
    /// Opens a completion queue.
    pub cq_open: unsafe extern "C" fn(
        *mut Domain,
        *mut CompletionAttributes,
        *mut *mut CompletionQueue,
        *mut c_void,
    ) -> c_int,
    /// Opens an endpoint.
    pub endpoint:
        unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut EndpointFid, *mut c_void) -> c_int,
}

/// `struct fi_ops_mr`, up to `reg`.
#[repr(C)]
#[derive(Debug)]
pub struct RegistrationOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Registers memory: address, length, access, offset, requested key, flags.
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut Registration,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
#[derive(Debug)]
pub struct Domain {
    /// The object.
    pub fid: Fid,
    /// Its functions.
    pub ops: *const DomainOps,
    /// Functions that register memory.
    pub mr: *const RegistrationOps,
}

/// `struct fid_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct Registration {
    /// The object.
    pub fid: Fid,
    /// Descriptor of the memory, which operations take.
    pub mem_desc: *mut c_void,
    /// Key for peers.
    pub key: u64,
}

/// `struct fi_ops_av`, up to `insert`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Inserts addresses; returns how many.
    pub insert: unsafe extern "C" fn(
        *mut AddressVector,
        *const c_void,
        usize,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_av`.
#[repr(C)]
#[derive(Debug)]
pub struct AddressVector {
    /// The object.
    pub fid: Fid,
    /// Its functions.
    pub ops: *const AddressOps,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompletionEntry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    /// Kind of the operation.
    pub flags: u64,
    /// Length of the message.
    pub len: usize,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorEntry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    /// Kind of the operation.
    pub flags: u64,
    /// Length of the message.
    pub len: usize,
    /// Memory of the message.
    pub buf: *mut c_void,
    /// Data of the sender.
    pub data: u64,
    /// Tag.
    pub tag: u64,
    /// Bytes that did not fit.
    pub olen: usize,
    /// Number of the error.
    pub err: c_int,
    /// The provider's own number.
    pub prov_errno: c_int,
    /// The provider's own data.
    pub err_data: *mut c_void,
    /// Their length.
    pub err_data_size: usize,
}

/// `struct fi_ops_cq`, up to `readerr`.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionOps {
    /// Bytes of the provider's table.
    pub size: usize,
    /// Reads entries; returns how many.
    pub read: unsafe extern "C" fn(*mut CompletionQueue, *mut c_void, usize) -> isize,
    /// Unused.
    pub readfrom: *const c_void,
    /// Reads the entry of a failed operation.
    pub readerr: unsafe extern "C" fn(*mut CompletionQueue, *mut ErrorEntry, u64) -> isize,
}

/// `struct fid_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionQueue {
    /// The object.
    pub fid: Fid,
    /// Its functions.
    pub ops: *const CompletionOps,
}

/// `fi_getinfo`.
pub type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
/// `fi_freeinfo`.
pub type FreeInfo = unsafe extern "C" fn(*mut Info);
/// `fi_dupinfo`.
pub type DuplicateInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
/// `fi_fabric`.
pub type OpenFabric =
    unsafe extern "C" fn(*mut FabricAttributes, *mut *mut Fabric, *mut c_void) -> c_int;
/// `fi_version`.
pub type GetVersion = unsafe extern "C" fn() -> u32;
