//! Attributes of providers: those that a program requests, and those that a provider has.

use super::object::Fid;
use std::ffi::{c_char, c_int, c_void};

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
