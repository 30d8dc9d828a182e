//! The structures and constants of libfabric's interface, version 1.17, on 64-bit Linux.
//!
//! The interface is stable: a library returns the layouts of the symbol version that a program
//! looks up (`FABRIC_1.3`, see [`Library`](crate::Library)). Functions lie in tables, which grow
//! at their ends, so the tables here end with the last function that is used. A test compares these
//! layouts with the C headers where those are installed. Names are those of the headers.

mod constants;

pub use constants::*;
use std::ffi::{c_char, c_int, c_void};

/// Version of the interface that is requested: 1.17.
pub const API_VERSION: u32 = 1 << 16 | 17;

/// An operation's context: 8 words for the provider's use.
pub type ContextWords = [*mut c_void; 8];

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

/// `struct fi_tx_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct TransmitAttributes {
    /// Capabilities.
    pub caps: u64,
    /// Rules that the user follows.
    pub mode: u64,
    /// Default flags of operations.
    pub op_flags: u64,
    /// Order of messages.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Length of the longest injected message.
    pub inject_size: usize,
    /// Number of operations.
    pub size: usize,
    /// Number of parts of an operation.
    pub iov_limit: usize,
    /// The same of remote memory.
    pub rma_iov_limit: usize,
    /// Class of traffic.
    pub tclass: u32,
}

/// `struct fi_rx_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct ReceiveAttributes {
    /// Capabilities.
    pub caps: u64,
    /// Rules that the user follows.
    pub mode: u64,
    /// Default flags of operations.
    pub op_flags: u64,
    /// Order of messages.
    pub msg_order: u64,
    /// Order of completions.
    pub comp_order: u64,
    /// Bytes for unexpected messages.
    pub total_buffered_recv: usize,
    /// Number of operations.
    pub size: usize,
    /// Number of parts of an operation.
    pub iov_limit: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct EndpointAttributes {
    /// Type of the endpoint.
    pub kind: c_int,
    /// Protocol.
    pub protocol: u32,
    /// Its version.
    pub protocol_version: u32,
    /// Length of the longest message.
    pub max_msg_size: usize,
}

/// `struct fi_domain_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct DomainAttributes {
    /// The domain, if it is open.
    pub domain: *mut c_void,
    /// Its name.
    pub name: *mut c_char,
    /// Rule for threads.
    pub threading: c_int,
    /// Progress of control operations.
    pub control_progress: c_int,
    /// Progress of data.
    pub data_progress: c_int,
    /// Resource management.
    pub resource_mgmt: c_int,
    /// Type of address vectors.
    pub av_type: c_int,
    /// Rules for registered memory.
    pub mr_mode: c_int,
    /// Bytes of a key of registered memory.
    pub mr_key_size: usize,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricAttributes {
    /// The fabric, if it is open.
    pub fabric: *mut c_void,
    /// Its name.
    pub name: *mut c_char,
    /// Name of the provider.
    pub prov_name: *mut c_char,
    /// Version of the provider.
    pub prov_version: u32,
    /// Version of the interface.
    pub api_version: u32,
}

/// `struct fi_info`.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    /// The next one of a list.
    pub next: *mut Info,
    /// Capabilities.
    pub caps: u64,
    /// Rules that the user follows.
    pub mode: u64,
    /// Format of addresses.
    pub addr_format: u32,
    /// Length of the source address.
    pub src_addrlen: usize,
    /// Length of the destination address.
    pub dest_addrlen: usize,
    /// Source address.
    pub src_addr: *mut c_void,
    /// Destination address.
    pub dest_addr: *mut c_void,
    /// Handle of a connection request.
    pub handle: *mut Fid,
    /// Attributes of sends.
    pub tx_attr: *mut TransmitAttributes,
    /// Attributes of receives.
    pub rx_attr: *mut ReceiveAttributes,
    /// Attributes of the endpoint.
    pub ep_attr: *mut EndpointAttributes,
    /// Attributes of the domain.
    pub domain_attr: *mut DomainAttributes,
    /// Attributes of the fabric.
    pub fabric_attr: *mut FabricAttributes,
}

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
