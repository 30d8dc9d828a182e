//! The constants of the interface.

use std::ffi::c_int;

/// `FI_MSG`: messages.
pub const FI_MSG: u64 = 1 << 1;
/// `FI_RMA`: access to the memory of peers.
pub const FI_RMA: u64 = 1 << 2;
/// `FI_READ`: reads of the memory of peers, and their destinations.
pub const FI_READ: u64 = 1 << 8;
/// `FI_RECV`.
pub const FI_RECV: u64 = 1 << 10;
/// `FI_SEND`, and `FI_TRANSMIT`.
pub const FI_SEND: u64 = 1 << 11;
/// `FI_REMOTE_READ`: memory that peers read.
pub const FI_REMOTE_READ: u64 = 1 << 12;
/// `FI_SOURCE`: the node of `fi_getinfo` is this side's address.
pub const FI_SOURCE: u64 = 1 << 57;
/// `FI_CONTEXT`: the provider writes to 4 words of each operation's context.
pub const FI_CONTEXT: u64 = 1 << 59;
/// `FI_CONTEXT2`: the same with 8 words.
pub const FI_CONTEXT2: u64 = 1 << 52;
/// `FI_ORDER_SAS`: messages arrive in the order of their sends.
pub const FI_ORDER_SAS: u64 = 1 << 8;

/// `FI_MR_LOCAL`: the memory of messages must be registered.
pub const FI_MR_LOCAL: c_int = 1 << 2;
/// `FI_MR_VIRT_ADDR`: peers name registered memory by its address.
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
/// `FI_MR_ALLOCATED`: registered memory must have pages.
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
/// `FI_MR_PROV_KEY`: the provider chooses the keys of registrations.
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
/// `FI_MR_ENDPOINT`: a registration is bound to an endpoint and enabled.
pub const FI_MR_ENDPOINT: c_int = 1 << 9;

/// `FI_THREAD_DOMAIN`.
pub const FI_THREAD_DOMAIN: c_int = 3;
/// `FI_PROGRESS_MANUAL`.
pub const FI_PROGRESS_MANUAL: c_int = 2;
/// `FI_RM_ENABLED`.
pub const FI_RM_ENABLED: c_int = 2;
/// `FI_AV_TABLE`.
pub const FI_AV_TABLE: c_int = 2;
/// `FI_EP_RDM`: reliable messages without connections.
pub const FI_EP_RDM: c_int = 3;
/// `FI_WAIT_NONE`.
pub const FI_WAIT_NONE: c_int = 0;
/// `FI_WAIT_FD`.
pub const FI_WAIT_FD: c_int = 3;
/// `FI_CQ_FORMAT_MSG`: entries are [`CompletionEntry`](super::CompletionEntry).
pub const FI_CQ_FORMAT_MSG: c_int = 2;
/// `FI_GETWAIT`: command that returns the descriptor of a completion queue.
pub const FI_GETWAIT: c_int = 5;
/// `FI_ENABLE`: command that enables an endpoint or a registration.
pub const FI_ENABLE: c_int = 6;

/// `-FI_EAGAIN`.
pub const EAGAIN: isize = -(libc::EAGAIN as isize);
/// `-FI_EAVAIL`: an operation has failed, and `readerr` returns it.
pub const EAVAIL: isize = -259;
