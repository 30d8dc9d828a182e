//! Opens the objects of an endpoint: fabric, domain, queue of completions, vector of addresses,
//! registered memory.

use crate::abi::{self, Info};
use crate::arena::Arena;
use crate::error::{Error, status_text};
use crate::library::Library;
use crate::provider::{Choice, Provider, is_software, reason_to_refuse, spins};
use std::ffi::{CStr, CString, c_int, c_void};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

/// The provider over TCP.
const TCP: &str = "tcp";

/// Requirements of an endpoint.
#[derive(Clone, Debug)]
pub struct Request {
    /// The provider.
    pub choice: Choice,
    /// Address of this node, for providers that use addresses of the internet protocol.
    pub address: IpAddr,
    /// Number of sends that may be under way.
    pub sends: usize,
    /// Number of posted receives.
    pub receives: usize,
    /// Length of the longest message.
    pub message_bytes: usize,
}

/// The open objects. They are closed in the reverse order of their creation.
#[derive(Debug)]
pub(crate) struct Objects {
    functions: crate::library::Functions,
    info: *mut Info,
    pub(crate) fabric: *mut abi::Fabric,
    domain: *mut abi::Domain,
    pub(crate) queue: *mut abi::CompletionQueue,
    pub(crate) addresses: *mut abi::AddressVector,
    pub(crate) endpoint: *mut abi::EndpointFid,
    memory: *mut abi::Registration,
    /// Descriptor that is readable when something has completed.
    pub(crate) descriptor: Option<RawFd>,
    pub(crate) provider: Provider,
}

// SAFETY: FI_THREAD_DOMAIN allows one thread at a time, whichever it is. The pointers belong to
// this value alone.
unsafe impl Send for Objects {}

impl Objects {
    /// Opens an endpoint that sends from and receives into the arena.
    pub(crate) fn open(
        library: &Library,
        request: &Request,
        arena: &Arena,
    ) -> Result<Objects, Error> {
        let functions = library.functions;
        let info = find(library, request)?;
        let (name, domain_name, inject_bytes, longest) = describe(info);
        let provider = Provider {
            name,
            library: library.version(),
            domain: domain_name,
            can_sleep: false,
            registers: false,
            inject_bytes,
        };
        let mut objects = Objects {
            functions,
            info,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            queue: ptr::null_mut(),
            addresses: ptr::null_mut(),
            endpoint: ptr::null_mut(),
            memory: ptr::null_mut(),
            descriptor: None,
            provider,
        };
        if longest < request.message_bytes {
            let why = format!("its longest message has {longest} bytes");
            return Err(objects.error("fi_getinfo", why));
        }
        objects.open_domain()?;
        objects.open_queue(request)?;
        objects.open_endpoint()?;
        objects.register(arena)?;
        Ok(objects)
    }

    pub(crate) fn error(&self, call: &'static str, why: String) -> Error {
        Error::Call { call, provider: self.provider.name.clone(), why }
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), Error> {
        if status >= 0 { Ok(()) } else { Err(self.error(call, status_text(status.into()))) }
    }

    fn open_domain(&mut self) -> Result<(), Error> {
        // SAFETY: `info` is a list that fi_getinfo has returned; its attributes are those of the
        // provider. The functions store one pointer each.
        unsafe {
            let attributes = (*self.info).fabric_attr;
            let open = self.functions.open_fabric;
            let status = open(attributes, &raw mut self.fabric, ptr::null_mut());
            self.check("fi_fabric", status)?;
            let open = (*(*self.fabric).ops).domain;
            let status = open(self.fabric, self.info, &raw mut self.domain, ptr::null_mut());
            self.check("fi_domain", status)
        }
    }

    /// Opens the queue with a descriptor to sleep on, if the provider has one that works.
    fn open_queue(&mut self, request: &Request) -> Result<(), Error> {
        if !spins(&self.provider.name) && self.open_queue_with(request, abi::FI_WAIT_FD).is_ok() {
            let mut descriptor: c_int = -1;
            // SAFETY: the queue is open; the command stores one int. `udp` and `sockets` open a
            // queue with FI_WAIT_FD and refuse the command.
            let status = unsafe {
                let fid = &raw mut (*self.queue).fid;
                ((*(*fid).ops).control)(
                    fid,
                    abi::FI_GETWAIT,
                    (&raw mut descriptor).cast::<c_void>(),
                )
            };
            if status == 0 && descriptor >= 0 {
                self.descriptor = Some(descriptor);
                self.provider.can_sleep = true;
                return Ok(());
            }
            // SAFETY: the queue is open, and nothing is bound to it.
            unsafe { close(self.queue.cast()) };
            self.queue = ptr::null_mut();
        }
        let status = self.open_queue_with(request, abi::FI_WAIT_NONE);
        status.or_else(|status| self.check("fi_cq_open", status))
    }

