//! The buffers of a call: the bytes themselves where they are contiguous, and packed copies
//! otherwise.

use crate::abi::Abi;
use crate::handles::HandleMap;
use crate::host::{Aint, Handle, Pointer, call};
use crate::kept::{self, Object};
use smallvec::{SmallVec, smallvec};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tradewind::DataType;

/// A data type, as far as moving and combining its elements needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeInfo {
    pub(crate) handle: Handle,
    /// Bytes of data of an element.
    pub(crate) size: usize,
    /// Displacement of an element's lower bound.
    pub(crate) lower: Aint,
    /// Distance from one element to the next.
    pub(crate) extent: Aint,
    /// Elements are predefined and follow each other without gaps.
    pub(crate) is_dense: bool,
    /// Elements that tradewind computes on.
    pub(crate) element: Option<DataType>,
}

impl TypeInfo {
    /// Stands in for the type of a block without elements.
    pub(crate) const NOTHING: TypeInfo =
        TypeInfo { handle: 0, size: 0, lower: 0, extent: 0, is_dense: true, element: None };
}

static PREDEFINED: OnceLock<HandleMap<TypeInfo>> = OnceLock::new();

/// Examines the predefined types of the library, once after it is initialized.
pub(crate) fn examine_predefined_types(abi: &Abi) {
    PREDEFINED.get_or_init(|| {
        let elements = abi.elements.iter().map(|(element, handle)| (*handle, Some(*element)));
        let others = abi.others.iter().chain(&abi.moved).map(|handle| (*handle, None));
        let known = elements.chain(others).filter_map(|(handle, element)| {
            let info = examine(handle)?;
            // The sizes of Fortran's types depend on the options of its compiler.
            let element = element.filter(|element| element.bytes() == info.size);
            let is_dense = info.extent.cast_unsigned() == info.size;
            Some((handle, TypeInfo { is_dense, element, ..info }))
        });
        known.collect()
    });
}

fn examine(handle: Handle) -> Option<TypeInfo> {
    let (mut size, mut lower, mut extent): (c_int, Aint, Aint) = (0, 0, 0);
    let outcome = call!(Type_size(handle, &raw mut size));
    // A negative size is MPI_UNDEFINED: the size does not fit.
    if outcome != 0 || size < 0 {
        return None;
    }
    if call!(Type_get_extent(handle, &raw mut lower, &raw mut extent)) != 0 {
        return None;
    }
    Some(TypeInfo { handle, size: size as usize, lower, extent, is_dense: false, element: None })
}

/// Returns the properties of a type; `None` for the null handle, and for types of 2 GiB and more.
#[inline]
pub(crate) fn type_info(abi: &Abi, passed: Handle) -> Option<TypeInfo> {
    let handle = abi.handle(passed);
    if let Some(known) = PREDEFINED.get().and_then(|known| known.get(&handle)) {
        return Some(*known);
    }
    if handle == abi.datatype_null { None } else { examine(handle) }
}

/// Sizes of predefined types that were looked up, each at a place by its handle: the handle, shifted
/// by a byte, plus the size.
static SIZES: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Returns the bytes of an element of a predefined type.
#[inline]
pub(crate) fn predefined_size(abi: &Abi, passed: Handle) -> Option<usize> {
    let handle = abi.handle(passed);
    // No two types differ in the upper byte alone: their handles are addresses or numbers of 32 bits.
    let shifted = (handle.cast_unsigned() as u64).wrapping_mul(256);
    // Handles of neighbouring types differ in few bits: the upper ones of this product depend on all.
    let place = shifted.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    let known = &SIZES[place as usize];
    // Relaxed: the value is all of it.
    let size = known.load(Ordering::Relaxed) ^ shifted;
    if (1..256).contains(&size) {
        return Some(size as usize);
    }
    look_up_size(handle, (known, shifted))
}

#[cold]
fn look_up_size(handle: Handle, (known, shifted): (&AtomicU64, u64)) -> Option<usize> {
    let size = PREDEFINED.get()?.get(&handle)?.size;
    if (1..256).contains(&size) {
        known.store(shifted | size as u64, Ordering::Relaxed);
    }
    Some(size)
}

/// Bytes of private memory, zeroed and aligned for every type, that outlive the requests that use
/// them.
#[derive(Debug)]
pub(crate) struct Staging {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the staging buffer alone.
unsafe impl Send for Staging {}

impl Staging {
    fn layout(bytes: usize) -> Layout {
        match Layout::from_size_align(bytes.max(1), 64) {
            Ok(layout) => layout,
            Err(_) => handle_alloc_error(Layout::new::<u8>()),
        }
    }

