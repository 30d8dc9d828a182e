//! Communicators: tradewind's counterpart of a communicator is an attribute of it.
//!
//! A communicator is set up where the MPI library creates it, by a call that is collective over its
//! parent. Intercommunicators, and those of calls that are not collective over a parent
//! (`MPI_Comm_create_group`, sessions, spawned processes, `MPI_Comm_idup`), have none: all ranks
//! leave their collectives to the MPI library.

use crate::abi::{Abi, abi};
use crate::host::{self, Handle, Pointer, Thread, call, pass};
use crate::kind::Kind;
use crate::table::{Sizes, SizesByKind, sizes_on};
use crate::topology::Topology;
use crate::watch;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tradewind::Communicator;

/// A communicator that tradewind serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) communicator: Communicator,
    /// Its number among those of this process.
    number: u64,
    /// The topology, if it has one.
    pub(crate) topology: Option<Topology>,
    /// The sizes at which its collectives run here.
    sizes: &'static SizesByKind,
    /// Its number in `watch` after a call on it was recorded as left, and 0 before.
    watched: AtomicU64,
}

impl Served {
    fn new(communicator: Communicator, topology: Option<Topology>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let sizes = sizes_on((communicator.size(), communicator.nodes()));
        Served { communicator, number, topology, sizes, watched: AtomicU64::new(0) }
    }

    /// The origin of a call on this communicator of the MPI library.
    #[inline]
    pub(crate) fn origin(&self, communicator: Handle) -> Origin {
        Origin { communicator, number: self.number }
    }

    /// Records a call that is left to the MPI library because of its arguments. All ranks of a
    /// correct program leave it. A rank that has not, and waits for this one, gets an error.
    #[inline]
    pub(crate) fn record_external_collective(&self) {
        self.communicator.record_external_collective();
        // Relaxed: this thread has stored it, or another one that the program synchronizes with.
        if self.watched.load(Ordering::Relaxed) == 0 {
            self.watched.store(watch::begin(&self.communicator), Ordering::Relaxed);
        }
    }

    /// The sizes at which a collective runs here, if there are any.
    #[inline]
    pub(crate) fn sizes(&self, kind: Kind) -> Option<&'static Sizes> {
        self.sizes[kind as usize].as_ref()
    }

    pub(crate) fn size(&self) -> usize {
        self.communicator.size() as usize
    }

    pub(crate) fn rank(&self) -> usize {
        self.communicator.rank() as usize
    }
}

/// The communicator of a call: its error handler receives the call's error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    communicator: Handle,
    number: u64,
}

impl Origin {
    /// Calls the error handler of the communicator, or that of MPI_COMM_SELF if the program has
    /// freed the communicator, as it may while the call is active.
    pub(crate) fn report(self, abi: &Abi, error: c_int) {
        let is_there = attached().contains(&self.number);
        let communicator = if is_there { self.communicator } else { abi.comm_self };
        call!(Comm_call_errhandler(communicator, error));
    }
}

/// Numbers of the counterparts of existing communicators.
fn attached() -> MutexGuard<'static, BTreeSet<u64>> {
    static ATTACHED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    ATTACHED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Served {
    fn drop(&mut self) {
        attached().remove(&self.number);
        watch::end(*self.watched.get_mut());
    }
}

/// The counterpart of the world, while tradewind serves communicators; otherwise null.
static WORLD: AtomicPtr<Served> = AtomicPtr::new(ptr::null_mut());
static KEYVAL: AtomicI32 = AtomicI32::new(0);
/// A duplicate of the world, on which nothing is sent.
static PRIVATE: AtomicIsize = AtomicIsize::new(0);
/// This process's rank in the world.
static RANK: AtomicI32 = AtomicI32::new(0);

/// Returns whether calls may be taken over.
#[inline]
pub(crate) fn is_active() -> bool {
    world().is_some()
}

/// The counterpart of the world, if calls may be taken over.
#[inline]
fn world() -> Option<&'static Served> {
    // Acquire pairs with the release in `open`: the counterpart and the attribute's key are there.
    let world = WORLD.load(Ordering::Acquire);
    // SAFETY: null, or the attribute of the world. `close` deletes that in MPI_Finalize, beside
    // which a program calls no other function of MPI.
    unsafe { world.as_ref() }
}

/// Number of changes of counterparts. A remembered one is valid until the next change.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// Returns the counterpart of a communicator. It lives as long as the communicator, which the
/// program must not free during a call that uses it.
#[inline]
pub(crate) fn served(abi: &Abi, communicator: Handle) -> Option<&'static Served> {
    // The world lasts, so its counterpart needs no variable of the thread, which costs a call of
    // the loader.
    match world() {
        Some(world) if communicator == abi.comm_world => Some(world),
        Some(_) => host::with_thread(|thread| remembered(thread, abi, communicator)),
        None => None,
    }
}

