//! Opens the objects of an endpoint: fabric, domain, queue of completions, vector of addresses,
//! registered memory.

use crate::abi::{self, Info};
use crate::arena::Arena;
use crate::error::{Error, status_text};
use crate::library::Library;
use crate::memory::Registered;
use crate::provider::{Provider, spins};
use crate::search::{Description, Request, describe, find};
use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::ptr;

/// Bytes of a key that the user chooses. With fewer ones a peer could guess it: a provider that has
/// fewer refuses the memory.
const KEY_BYTES: RangeInclusive<usize> = 4..=8;
/// Key of the arena, which no peer reads.
const ARENA_KEY: u64 = 0;

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
    /// Memory of segments; `None` where a number is free.
    pub(crate) registered: Vec<Option<Registered>>,
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
        let Description { name, domain, inject_bytes, longest, has_memory } = describe(info);
        let provider = Provider {
            name,
            library: library.version(),
            domain,
            can_sleep: false,
            registers: false,
            inject_bytes,
            reads: has_memory,
            longest,
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
            registered: Vec::new(),
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
        if status >= 0 {
            return Ok(());
        }
        let why = status_text(status.into());
        if status == -libc::ENOMEM {
            return Err(Error::NoMemory { call, provider: self.provider.name.clone(), why });
        }
        Err(self.error(call, why))
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
            size: request.sends + request.receives + request.reads,
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

    /// The rules for registered memory.
    fn memory_mode(&self) -> c_int {
        // SAFETY: `info` is valid until it is freed on drop.
        unsafe { (*(*self.info).domain_attr).mr_mode }
    }

    /// Registers the arena, if the provider requires it for messages.
    fn register(&mut self, arena: &Arena) -> Result<(), Error> {
        if self.memory_mode() & abi::FI_MR_LOCAL == 0 {
            return Ok(());
        }
        let start = arena.as_ptr().cast::<c_void>();
        let access = abi::FI_SEND | abi::FI_RECV;
        // SAFETY: the arena is mapped until the registration is closed: the endpoint's owner drops
        // the objects first.
        self.memory = unsafe { self.register_range(start, arena.len(), access, ARENA_KEY)? };
        self.provider.registers = true;
        Ok(())
    }

    /// Registers memory. The provider ignores the key where it chooses keys itself.
    ///
    /// # Safety
    /// The memory is mapped until the registration is closed, and no reference to its bytes exists
    /// while an operation uses them.
    pub(crate) unsafe fn register_range(
        &self,
        start: *mut c_void,
        length: usize,
        access: u64,
        key: u64,
    ) -> Result<*mut abi::Registration, Error> {
        let mut memory: *mut abi::Registration = ptr::null_mut();
        // SAFETY: the domain and the endpoint are open, and the caller promises the memory.
        unsafe {
            let register = (*(*self.domain).mr).reg;
            let fid = &raw mut (*self.domain).fid;
            let created = &raw mut memory;
            let status = register(fid, start, length, access, 0, key, 0, created, ptr::null_mut());
            self.check("fi_mr_reg", status)?;
            if self.memory_mode() & abi::FI_MR_ENDPOINT != 0
                && let Err(error) = self.enable(memory)
            {
                close(memory.cast());
                return Err(error);
            }
        }
        Ok(memory)
    }

    /// Binds a registration to the endpoint, and enables it.
    ///
    /// # Safety
    /// The registration is open.
    unsafe fn enable(&self, memory: *mut abi::Registration) -> Result<(), Error> {
        // SAFETY: the endpoint is open, and the caller promises the registration.
        unsafe {
            let fid = &raw mut (*memory).fid;
            let endpoint = &raw mut (*self.endpoint).fid;
            self.check("fi_mr_bind", ((*(*fid).ops).bind)(fid, endpoint, 0))?;
            let status = ((*(*fid).ops).control)(fid, abi::FI_ENABLE, ptr::null_mut());
            self.check("fi_mr_enable", status)
        }
    }

    /// Returns true if peers name registered memory by its address, false if by the offset.
    pub(crate) fn has_addresses(&self) -> bool {
        self.memory_mode() & abi::FI_MR_VIRT_ADDR != 0
    }

    /// Chooses a key at random. Every process may send a read to a provider over sockets, which
    /// checks nothing but the key and the range. One that was used lately names memory that a slow
    /// peer may still read.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn next_key(&self) -> Result<u64, Error> {
        // SAFETY: `info` is valid until it is freed on drop.
        let size = unsafe { (*(*self.info).domain_attr).mr_key_size };
        let bytes = size.clamp(*KEY_BYTES.start(), *KEY_BYTES.end());
        let unused = 64 - 8 * bytes as u32;
        loop {
            let random = shm::random::bytes::<8>()
                .map_err(|error| self.error("choice of a key", error.to_string()))?;
            let key = u64::from_le_bytes(random) >> unused;
            // SAFETY: the registrations of the entries are open.
            let of = |entry: &Registered| unsafe { (*entry.registration).key };
            let is_used = self.registered.iter().flatten().any(|entry| of(entry) == key);
            if key != ARENA_KEY && !is_used {
                return Ok(key);
            }
        }
    }

    /// Descriptor of the arena, for operations; null where none is registered.
    pub(crate) fn memory_descriptor(&self) -> *mut c_void {
        // SAFETY: the registration is open if the pointer is not null.
        unsafe { self.memory.as_ref() }.map_or(ptr::null_mut(), |memory| memory.mem_desc)
    }
}

impl Objects {
    /// Closes the objects, at the first call. Returns false if the provider may still use the
    /// arena, because the endpoint or a registration stays open. An object that cannot be closed
    /// stays until the process ends, and so do those that it uses.
    pub(crate) fn close(&mut self) -> bool {
        // `info` is null in calls after the first one, which find nothing to close.
        let is_bound = !self.info.is_null() && self.memory_mode() & abi::FI_MR_ENDPOINT != 0;
        let endpoint = take(&mut self.endpoint).cast::<abi::Fid>();
        // Keeps the memory mapped until the endpoint is closed: its reads may fill it until then.
        let registered = std::mem::take(&mut self.registered);
        let entries = registered.iter().flatten().map(|entry| entry.registration.cast());
        let mut users: Vec<*mut abi::Fid> =
            entries.chain([take(&mut self.memory).cast()]).collect();
        // A registration counts as a user of the endpoint that it is bound to. Otherwise the
        // endpoint comes first, because its operations use the registered memory.
        users.insert(if is_bound { users.len() } else { 0 }, endpoint);
        let others = [
            take(&mut self.queue).cast::<abi::Fid>(),
            take(&mut self.addresses).cast(),
            take(&mut self.domain).cast(),
            take(&mut self.fabric).cast(),
        ];
        // SAFETY: each object that is not null is open, begins with its `fid`, and is closed once,
        // after everything that uses it. `info` is freed once, or null, which is ignored.
        unsafe {
            let is_released = users.into_iter().all(|object| close(object));
            if !is_released {
                // The provider may still use the memory, so that it stays mapped.
                std::mem::forget(registered);
            }
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
            registered: Vec::new(),
            descriptor: None,
            provider: Provider {
                name: "none".into(),
                library: (0, 0),
                domain: String::new(),
                can_sleep: false,
                registers: false,
                inject_bytes: 64,
                reads: false,
                longest: 1 << 30,
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
pub(crate) unsafe fn close(object: *mut abi::Fid) -> bool {
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