    pub(crate) fn new(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has at least one byte.
        let at = unsafe { alloc_zeroed(layout) };
        match NonNull::new(at) {
            Some(at) => Staging { at, bytes },
            None => handle_alloc_error(layout),
        }
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        // SAFETY: callers pass offsets within the buffer.
        unsafe { self.at.as_ptr().add(offset) }
    }

    /// The bytes, for a request that ends before this buffer.
    ///
    /// # Safety
    /// No other access happens while the slice is used, and it is not used after the buffer.
    pub(crate) unsafe fn slice(&self) -> &'static mut [u8] {
        // SAFETY: the memory is initialized; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.bytes)) };
    }
}

/// Elements of one type that follow each other in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) at: *mut u8,
    pub(crate) count: usize,
    pub(crate) element: TypeInfo,
}

impl Piece {
    fn bytes(&self) -> usize {
        self.count * self.element.size
    }
}

/// The part of the program's memory that a call reads or writes, in the order of the data.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pieces: SmallVec<[Piece; 1]>,
    /// The types of the pieces are kept.
    keeps_types: bool,
}

// SAFETY: MPI passes the memory to the library until the call is complete, on any thread.
unsafe impl Send for Area {}

impl Area {
    /// `count` elements at this address.
    pub(crate) fn single(at: Pointer, count: usize, element: TypeInfo) -> Self {
        Area { pieces: smallvec![Piece { at: at.cast(), count, element }], keeps_types: false }
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Area { pieces: SmallVec::new(), keeps_types: false }
    }

    pub(crate) fn of(pieces: impl Iterator<Item = Piece>) -> Self {
        Area { pieces: pieces.collect(), keeps_types: false }
    }

    /// Blocks of elements of one type; displacements count elements.
    pub(crate) fn blocks(
        at: Pointer,
        element: TypeInfo,
        blocks: impl Iterator<Item = (usize, isize)>,
    ) -> Self {
        Area::of(blocks.map(|(count, displacement)| {
            let at = at.cast::<u8>().wrapping_offset(displacement.wrapping_mul(element.extent));
            Piece { at, count, element }
        }))
    }

    /// One of the pieces.
    pub(crate) fn piece(&self, index: usize) -> Area {
        Area::of(self.pieces.get(index).into_iter().copied())
    }

    /// The address of the first data; null if there are none.
    pub(crate) fn at(&self) -> Pointer {
        let mut filled = self.pieces.iter().filter(|piece| piece.count > 0);
        filled.next().map_or(std::ptr::null_mut(), |piece| piece.at.cast())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(Piece::bytes).sum()
    }

    /// The bytes of each piece.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.pieces.iter().map(Piece::bytes).collect()
    }

    /// The address of the data, if they are contiguous and in order.
    fn contiguous(&self) -> Option<*mut u8> {
        let filled = || self.pieces.iter().filter(|piece| piece.count > 0);
        let Some(first) = filled().next() else { return Some(NonNull::dangling().as_ptr()) };
        let mut next = first.at;
        for piece in filled() {
            if !piece.element.is_dense || piece.at != next {
                return None;
            }
            next = piece.at.wrapping_add(piece.bytes());
        }
        Some(first.at)
    }

    /// Copies the data to `to`, which is long enough for them.
    pub(crate) fn pack(&self, abi: &Abi, mut to: *mut u8) {
        for piece in &self.pieces {
            move_piece(abi, piece, to, Direction::Pack);
            to = to.wrapping_add(piece.bytes());
        }
    }

    /// Copies packed data into the program's memory.
    pub(crate) fn unpack(&self, abi: &Abi, mut from: *mut u8) {
        for piece in &self.pieces {
            move_piece(abi, piece, from, Direction::Unpack);
            from = from.wrapping_add(piece.bytes());
        }
    }

    /// Keeps the types until [`release`](Self::release): a program may free a type while a call
    /// that uses it is active.
    pub(crate) fn keep_types(mut self) -> Self {
        self.derived().for_each(|piece| kept::keep(Object::Type(piece.element.handle)));
        self.keeps_types = true;
        self
    }

    /// Releases the types. Not in `drop`, because only a thread that completes a call may call the
    /// MPI library.
    pub(crate) fn release(self, abi: &Abi) {
        if self.keeps_types {
            self.derived().for_each(|piece| kept::release(abi, Object::Type(piece.element.handle)));
        }
    }

    fn derived(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| !piece.element.is_dense)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Pack,
    Unpack,
}

/// Largest number of bytes that one call of `MPI_Pack` moves; its counts are of 31 bits.
const PACKED_AT_ONCE: usize = 1 << 30;

