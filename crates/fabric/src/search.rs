//! Searches the library for a provider that fits.

use crate::abi::{self, Info};
use crate::error::Error;
use crate::library::Library;
use crate::provider::{
    Choice, LongMessages, MESSAGES_SUFFIX, Selection, is_software, reason_to_refuse,
};
use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::ptr::{self, NonNull};

/// The provider over TCP.
const TCP: &str = "tcp";
/// Capabilities of an endpoint that also reads the memory of peers.
const WITH_MEMORY: u64 = abi::FI_MSG | abi::FI_RMA | abi::FI_READ | abi::FI_REMOTE_READ;

/// Requirements of an endpoint.
#[derive(Clone, Debug)]
pub struct Request {
    /// The provider, and the protocol of long messages.
    pub selection: Selection,
    /// Address of this node, for providers that use addresses of the internet protocol.
    pub address: IpAddr,
    /// Number of sends that may be under way.
    pub sends: usize,
    /// Number of posted receives.
    pub receives: usize,
    /// Number of reads of remote memory that may be under way.
    pub reads: usize,
    /// Length of the longest message.
    pub message_bytes: usize,
}

/// Looks for a provider. Returns a list that begins with the chosen one.
pub(crate) fn find(library: &Library, request: &Request) -> Result<*mut Info, Error> {
    let Selection { choice, long } = &request.selection;
    let named = match choice {
        Choice::Named(name) => Some(name.as_str()),
        Choice::Any => None,
    };
    let address = request.address.to_string();
    let is_adapter = |name: &str| !is_software(name);
    let is_usable = |name: &str| reason_to_refuse(name).is_none();
    let query = |name, address, accepts: &dyn Fn(&str) -> bool| {
        query(library, *long, name, address, accepts)
    };
    let found = match choice {
        // Addresses of adapters are not those of the internet protocol as a rule.
        Choice::Any => query(None, None, &is_adapter)
            .or_else(|| query(None, Some(&address), &|name| name == TCP))
            .or_else(|| query(None, Some(&address), &is_usable)),
        Choice::Named(_) => {
            query(named, Some(&address), &is_usable).or_else(|| query(named, None, &is_usable))
        }
    };
    if let Some(info) = found
        && *long == LongMessages::Read
        && !describe(info.as_ptr()).has_memory
    {
        // SAFETY: the entry is a copy of fi_dupinfo, and is not used any more.
        unsafe { (library.functions.free_info)(info.as_ptr()) };
        return Err(Error::Refused {
            provider: choice.to_string(),
            why: "it has no remote memory; leave out +read",
        });
    }
    let (major, minor) = library.version();
    found.map(NonNull::as_ptr).ok_or_else(|| Error::NoProvider {
        version: format!("{major}.{minor}"),
        provider: choice.to_string(),
        address,
    })
}

/// Lists providers, and returns a copy of the first one with an accepted name; with remote memory
/// where long messages are read from there and the provider has it.
fn query(
    library: &Library,
    long: LongMessages,
    name: Option<&str>,
    address: Option<&str>,
    accepts: &dyn Fn(&str) -> bool,
) -> Option<NonNull<Info>> {
    let functions = &library.functions;
    let mut chosen = None;
    // First with remote memory: the second query also lists providers that have it, without it.
    for caps in [WITH_MEMORY, abi::FI_MSG] {
        each(library, caps, name, address, |entry, name| {
            let is_wanted = caps == abi::FI_MSG || long.are_read(name);
            if chosen.is_none() && is_wanted && accepts(name) {
                // SAFETY: the entry is one of a list that is not freed yet.
                chosen = NonNull::new(unsafe { (functions.duplicate_info)(entry) });
            }
        });
    }
    chosen
}

/// Lists the [selections](crate::Selection) that are worth a comparison with TCP: the providers of
/// network adapters, also with messages in place of reads if they have remote memory, and `tcp`,
/// which stands for those over sockets.
///
/// ```
/// if let Ok(library) = fabric::Library::open(None) {
///     assert!(fabric::providers(&library).iter().all(|name| name != "sockets"));
/// }
/// ```
pub fn providers(library: &Library) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut list = |caps, suffix: &str| {
        each(library, caps, None, None, |_, provider| {
            let name = format!("{provider}{suffix}");
            let is_usable = reason_to_refuse(provider).is_none() && !is_software(provider);
            if is_usable && !names.contains(&name) {
                names.push(name);
            }
        });
    };
    list(abi::FI_MSG, "");
    // An adapter with remote memory reads long messages, unless the user prefers messages.
    list(WITH_MEMORY, MESSAGES_SUFFIX);
    // Under this name a library of 1.17 lists another one, `tcp;ofi_rxm`.
    let mut has_tcp = false;
    each(library, abi::FI_MSG, Some(TCP), None, |_, _| has_tcp = true);
    names.extend(has_tcp.then(|| TCP.to_owned()));
    names
}

