//! An endpoint that sends and receives messages.

mod remote_memory;

use crate::abi::{self, CompletionEntry, ContextWords, ErrorEntry};
use crate::arena::Arena;
use crate::error::{Error, status_text};
use crate::library::Library;
use crate::open::Objects;
use crate::provider::Provider;
use crate::search::Request;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest name of an endpoint that is supported.
const NAME_BYTES: usize = 256;
/// Completions read at once.
const READ: usize = 32;
/// Reads in one call of [`Endpoint::poll`]: the caller has other work, too.
const ROUNDS: usize = 8;
/// `FI_ADDR_UNSPEC`: a receive takes messages of every peer.
const ANY: u64 = u64::MAX;

/// An endpoint of another node, for sends of the endpoint that has inserted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    endpoint: u64,
    address: u64,
}

/// A buffer for a message that is composed. It belongs to the endpoint that it was taken from.
#[derive(Debug)]
pub struct SendBuffer {
    endpoint: u64,
    number: usize,
}

/// A message that has arrived. [`Endpoint::release`] returns its buffer.
#[derive(Debug)]
pub struct Received {
    endpoint: u64,
    number: usize,
    length: usize,
}

/// Something that has happened at an endpoint.
#[derive(Debug)]
pub enum Event {
    /// A message has left, and its buffer is free.
    Sent {
        /// Token of the send.
        token: u32,
        /// Length of the message.
        bytes: usize,
    },
    /// A message cannot be sent.
    SendFailed {
        /// Token of the send.
        token: u32,
        /// Length of the message.
        bytes: usize,
        /// The reason.
        why: String,
    },
    /// A message that had left already was not delivered. Providers do not report which one.
    InjectFailed {
        /// The reason.
        why: String,
    },
    /// A message has arrived.
    Received(Received),
    /// A receive has failed: a message that is too long, or of an endpoint that is gone.
    ReceiveFailed,
    /// A read of a peer's memory has ended.
    Read {
        /// Token of the read.
        token: u32,
        /// Its length.
        bytes: usize,
        /// The reason of a failure: what lies in the memory is undefined.
        outcome: Result<(), String>,
    },
}

/// An operation. The provider writes to its context while it is under way.
#[repr(C)]
#[derive(Debug)]
struct Operation {
    context: ContextWords,
    token: u32,
    bytes: usize,
    /// Number of the memory that a read fills.
    memory: usize,
}

/// An endpoint of this node. One thread uses it at a time.
///
/// # Panics
/// All functions panic that take a peer, a buffer or a message of another endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// Different for each endpoint of this process.
    id: u64,
    objects: Objects,
    // The next two are dropped once the objects are closed, which the provider may refuse.
    /// Of sends by number, then of receives, then of reads. Boxed: the provider keeps their addresses.
    operations: ManuallyDrop<Box<[Operation]>>,
    /// Buffers of sends, then of receives.
    arena: ManuallyDrop<Arena>,
    sends: usize,
    /// Number of the first read.
    first_read: usize,
    free: Vec<usize>,
    free_reads: Vec<usize>,
    /// Receives that the provider had no space for.
    unposted: Vec<usize>,
    name: Vec<u8>,
}