    fn open_queue_with(&mut self, request: &Request, wait: c_int) -> Result<(), c_int> {
        let mut attributes = abi::CompletionAttributes {
            size: request.sends + request.receives,
            flags: 0,
            format: abi::FI_CQ_FORMAT_MSG,
            wait_obj: wait,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        // SAFETY: the domain is open; the attributes live during the call, which stores a pointer.
        let status = unsafe {
            let open = (*(*self.domain).ops).cq_open;
            open(self.domain, &raw mut attributes, &raw mut self.queue, ptr::null_mut())
        };
        if status == 0 {
            return Ok(());
        }
        self.queue = ptr::null_mut();
        Err(status)
    }

    fn open_endpoint(&mut self) -> Result<(), Error> {
        let mut attributes = abi::AddressAttributes {
            kind: abi::FI_AV_TABLE,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        // SAFETY: domain and queue are open; each function gets objects of this domain, and
        // attributes that live during its call.
        unsafe {
            let open = (*(*self.domain).ops).av_open;
            let status =
                open(self.domain, &raw mut attributes, &raw mut self.addresses, ptr::null_mut());
            self.check("fi_av_open", status)?;
            let open = (*(*self.domain).ops).endpoint;
            let status = open(self.domain, self.info, &raw mut self.endpoint, ptr::null_mut());
            self.check("fi_endpoint", status)?;
            let fid = &raw mut (*self.endpoint).fid;
            let bind = (*(*fid).ops).bind;
            let status = bind(fid, &raw mut (*self.queue).fid, abi::FI_SEND | abi::FI_RECV);
            self.check("fi_ep_bind", status)?;
            let status = bind(fid, &raw mut (*self.addresses).fid, 0);
            self.check("fi_ep_bind", status)?;
            // Binding may replace the functions of the endpoint, so they are read anew.
            let status = ((*(*fid).ops).control)(fid, abi::FI_ENABLE, ptr::null_mut());
            self.check("fi_enable", status)
        }
    }

    /// Registers the arena, if the provider requires it for messages.
    fn register(&mut self, arena: &Arena) -> Result<(), Error> {
        // SAFETY: `info` is valid until it is freed on drop.
        let mode = unsafe { (*(*self.info).domain_attr).mr_mode };
        if mode & abi::FI_MR_LOCAL == 0 {
            return Ok(());
        }
        // SAFETY: the domain and the endpoint are open. The arena is mapped until the registration
        // is closed: the endpoint's owner drops the objects first.
        unsafe {
            let register = (*(*self.domain).mr).reg;
            let fid = &raw mut (*self.domain).fid;
            let access = abi::FI_SEND | abi::FI_RECV;
            let start = arena.as_ptr().cast::<c_void>();
            // The requested key is ignored under FI_MR_PROV_KEY. Nothing else is registered, so 0
            // is free.
            let memory = &raw mut self.memory;
            let status =
                register(fid, start, arena.len(), access, 0, 0, 0, memory, ptr::null_mut());
            self.check("fi_mr_reg", status)?;
            self.provider.registers = true;
            if mode & abi::FI_MR_ENDPOINT != 0 {
                let fid = &raw mut (*self.memory).fid;
                let endpoint = &raw mut (*self.endpoint).fid;
                self.check("fi_mr_bind", ((*(*fid).ops).bind)(fid, endpoint, 0))?;
                let status = ((*(*fid).ops).control)(fid, abi::FI_ENABLE, ptr::null_mut());
                self.check("fi_mr_enable", status)?;
            }
        }
        Ok(())
    }

    /// Descriptor of the arena, for operations; null where none is registered.
    pub(crate) fn memory_descriptor(&self) -> *mut c_void {
        // SAFETY: the registration is open if the pointer is not null.
        unsafe { self.memory.as_ref() }.map_or(ptr::null_mut(), |memory| memory.mem_desc)
    }
}

impl Objects {
    /// Closes the objects, at the first call. Returns false if the provider may still use the
    /// arena, because the endpoint or the registration stays open. An object that cannot be closed
    /// stays until the process ends, and so do those that it uses.
    pub(crate) fn close(&mut self) -> bool {
        let users_of_the_arena =
            [take(&mut self.endpoint).cast::<abi::Fid>(), take(&mut self.memory).cast()];
        let others = [
            take(&mut self.queue).cast::<abi::Fid>(),
            take(&mut self.addresses).cast(),
            take(&mut self.domain).cast(),
            take(&mut self.fabric).cast(),
        ];
        // SAFETY: each object that is not null is open, begins with its `fid`, and is closed once,
        // after everything that uses it. `info` is freed once, or null, which is ignored.
        unsafe {
            let is_released = users_of_the_arena.into_iter().all(|object| close(object));
            let _ = is_released && others.into_iter().all(|object| close(object));
            (self.functions.free_info)(take(&mut self.info));
            is_released
        }
    }
}

#[cfg(test)]
impl Objects {
    /// Takes an endpoint and a queue, and no other objects.
    pub(crate) fn with_endpoint(
        functions: crate::library::Functions,
        endpoint: *mut abi::EndpointFid,
        queue: *mut abi::CompletionQueue,
    ) -> Objects {
        Objects {
            functions,
            info: ptr::null_mut(),
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            queue,
            addresses: ptr::null_mut(),
            endpoint,
            memory: ptr::null_mut(),
            descriptor: None,
            provider: Provider {
                name: "none".into(),
                library: (0, 0),
                domain: String::new(),
                can_sleep: false,
                registers: false,
                inject_bytes: 64,
            },
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close();
    }
}

fn take<T>(pointer: &mut *mut T) -> *mut T {
    std::mem::replace(pointer, ptr::null_mut())
}

/// Closes an object, unless it is null. Returns false if it stays open.
///
/// # Safety
/// The object is open or null, and nothing uses it any more.
unsafe fn close(object: *mut abi::Fid) -> bool {
    if object.is_null() {
        return true;
    }
    // SAFETY: promised by the caller.
    let status = unsafe { ((*(*object).ops).close)(object) };
    if status != 0 {
        log::warn!("libfabric keeps an object open: {}", status_text(status.into()));
    }
    status == 0
}

/// Looks for a provider. Returns a list whose first entry is the chosen one.
fn find(library: &Library, request: &Request) -> Result<*mut Info, Error> {
    let named = match &request.choice {
        Choice::Named(name) => Some(name.as_str()),
        Choice::Any => None,
    };
    let address = request.address.to_string();
    let is_adapter = |name: &str| !is_software(name);
    let is_usable = |name: &str| reason_to_refuse(name).is_none();
    let found = match &request.choice {
        // Addresses of adapters are not those of the internet protocol as a rule.
        Choice::Any => query(library, None, None, is_adapter)
            .or_else(|| query(library, None, Some(&address), |name| name == TCP))
            .or_else(|| query(library, None, Some(&address), is_usable)),
        Choice::Named(_) => query(library, named, Some(&address), is_usable)
            .or_else(|| query(library, named, None, is_usable)),
    };
    let (major, minor) = library.version();
    found.map(NonNull::as_ptr).ok_or_else(|| Error::NoProvider {
        version: format!("{major}.{minor}"),
        provider: request.choice.to_string(),
        address,
    })
}

/// Lists providers, and returns a copy of the first one whose name is accepted.
fn query(
    library: &Library,
    name: Option<&str>,
    address: Option<&str>,
    accepts: impl Fn(&str) -> bool,
) -> Option<NonNull<Info>> {
    let functions = &library.functions;
    let mut chosen = None;
    each(library, name, address, |entry, name| {
        if chosen.is_none() && accepts(name) {
            // SAFETY: the entry is one of a list that is not freed yet.
            chosen = NonNull::new(unsafe { (functions.duplicate_info)(entry) });
        }
    });
    chosen
}

/// Lists the names of the providers that are worth a comparison with TCP: those of network adapters,
/// and `tcp`, which stands for those over sockets.
///
/// ```
/// if let Ok(library) = fabric::Library::open(None) {
///     assert!(fabric::providers(&library).iter().all(|name| name != "sockets"));
/// }
/// ```
pub fn providers(library: &Library) -> Vec<String> {
    let mut names = Vec::new();
    each(library, None, None, |_, name| {
        let is_new = !names.iter().any(|other| other == name);
        if is_new && reason_to_refuse(name).is_none() && !is_software(name) {
            names.push(name.to_owned());
        }
    });
    // Under this name a library of 1.17 lists another one, `tcp;ofi_rxm`.
    let mut has_tcp = false;
    each(library, Some(TCP), None, |_, _| has_tcp = true);
    names.extend(has_tcp.then(|| TCP.to_owned()));
    names
}

/// Lists the providers that fit, each with its name.
fn each(
    library: &Library,
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
        fill_in(wanted);
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
            let (name, ..) = describe(entry);
            take(entry, &name);
            entry = info.next;
        }
        (functions.free_info)(list);
    }
}

/// Fills in what an endpoint requires.
///
/// # Safety
/// The hints and all of their attributes are valid, and nothing else uses them.
unsafe fn fill_in(hints: &Info) {
    // SAFETY: promised by the caller. The fields are written through the pointers of `hints`.
    unsafe {
        let hints = ptr::from_ref(hints).cast_mut();
        (*hints).caps = abi::FI_MSG;
        (*hints).mode = abi::FI_CONTEXT | abi::FI_CONTEXT2;
        (*(*hints).ep_attr).kind = abi::FI_EP_RDM;
        (*(*hints).tx_attr).msg_order = abi::FI_ORDER_SAS;
        (*(*hints).rx_attr).msg_order = abi::FI_ORDER_SAS;
        let domain = (*hints).domain_attr;
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

/// Name of the provider, name of the device, and the limits of injected and of all messages.
fn describe(info: *const Info) -> (String, String, usize, usize) {
    let text = |pointer: *const std::ffi::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: names in an info end with a zero.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    // SAFETY: an info of fi_getinfo has all attributes.
    unsafe {
        let name = text((*(*info).fabric_attr).prov_name);
        let domain = text((*(*info).domain_attr).name);
        (name, domain, (*(*info).tx_attr).inject_size, (*(*info).ep_attr).max_msg_size)
    }
}