/// Lists the providers that fit, each with its name.
fn each(
    library: &Library,
    caps: u64,
    name: Option<&str>,
    address: Option<&str>,
    mut take: impl FnMut(*const Info, &str),
) {
    let functions = &library.functions;
    let node = address.and_then(|address| CString::new(address).ok());
    let name = name.and_then(|name| CString::new(name).ok());
    // SAFETY: fi_dupinfo of null returns zeroed structures with all attributes, which the code
    // below fills in; fi_freeinfo frees the name with free, so it is copied by strdup. The list is
    // read before it is freed.
    unsafe {
        let Some(hints) = NonNull::new((functions.duplicate_info)(ptr::null())) else { return };
        let wanted = hints.as_ref();
        fill_in(wanted, caps);
        if let Some(name) = &name {
            (*wanted.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
        let mut list: *mut Info = ptr::null_mut();
        let flags = if node.is_some() { abi::FI_SOURCE } else { 0 };
        let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
        let get = functions.get_info;
        let status = get(abi::API_VERSION, node, ptr::null(), flags, hints.as_ptr(), &raw mut list);
        (functions.free_info)(hints.as_ptr());
        if status != 0 {
            return;
        }
        let mut entry = list;
        while let Some(info) = entry.as_ref() {
            take(entry, &describe(entry).name);
            entry = info.next;
        }
        (functions.free_info)(list);
    }
}

/// Fills in the requirements of an endpoint.
///
/// # Safety
/// The hints and all of their attributes are valid, and nothing else uses them.
unsafe fn fill_in(hints: &Info, caps: u64) {
    // SAFETY: promised by the caller. The fields are written through the pointers of `hints`.
    unsafe {
        let hints = ptr::from_ref(hints).cast_mut();
        (*hints).caps = caps;
        // The provider may write to the eight words with which each operation begins.
        (*hints).mode = abi::FI_CONTEXT | abi::FI_CONTEXT2;
        (*(*hints).ep_attr).kind = abi::FI_EP_RDM;
        (*(*hints).tx_attr).msg_order = abi::FI_ORDER_SAS;
        (*(*hints).rx_attr).msg_order = abi::FI_ORDER_SAS;
        let domain = (*hints).domain_attr;
        // One thread uses an endpoint and its domain at a time, so the provider needs no locks; and
        // that thread polls, so the provider needs no thread.
        (*domain).threading = abi::FI_THREAD_DOMAIN;
        (*domain).control_progress = abi::FI_PROGRESS_MANUAL;
        (*domain).data_progress = abi::FI_PROGRESS_MANUAL;
        (*domain).resource_mgmt = abi::FI_RM_ENABLED;
        // The rules that this crate follows, so that no provider is excluded by one of them.
        (*domain).mr_mode = abi::FI_MR_LOCAL
            | abi::FI_MR_VIRT_ADDR
            | abi::FI_MR_ALLOCATED
            | abi::FI_MR_PROV_KEY
            | abi::FI_MR_ENDPOINT;
    }
}

/// Description of an entry of a list.
pub(crate) struct Description {
    /// Name of the provider.
    pub(crate) name: String,
    /// Name of the device.
    pub(crate) domain: String,
    /// Length of the longest injected message, and of all messages.
    pub(crate) inject_bytes: usize,
    pub(crate) longest: usize,
    /// True if peers read memory.
    pub(crate) has_memory: bool,
}

pub(crate) fn describe(info: *const Info) -> Description {
    let text = |pointer: *const std::ffi::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: names in an info end with a zero.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    // SAFETY: an info of fi_getinfo has all attributes.
    unsafe {
        Description {
            name: text((*(*info).fabric_attr).prov_name),
            domain: text((*(*info).domain_attr).name),
            inject_bytes: (*(*info).tx_attr).inject_size,
            longest: (*(*info).ep_attr).max_msg_size,
            has_memory: (*info).caps & WITH_MEMORY == WITH_MEMORY,
        }
    }
}