// SAFETY: the contexts are written by the provider only in calls with this endpoint.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens an endpoint, and posts its receives.
    ///
    /// # Errors
    /// If no provider fits, or one refuses a step.
    pub fn open(library: &Library, request: &Request) -> Result<Endpoint, Error> {
        let count = request.sends + request.receives;
        let arena = Arena::new(count, request.message_bytes).map_err(|error| Error::Call {
            call: "mmap for the messages",
            provider: request.selection.choice.to_string(),
            why: error.to_string(),
        })?;
        let objects = Objects::open(library, request, &arena)?;
        Self::with_objects(objects, arena, request.sends, count, request.reads)
    }

    /// Takes open objects, an arena of `count` buffers, and a number of reads.
    fn with_objects(
        objects: Objects,
        arena: Arena,
        sends: usize,
        count: usize,
        reads: usize,
    ) -> Result<Endpoint, Error> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let context = [ptr::null_mut(); 8];
        let operation = || Operation { context, token: 0, bytes: 0, memory: 0 };
        let all = count + reads;
        let mut endpoint = Endpoint {
            // Relaxed: the numbers only have to differ.
            id: OPENED.fetch_add(1, Ordering::Relaxed),
            objects,
            operations: ManuallyDrop::new((0..all).map(|_| operation()).collect()),
            arena: ManuallyDrop::new(arena),
            sends,
            first_read: count,
            free: (0..sends).rev().collect(),
            free_reads: (count..all).rev().collect(),
            unposted: (sends..count).collect(),
            name: Vec::new(),
        };
        endpoint.name = endpoint.read_name()?;
        endpoint.post_receives()?;
        Ok(endpoint)
    }

    /// Returns the provider.
    pub fn provider(&self) -> &Provider {
        &self.objects.provider
    }

    /// Returns the name by which [`insert`](Self::insert) of another node finds this endpoint.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the length of the longest message.
    pub fn message_bytes(&self) -> usize {
        self.arena.buffer_bytes()
    }

    /// Returns the descriptor that is readable when [`poll`](Self::poll) has work; `None` if the
    /// provider must be polled. Before a sleep [`may_sleep`](Self::may_sleep) must return true.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the queue, which is open as long as this endpoint.
        self.objects.descriptor.map(|fd: RawFd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Adds the endpoint of another node.
    ///
    /// # Errors
    /// If the name is not one of this provider's.
    pub fn insert(&mut self, name: &[u8]) -> Result<Peer, Error> {
        // fi_av_insert takes no length and reads as many bytes as every name of this provider has.
        if name.len() != self.name.len() {
            let why = format!("a name of {} bytes, where it has {}", name.len(), self.name.len());
            return Err(self.objects.error("fi_av_insert", why));
        }
        let mut address = ANY;
        // SAFETY: the vector is open; the function reads one name, of the length that all names of
        // the provider have, and stores one address.
        let inserted = unsafe {
            let vector = self.objects.addresses;
            let insert = (*(*vector).ops).insert;
            insert(vector, name.as_ptr().cast(), 1, &raw mut address, 0, ptr::null_mut())
        };
        if inserted == 1 {
            return Ok(Peer { endpoint: self.id, address });
        }
        let why = if inserted < 0 { status_text(inserted.into()) } else { "a wrong name".into() };
        Err(self.objects.error("fi_av_insert", why))
    }

    /// Takes a buffer for a message; `None` if all are under way.
    pub fn take_buffer(&mut self) -> Option<SendBuffer> {
        let endpoint = self.id;
        self.free.pop().map(|number| SendBuffer { endpoint, number })
    }

    /// Returns the bytes of a buffer.
    pub fn bytes_mut(&mut self, buffer: &SendBuffer) -> &mut [u8] {
        self.check(buffer.endpoint);
        // SAFETY: a buffer of this endpoint that has been taken is not under way.
        unsafe { self.arena.bytes_mut(buffer.number) }
    }

    /// Returns a buffer that is not sent.
    pub fn discard(&mut self, buffer: SendBuffer) {
        self.check(buffer.endpoint);
        self.free.push(buffer.number);
    }

    /// Sends the first `length` bytes of a buffer. `token` comes back with the completion. Returns
    /// true if the message has left already and has none. A provider that is busy returns the
    /// buffer.
    ///
    /// # Errors
    /// The buffer, and `None` if the provider is busy, or the reason.
    pub fn send(
        &mut self,
        buffer: SendBuffer,
        length: usize,
        peer: Peer,
        token: u32,
    ) -> Result<bool, (SendBuffer, Option<Error>)> {
        self.check(buffer.endpoint);
        self.check(peer.endpoint);
        let number = buffer.number;
        let start = self.arena.buffer(number).cast::<c_void>();
        let length = length.min(self.arena.buffer_bytes());
        let endpoint = self.objects.endpoint;
        let is_injected = length <= self.objects.provider.inject_bytes;
        // SAFETY: the endpoint is open. The buffer is not under way, and stays in place until its
        // completion, as does the context. An injected message is copied during the call.
        let status = unsafe {
            let functions = (*endpoint).msg;
            if is_injected {
                ((*functions).inject)(endpoint, start, length, peer.address)
            } else {
                let operation = &raw mut self.operations[number];
                (*operation).token = token;
                (*operation).bytes = length;
                let descriptor = self.objects.memory_descriptor();
                let context = operation.cast::<c_void>();
                ((*functions).send)(endpoint, start, length, descriptor, peer.address, context)
            }
        };
        match status {
            // The provider has copied the message, and reports no completion for it.
            0 if is_injected => {
                self.free.push(number);
                Ok(true)
            }
            0 => Ok(false),
            abi::EAGAIN => Err((buffer, None)),
            status => {
                let call = if is_injected { "fi_inject" } else { "fi_send" };
                let error = self.objects.error(call, status_text(status as i64));
                Err((buffer, Some(error)))
            }
        }
    }

    /// Makes progress, and appends what has happened.
    ///
    /// # Errors
    /// If the provider fails.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let empty = CompletionEntry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        let mut entries = [empty; READ];
        for _ in 0..ROUNDS {
            let queue = self.objects.queue;
            // SAFETY: the queue is open, and has entries of this format; there is space for READ.
            let count = unsafe {
                ((*(*queue).ops).read)(queue, entries.as_mut_ptr().cast::<c_void>(), READ)
            };
            match count {
                1.. => {
                    let count = (count as usize).min(READ);
                    events
                        .extend(entries[..count].iter().filter_map(|entry| self.completed(entry)));
                    // The queue was empty after these: another read would only cost a call.
                    if count < READ {
                        break;
                    }
                }
                0 | abi::EAGAIN => break,
                // A failed operation is at the head: completions behind it can be read once its
                // entry has been taken.
                abi::EAVAIL => events.extend(self.failed()),
                status => {
                    return Err(self.objects.error("fi_cq_read", status_text(status as i64)));
                }
            }
        }
        self.post_receives()
    }

    /// Returns true if this process may sleep on the [descriptor](Self::descriptor): nothing has
    /// arrived since the last poll, and what arrives from now on makes it readable.
    pub fn may_sleep(&mut self) -> bool {
        // SAFETY: fabric and queue are open; the function reads one pointer.
        unsafe {
            let fabric = self.objects.fabric;
            let mut object = &raw mut (*self.objects.queue).fid;
            ((*(*fabric).ops).trywait)(fabric, &raw mut object, 1) == 0
        }
    }

    /// Returns the bytes of a message that has arrived.
    pub fn received(&self, message: &Received) -> &[u8] {
        self.check(message.endpoint);
        // SAFETY: the receive of this endpoint has completed, and is posted again by `release` only.
        unsafe { &self.arena.bytes(message.number)[..message.length] }
    }

    /// Returns the buffer of a message that has been read.
    pub fn release(&mut self, message: Received) {
        self.check(message.endpoint);
        self.unposted.push(message.number);
    }

    /// Posts receives again. What the provider does not take now is left for the next call.
    ///
    /// # Errors
    /// If the provider fails.
    pub fn post_receives(&mut self) -> Result<(), Error> {
        while let Some(number) = self.unposted.pop() {
            let start = self.arena.buffer(number).cast::<c_void>();
            let length = self.arena.buffer_bytes();
            let descriptor = self.objects.memory_descriptor();
            let endpoint = self.objects.endpoint;
            let context = (&raw mut self.operations[number]).cast::<c_void>();
            // SAFETY: the endpoint is open. The buffer is not posted, and stays in place until its
            // completion, as does the context.
            let status = unsafe {
                ((*(*endpoint).msg).recv)(endpoint, start, length, descriptor, ANY, context)
            };
            match status {
                0 => {}
                abi::EAGAIN => {
                    self.unposted.push(number);
                    return Ok(());
                }
                status => {
                    self.unposted.push(number);
                    return Err(self.objects.error("fi_recv", status_text(status as i64)));
                }
            }
        }
        Ok(())
    }

    /// Checks that a peer, a buffer or a message is one of this endpoint: the number of another's
    /// may be that of a buffer which the provider uses.
    fn check(&self, endpoint: u64) {
        assert_eq!(endpoint, self.id, "it belongs to another endpoint of libfabric");
    }

    fn completed(&mut self, entry: &CompletionEntry) -> Option<Event> {
        let number = self.number_of(entry.op_context)?;
        if number >= self.first_read {
            return Some(self.end_read(number, Ok(())));
        }
        if number >= self.sends {
            let length = entry.len.min(self.arena.buffer_bytes());
            return Some(Event::Received(Received { endpoint: self.id, number, length }));
        }
        self.free.push(number);
        let Operation { token, bytes, .. } = self.operations[number];
        Some(Event::Sent { token, bytes })
    }

    /// Reads the entry of an operation that has failed.
    fn failed(&mut self) -> Option<Event> {
        // SAFETY: the entry is plain numbers and pointers, for which zeros are valid.
        let mut entry: ErrorEntry = unsafe { std::mem::zeroed() };
        let queue = self.objects.queue;
        // SAFETY: the queue is open; the function fills in one entry.
        let count = unsafe { ((*(*queue).ops).readerr)(queue, &raw mut entry, 0) };
        if count < 1 {
            return None;
        }
        let why = status_text(entry.err.into());
        Some(match self.number_of(entry.op_context) {
            // Receives always have a context.
            None => Event::InjectFailed { why },
            Some(number) if number >= self.first_read => self.end_read(number, Err(why)),
            Some(number) if number >= self.sends => {
                self.unposted.push(number);
                Event::ReceiveFailed
            }
            Some(number) => {
                self.free.push(number);
                let Operation { token, bytes, .. } = self.operations[number];
                Event::SendFailed { token, bytes, why }
            }
        })
    }

    /// Number of the operation of a context; `None` if it is not one of this endpoint.
    fn number_of(&self, context: *mut c_void) -> Option<usize> {
        // Compared as a number and not dereferenced: the entry of an injected message that has
        // failed names no operation.
        let start = self.operations.as_ptr() as usize;
        let offset = (context as usize).checked_sub(start)?;
        let number = offset / size_of::<Operation>();
        (offset.is_multiple_of(size_of::<Operation>()) && number < self.operations.len())
            .then_some(number)
    }

    fn read_name(&self) -> Result<Vec<u8>, Error> {
        let mut name = vec![0; NAME_BYTES];
        let mut length = NAME_BYTES;
        // SAFETY: the endpoint is enabled; the function writes at most `length` bytes.
        let status = unsafe {
            let endpoint = self.objects.endpoint;
            let get = (*(*endpoint).cm).getname;
            get(&raw mut (*endpoint).fid, name.as_mut_ptr().cast(), &raw mut length)
        };
        if status != 0 || length > NAME_BYTES {
            return Err(self.objects.error("fi_getname", status_text(status.into())));
        }
        name.truncate(length);
        Ok(name)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // A provider that keeps the endpoint open may still write to posted receives and their
        // contexts, so that memory stays until the process ends.
        if self.objects.close() {
            // SAFETY: both are dropped once, here, and not used afterwards.
            unsafe {
                ManuallyDrop::drop(&mut self.operations);
                ManuallyDrop::drop(&mut self.arena);
            }
        }
    }
}

#[cfg(test)]
mod tests;