/// The counterpart of a communicator that may be freed: the last one of this thread, or looked up.
/// Marked as cold, so that calls on the world save no registers for it.
#[cold]
#[inline(never)]
fn remembered(thread: &Thread, abi: &Abi, communicator: Handle) -> Option<&'static Served> {
    // Relaxed: a thread that uses a communicator has received it, or word of its end, by a
    // synchronization of the program.
    let changes = CHANGES.load(Ordering::Relaxed);
    let (known, found, at) = thread.remembered.get();
    if known == communicator && at == changes {
        // SAFETY: null, or what the look-up below has found. Since then no counterpart has ended,
        // because the number of changes is the same.
        return unsafe { found.cast::<Served>().as_ref() };
    }
    let found = look_up(abi, communicator);
    let address = found.map_or(ptr::null(), |served| ptr::from_ref(served).cast());
    thread.remembered.set((communicator, address, changes));
    found
}

fn look_up(abi: &Abi, communicator: Handle) -> Option<&'static Served> {
    if communicator == abi.comm_null {
        return None;
    }
    let (mut value, mut is_set) = (ptr::null_mut::<Served>(), 0);
    let at: Pointer = (&raw mut value).cast();
    let keyval = KEYVAL.load(Ordering::Relaxed);
    let outcome = pass!(Comm_get_attr(communicator, keyval, at, &raw mut is_set));
    // SAFETY: attributes with this key are set by `attach` alone, and freed by `delete_attribute`,
    // when the communicator is freed.
    (outcome == 0 && is_set != 0).then(|| unsafe { &*value })
}

/// Drives the MPI library. A probe for messages that never come makes progress in all of them; on a
/// duplicate of MPI_COMM_SELF it makes none in MPICH 4.0.2.
pub(crate) fn poke(abi: &Abi) {
    let mut found = 0;
    let communicator = PRIVATE.load(Ordering::Relaxed);
    let source = abi.any_source;
    let tag = abi.any_tag;
    call!(Iprobe(source, tag, communicator, &raw mut found, abi.ignored_status()));
}

/// Drives the MPI library: another rank may wait for a message that the program has started before
/// this call.
pub(crate) fn drive() {
    if let Some(abi) = abi() {
        poke(abi);
    }
}

/// A communicator of the MPI library on which nothing is sent, and this process's rank in it.
pub(crate) fn private() -> (Handle, c_int) {
    (PRIVATE.load(Ordering::Relaxed), RANK.load(Ordering::Relaxed))
}

/// Sets the world up. Collective over the world.
pub(crate) fn open(abi: &Abi, world: Communicator) -> Result<(), c_int> {
    KEYVAL.store(create_keyval(delete_attribute)?, Ordering::Relaxed);
    let world = attach(abi.comm_world, Served::new(world, None))?;
    WORLD.store(world, Ordering::Release);
    Ok(())
}

/// The delete function of an attribute.
pub(crate) type Delete = unsafe extern "C" fn(Handle, c_int, Pointer, Pointer) -> c_int;

/// Creates a key for attributes that duplicates of a communicator do not have.
pub(crate) fn create_keyval(delete: Delete) -> Result<c_int, c_int> {
    let mut keyval = 0;
    let copy: Pointer = copy_attribute as *mut _;
    let delete: Pointer = delete as *mut _;
    check(call!(Comm_create_keyval(copy, delete, &raw mut keyval, ptr::null_mut())))?;
    Ok(keyval)
}

/// Creates the communicator that [`poke`] uses. Collective over the world.
pub(crate) fn open_private(abi: &Abi, rank: c_int) -> Result<(), c_int> {
    RANK.store(rank, Ordering::Relaxed);
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    check(call!(Comm_dup(abi.comm_world, at)))?;
    // SAFETY: the variable is as large as the handles of every ABI.
    PRIVATE.store(unsafe { abi.read(at, 0) }, Ordering::Relaxed);
    Ok(())
}

/// Ends the service of all communicators, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    WORLD.store(ptr::null_mut(), Ordering::Release);
    let mut keyval = KEYVAL.load(Ordering::Relaxed);
    call!(Comm_delete_attr(abi.comm_world, keyval));
    call!(Comm_free_keyval(&raw mut keyval));
    close_private(abi);
}

pub(crate) fn close_private(abi: &Abi) {
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    // SAFETY: the variable is as large as the handles of every ABI.
    unsafe { abi.write(at, 0, PRIVATE.load(Ordering::Relaxed)) };
    call!(Comm_free(at));
}