/// Moves a piece from or to packed memory.
fn move_piece(abi: &Abi, piece: &Piece, packed: *mut u8, direction: Direction) {
    let Piece { at, count, element } = *piece;
    if piece.bytes() == 0 {
        return;
    }
    if element.is_dense {
        // SAFETY: the program's buffer has `count` elements without gaps, and `packed` as many
        // bytes. They do not overlap: `packed` is memory of this library.
        unsafe {
            match direction {
                Direction::Pack => packed.copy_from_nonoverlapping(at, piece.bytes()),
                Direction::Unpack => at.copy_from_nonoverlapping(packed, piece.bytes()),
            }
        }
        return;
    }
    // With MPI_BOTTOM, the null address, the displacements of the type are addresses. MPICH refuses
    // to pack from there, so the type is moved to begin at some other address.
    let moved = at.is_null().then(|| moved_type(abi, element.handle));
    let (base, handle) = moved.unwrap_or((at.cast(), element.handle));
    let at_once = (PACKED_AT_ONCE / element.size).max(1);
    let mut done = 0;
    while done < count {
        let some = at_once.min(count - done);
        let bytes = (some * element.size) as c_int;
        let from =
            base.cast::<u8>().wrapping_offset((done as isize).wrapping_mul(element.extent)).cast();
        let to: Pointer = packed.wrapping_add(done * element.size).cast();
        let mut position = 0;
        let position = &raw mut position;
        let some = some as c_int;
        let world = abi.comm_world;
        match direction {
            Direction::Pack => call!(Pack(from, some, handle, to, bytes, position, world)),
            Direction::Unpack => call!(Unpack(to, bytes, position, from, some, handle, world)),
        };
        done += some as usize;
    }
    if moved.is_some() {
        kept::free_now(abi, Object::Type(handle));
    }
}

/// A type with elements that lie as those of `handle` at address 0 if they are said to be at the
/// returned address.
fn moved_type(abi: &Abi, handle: Handle) -> (Pointer, Handle) {
    static ANCHOR: u64 = 0;
    let base: Pointer = (&raw const ANCHOR).cast_mut().cast();
    let one = 1;
    let back = base.addr().cast_signed().wrapping_neg();
    let moved = abi.written(|at| {
        call!(Type_create_hindexed(1, &raw const one, &raw const back, handle, at));
        call!(Type_commit(at))
    });
    (base, moved.unwrap_or(abi.datatype_null))
}

/// The input of a call.
pub(crate) struct Input {
    /// The bytes; `None` where they lie in the output, as MPI_IN_PLACE says.
    pub(crate) bytes: Option<&'static [u8]>,
    pub(crate) staging: Option<Staging>,
}

impl Input {
    /// The data of an area, packed if they are not contiguous.
    pub(crate) fn of(abi: &Abi, area: &Area) -> Self {
        let bytes = area.bytes();
        if let Some(at) = area.contiguous() {
            // SAFETY: MPI_I… promises that the program leaves the input unchanged until the call
            // is complete, and the request ends with that.
            let bytes = Some(unsafe { std::slice::from_raw_parts(at, bytes) });
            return Input { bytes, staging: None };
        }
        let staging = Staging::new(bytes);
        area.pack(abi, staging.at(0));
        // SAFETY: the staging buffer is written only here, and kept until the request has ended.
        let bytes = Some(unsafe { &*staging.slice() });
        Input { bytes, staging: Some(staging) }
    }

    /// MPI_IN_PLACE: the data are those of `own`, which lies in the area of the output.
    pub(crate) fn in_place(abi: &Abi, own: &Area, output: &Output) -> Self {
        match output.is_direct() {
            true => Input { bytes: None, staging: None },
            false => Input::of(abi, own),
        }
    }
}

/// The output of a call.
pub(crate) struct Output {
    pub(crate) bytes: &'static mut [u8],
    /// Staged bytes and their destination when the call is complete, if they are not in place.
    pub(crate) unpacked: Option<(Staging, Area)>,
}

impl Output {
    /// An area that the call overwrites.
    pub(crate) fn of(abi: &Abi, area: Area) -> Self {
        Self::new(abi, area, false)
    }

    /// An area of which the call may leave parts unchanged, or which it also reads.
    pub(crate) fn preserved(abi: &Abi, area: Area) -> Self {
        Self::new(abi, area, true)
    }

    fn new(abi: &Abi, area: Area, preserves: bool) -> Self {
        let bytes = area.bytes();
        if let Some(at) = area.contiguous() {
            // SAFETY: MPI_I… promises that the program does not touch the output until the call is
            // complete, and the request ends with that.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
            return Output { bytes, unpacked: None };
        }
        let staging = Staging::new(bytes);
        if preserves {
            area.pack(abi, staging.at(0));
        }
        // SAFETY: only the request uses the staging buffer until the call is complete.
        let bytes = unsafe { staging.slice() };
        Output { bytes, unpacked: Some((staging, area.keep_types())) }
    }

    fn is_direct(&self) -> bool {
        self.unpacked.is_none()
    }
}
