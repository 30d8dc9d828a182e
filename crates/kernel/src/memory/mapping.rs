//! System calls of ranks and loader: `bpf(2)`, and mappings of maps.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROGRAM_RUN: c_int = 10;

/// Kinds of maps that [`create_map`] creates, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// `BPF_MAP_TYPE_ARRAY`
    Array = 2,
    /// `BPF_MAP_TYPE_RINGBUF`
    Ring = 27,
}

/// Flag of maps that processes may map into their memory.
pub(crate) const MAPPABLE: u32 = 1 << 10;

/// Calls `bpf(2)` with attributes that are plain integers.
///
/// # Safety
/// Every address among the attributes refers to memory that the command may access in its way.
unsafe fn bpf<T: bytemuck::Pod>(command: c_int, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: the pointer and the size are those of one structure, which the kernel reads and may
    // write during the call; the caller guarantees the addresses in the structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes).cast::<c_void>(),
            size_of::<T>() as c_uint,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Creates a map.
pub(crate) fn create_map(
    kind: MapKind,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Attributes {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    }
    let key_bytes = if kind == MapKind::Array { 4 } else { 0 };
    let mut attributes = Attributes { kind: kind as u32, key_bytes, value_bytes, entries, flags };
    // SAFETY: the attributes contain no address.
    let descriptor = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
    // SAFETY: the call returned a new descriptor, which no other object owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Sets an element of a map with values of this length.
pub(crate) fn update_map(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let key = std::ptr::from_ref(&key) as u64;
    let value = value.as_ptr() as u64;
    let mut attributes =
        Attributes { map: map.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
    // SAFETY: the kernel reads a key of four bytes, the size of all keys here, and a value of the
    // length that the caller guarantees; it writes to neither.
    unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(drop)
}

/// Runs a program on an empty packet with a control block that begins with these words. Returns the
/// program's return value.
pub(crate) fn run_program(program: BorrowedFd<'_>, arguments: [u32; 2]) -> io::Result<u32> {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Attributes {
        program: u32,
        returned: u32,
        data_in_bytes: u32,
        data_out_bytes: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        context_in_bytes: u32,
        context_out_bytes: u32,
        context_in: u64,
        context_out: u64,
    }
    // The shortest packet is an Ethernet header. The control block begins at byte 48 of `struct
    // __sk_buff`.
    let packet = [0u8; 14];
    let mut context = [0u32; 14];
    context[12..].copy_from_slice(&arguments);
    let mut attributes: Attributes = bytemuck::Zeroable::zeroed();
    attributes.program = program.as_raw_fd() as u32;
    attributes.data_in_bytes = packet.len() as u32;
    attributes.data_in = packet.as_ptr() as u64;
    attributes.context_in_bytes = size_of_val(&context) as u32;
    attributes.context_in = context.as_ptr() as u64;
    // SAFETY: both addresses are those of arrays with the lengths beside them. The arrays outlive
    // the call, and the kernel only reads them.
    unsafe { bpf(PROGRAM_RUN, &mut attributes) }?;
    Ok(attributes.returned)
}

/// Memory that this process shares with the kernel, for the lifetime of this object.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory at a fixed address. Accesses are atomics, or raw copies that
// the callers keep disjoint; no reference to its bytes exists.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a part of a map.
    pub(crate) fn new(
        map: impl AsFd,
        offset: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Self> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, map, offset)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    fn at(&self, offset: usize, bytes: usize, align: usize) -> NonNull<u8> {
        assert!(
            offset.is_multiple_of(align) && offset <= self.bytes && bytes <= self.bytes - offset
        );
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.start.add(offset) }
    }

    /// Returns the word at an offset.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, which `at` checked (a mapping begins at a page).
        // The kernel and other processes may change an atomic at any time, and the mapping lives as
        // long as the reference.
        unsafe { self.at(offset, 4, 4).cast().as_ref() }
    }

    /// Returns the double word at an offset.
    #[inline]
    pub(crate) fn double_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `word`.
        unsafe { self.at(offset, 8, 8).cast().as_ref() }
    }

    /// Copies bytes to an offset.
    ///
    /// The program must not use the range at the same time: it is a block of the arena to which no
    /// submitted run refers.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len(), 1);
        // SAFETY: within the mapping; `bytes` is a Rust slice and so not part of it. A concurrent
        // write by the program, which the callers exclude, would mix bytes and invalidate no
        // reference: none to them exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Fills bytes with zeros; as [`write`](Self::write).
    pub(crate) fn clear(&self, offset: usize, bytes: usize) {
        let to = self.at(offset, bytes, 1);
        // SAFETY: as for `write`.
        unsafe { std::ptr::write_bytes(to.as_ptr(), 0, bytes) }
    }

    /// Copies bytes from an offset; as [`write`](Self::write).
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len(), 1);
        // SAFETY: as for `write`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and its length has not changed. References into it
        // borrow `self`, so none is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