pub(crate) fn check(outcome: c_int) -> Result<(), c_int> {
    if outcome == 0 { Ok(()) } else { Err(outcome) }
}

fn attach(communicator: Handle, served: Served) -> Result<*mut Served, c_int> {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    attached().insert(served.number);
    let value = Box::into_raw(Box::new(served));
    let keyval = KEYVAL.load(Ordering::Relaxed);
    match check(call!(Comm_set_attr(communicator, keyval, value.cast()))) {
        Ok(()) => Ok(value),
        Err(outcome) => {
            // SAFETY: the MPI library has not kept the pointer.
            drop(unsafe { Box::from_raw(value) });
            Err(outcome)
        }
    }
}

/// The copy function of the attribute: a duplicate is set up by the call that makes it.
unsafe extern "C" fn copy_attribute(
    _communicator: Handle,
    _keyval: c_int,
    _extra: Pointer,
    _value: Pointer,
    _copy: Pointer,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: the MPI library passes the address of a flag.
    unsafe { *is_copied = 0 };
    0
}

/// The delete function of the attribute. Active calls keep what they need.
unsafe extern "C" fn delete_attribute(
    _communicator: Handle,
    _keyval: c_int,
    value: Pointer,
    _extra: Pointer,
) -> c_int {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the value is from `attach`, and the MPI library deletes an attribute once.
    drop(unsafe { Box::from_raw(value.cast::<Served>()) });
    0
}

/// Sets up a communicator that the MPI library has created by a call that is collective over
/// `parent`. Collective over `parent`, whatever the results are on its ranks.
///
/// # Safety
/// `created` points to the handle of the new communicator, or to MPI_COMM_NULL.
pub(crate) unsafe fn created(abi: &Abi, parent: Handle, created: Pointer) {
    let Some(parent_served) = served(abi, parent) else { return };
    // SAFETY: the caller's promise.
    let new = unsafe { abi.read(created, 0) };
    if let Err(error) = set_up(abi, (parent, parent_served), new) {
        log::warn!("a communicator is left to the MPI library: {error}");
    }
}

/// Waits until all ranks of a communicator are here. Until then, one of them may wait for a message
/// that only a call of the MPI library completes; what follows may wait inside tradewind.
fn gather_ranks(abi: &Abi, served: &Served) -> tradewind::Result<()> {
    let mut arrived = served.communicator.ibarrier()?;
    while !arrived.test()? {
        poke(abi);
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns a communicator of the same ranks and topology for one persistent collective. MPI matches
/// persistent collectives in the order of their initializations, and ranks may start them in
/// different orders. Collective over the communicator.
pub(crate) fn own(abi: &Abi, (handle, served): (Handle, &Served)) -> tradewind::Result<Served> {
    gather_ranks(abi, served)?;
    let communicator = served.communicator.dup()?;
    let topology = match served.topology {
        Some(_) => Topology::of(abi, handle, &communicator)?,
        None => None,
    };
    Ok(Served::new(communicator, topology))
}

fn set_up(abi: &Abi, (parent, served): (Handle, &Served), new: Handle) -> tradewind::Result<()> {
    gather_ranks(abi, served)?;
    let place = if new == abi.comm_null { None } else { place(abi, parent, new) };
    let Some(communicator) = served.communicator.split(
        place.map(|(first, _)| first),
        match place {
            Some((_, rank)) => rank,
            None => 0,
        },
    )?
    else {
        return Ok(());
    };
    let topology = Topology::of(abi, new, &communicator)?;
    if let Err(outcome) = attach(new, Served::new(communicator, topology)) {
        log::warn!("a communicator is left to the MPI library: error {outcome}");
    }
    Ok(())
}

/// The rank in the parent of the first rank of a new communicator, which distinguishes it from
/// others of the same call, and this process's rank in it. `None` for a single rank.
fn place(abi: &Abi, parent: Handle, new: Handle) -> Option<(u32, i64)> {
    let (mut size, mut rank, mut first) = (0, 0, 0);
    call!(Comm_size(new, &raw mut size));
    call!(Comm_rank(new, &raw mut rank));
    if size < 2 {
        return None;
    }
    let mut groups = [0isize; 2];
    let [of_new, of_parent] = groups.each_mut().map(|group| (&raw mut *group).cast());
    call!(Comm_group(new, of_new));
    call!(Comm_group(parent, of_parent));
    let zero = 0;
    // SAFETY: the variables are as large as the handles of every ABI.
    let (from, to) = unsafe { (abi.read(of_new, 0), abi.read(of_parent, 0)) };
    call!(Group_translate_ranks(from, 1, &raw const zero, to, &raw mut first));
    call!(Group_free(of_new));
    call!(Group_free(of_parent));
    Some((u32::try_from(first).ok()?, i64::from(rank)))
}
