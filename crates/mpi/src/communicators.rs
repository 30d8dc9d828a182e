//! Communicators: tradewind's counterpart of a communicator is an attribute of it.
//!
//! A communicator is set up where the MPI library creates it, by a call that is collective over its
//! parent. Intercommunicators, and those of calls that are not collective over a parent
//! (`MPI_Comm_create_group`, sessions, spawned processes, `MPI_Comm_idup`), have none: all ranks
//! leave their collectives to the MPI library.

use crate::abi::{Abi, abi};
use crate::failures;
use crate::host::{self, Handle, Pointer, Thread, call, pass};
use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::report::Reason;
use crate::table::{Sizes, SizesByKind, sizes_on};
use crate::topology::Topology;
use crate::watch;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tradewind::{Communicator, Error, Op, while_waiting};

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
    /// True after a collective that has failed because of a failed process.
    is_failed: Arc<AtomicBool>,
}

impl Served {
    fn new(communicator: Communicator, topology: Option<Topology>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let sizes = sizes_on((communicator.size(), communicator.nodes()));
        Served {
            communicator,
            number,
            topology,
            sizes,
            watched: AtomicU64::new(0),
            is_failed: Arc::default(),
        }
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

    /// Returns whether the MPI library fails collectives on this communicator, whose handle is
    /// passed.
    #[inline]
    pub(crate) fn has_failed(&self, communicator: Handle) -> bool {
        failures::is_on()
            && (self.is_failed.load(Ordering::Relaxed) || failures::is_revoked(communicator))
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
        let is_there = attached().contains_key(&self.number);
        let communicator = if is_there { self.communicator } else { abi.comm_self };
        // Without the mark: collectives that the handler starts are decided like all others.
        pass!(Comm_call_errhandler(communicator, error));
    }

    /// The error class of collectives on the communicator, if it was revoked, or a collective on it
    /// has failed because of a failed process; `None` if the program has freed it.
    pub(crate) fn failure(self, abi: &Abi) -> Option<c_int> {
        // The lock keeps the communicator: freeing it takes the number out. The MPI library takes
        // no lock for its answer.
        let attached = attached();
        let is_failed = attached.get(&self.number)?;
        if failures::is_revoked(self.communicator) {
            return Some(abi.error_revoked);
        }
        is_failed.load(Ordering::Relaxed).then_some(abi.error_process_failed)
    }

    /// Records that a collective has failed because of a failed process, if the MPI library goes on
    /// after that: it fails all later ones.
    pub(crate) fn record_failure(self) {
        if failures::is_on()
            && let Some(is_failed) = attached().get(&self.number)
        {
            is_failed.store(true, Ordering::Relaxed);
        }
    }

    /// The handle of the communicator, unless the program has freed it.
    pub(crate) fn existing(self) -> Option<Handle> {
        attached().contains_key(&self.number).then_some(self.communicator)
    }
}

/// Numbers of the counterparts of existing communicators, and their marks of a failure.
fn attached() -> MutexGuard<'static, BTreeMap<u64, Arc<AtomicBool>>> {
    static ATTACHED: Mutex<BTreeMap<u64, Arc<AtomicBool>>> = Mutex::new(BTreeMap::new());
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
/// A duplicate of the world for this library's own calls, whose errors are returned. No message is
/// sent on it while the program runs.
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
    let (communicator, own) = private();
    // Where a process has failed, a probe for messages of any source ends before it makes progress.
    let source = if failures::is_on() { own } else { abi.any_source };
    let tag = abi.any_tag;
    call!(Iprobe(source, tag, communicator, &raw mut found, abi.ignored_status()));
}

/// Drives the MPI library: another rank may wait for a message that the program has started before
/// this call. Returns whether the call of this thread still waits for other ranks.
pub(crate) fn drive() -> ControlFlow<()> {
    let Some(abi) = abi() else { return ControlFlow::Continue(()) };
    poke(abi);
    failures::flow()
}

/// The communicator of this library's own calls, and this process's rank in it.
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

/// Creates the communicator of this library's own calls. Collective over the world.
pub(crate) fn open_private(abi: &Abi, rank: c_int) -> Result<(), c_int> {
    RANK.store(rank, Ordering::Relaxed);
    let mut in_memory: isize = 0;
    let at: Pointer = (&raw mut in_memory).cast();
    let world = abi.comm_world;
    check(failures::with_errors_returned(abi, world, || call!(Comm_dup(world, at))))?;
    // SAFETY: the variable is as large as the handles of every ABI.
    let private = unsafe { abi.read(at, 0) };
    check(call!(Comm_set_errhandler(private, abi.errors_return)))?;
    PRIVATE.store(private, Ordering::Relaxed);
    Ok(())
}

/// Ends the service of all communicators, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    WORLD.store(ptr::null_mut(), Ordering::Release);
    let mut keyval = KEYVAL.load(Ordering::Relaxed);
    call!(Comm_delete_attr(abi.comm_world, keyval));
    call!(Comm_free_keyval(&raw mut keyval));
}

/// Frees the communicator of this library's own calls.
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
    attached().insert(served.number, Arc::clone(&served.is_failed));
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
    let awaited = failures::awaiting(parent);
    let is_set_up = while_waiting(drive, || set_up(abi, (parent, parent_served), new));
    drop(awaited);
    match &is_set_up {
        // The watch of the rank whose call has failed reports a mismatch.
        Ok(_) | Err(Error::Mismatch { .. }) => {}
        Err(error) => failures::log_left(error),
    }
    if new == abi.comm_null || is_single(new) {
        return;
    }
    let is_set_up = matches!(is_set_up, Ok(true));
    if !failures::agree(abi, new, is_set_up) && is_set_up {
        detach(new);
    }
}

/// Records that a call that would create a communicator has failed on this rank. Where it has not,
/// ranks wait for this one.
pub(crate) fn not_created(abi: &Abi, parent: Handle) {
    if let Some(served) = served(abi, parent) {
        served.record_external_collective();
    }
}

/// Returns whether a communicator has this rank alone.
fn is_single(communicator: Handle) -> bool {
    let mut size = 0;
    call!(Comm_size(communicator, &raw mut size));
    size < 2
}

/// Waits until all ranks of a communicator are here. Until then, one of them may wait for a message
/// that only a call of the MPI library completes; what follows may wait inside tradewind.
fn gather_ranks(served: &Served) -> tradewind::Result<()> {
    let mut arrived = served.communicator.ibarrier()?;
    drive_until(|| arrived.test())
}

/// Drives the MPI library until `test` returns true.
fn drive_until(mut test: impl FnMut() -> tradewind::Result<bool>) -> tradewind::Result<()> {
    while !test()? {
        if drive().is_break() {
            return Err(Error::GivenUp);
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns whether all ranks of a communicator have done their part of a step, which each knows of
/// itself only. Waits for all of them. `obstacle` is what has hindered this rank; the first rank
/// that has one prints it, if it is text.
fn all_have_done(served: &Served, obstacle: Option<&str>) -> tradewind::Result<bool> {
    let communicator = &served.communicator;
    let none = communicator.size();
    let own = [if obstacle.is_some() { communicator.rank() } else { none }];
    let mut first = [none];
    let mut request = communicator.iallreduce(&own, &mut first, Op::Minimum)?;
    drive_until(|| request.test())?;
    request.wait()?;
    if first == own
        && let Some(text) = obstacle.filter(|text| !text.is_empty())
    {
        log::warn!("all ranks leave a communicator to the MPI library: rank {}: {text}", own[0]);
    }
    Ok(first == [none])
}

/// Returns a communicator of the same ranks and topology for one persistent collective. MPI matches
/// persistent collectives in the order of their initializations, and ranks may start them in
/// different orders. Collective over the communicator; if one rank does not accept the collective,
/// all ranks leave it to the MPI library.
pub(crate) fn own(
    abi: &Abi,
    (handle, served): (Handle, &Served),
    is_accepted: bool,
) -> Result<Served, Refusal> {
    let _awaited = failures::awaiting(handle);
    while_waiting(drive, || {
        if !all_have_done(served, if is_accepted { None } else { Some("") })? {
            return Err(Refusal::Left(Reason::Arguments));
        }
        let made = served.communicator.dup().and_then(|communicator| {
            let topology = match served.topology {
                Some(_) => Topology::of(abi, handle, &communicator)?,
                None => None,
            };
            Ok(Served::new(communicator, topology))
        });
        // All ranks of one node learn that the first one has no memory for the communicator. Of
        // several nodes, one may have none.
        let is_short = matches!(made, Err(Error::NoMemory(_)));
        let is_left = match served.communicator.nodes() {
            1 => is_short,
            _ => !all_have_done(served, if is_short { Some("") } else { None })?,
        };
        if is_left { Err(Refusal::Left(Reason::Memory)) } else { Ok(made?) }
    })
}

/// Sets a new communicator up, unless one of the parent's ranks cannot: then all of them leave it, as
/// well as others that the same call has created. Returns whether this rank has a counterpart of it.
fn set_up(abi: &Abi, (parent, served): (Handle, &Served), new: Handle) -> tradewind::Result<bool> {
    gather_ranks(served)?;
    let built = build(abi, (parent, served), new);
    let obstacle = built.as_ref().err().map(String::as_str);
    let agreed = all_have_done(served, obstacle);
    let is_built = built == Ok(true);
    if !matches!(agreed, Ok(true)) && is_built {
        detach(new);
    }
    Ok(agreed? && is_built)
}

/// Takes the counterpart from a communicator.
fn detach(communicator: Handle) {
    call!(Comm_delete_attr(communicator, KEYVAL.load(Ordering::Relaxed)));
}

/// Attaches the counterpart of a new communicator, if there is one of several ranks. Returns whether
/// this rank has it, or what has hindered the rank.
fn build(abi: &Abi, (parent, served): (Handle, &Served), new: Handle) -> Result<bool, String> {
    let place = if new == abi.comm_null { None } else { place(abi, parent, new) };
    let color = place.map(|(first, _)| first);
    let key = place.map_or(0, |(_, rank)| rank);
    let text = |error: Error| error.to_string();
    let Some(communicator) = served.communicator.split(color, key).map_err(text)? else {
        return Ok(false);
    };
    let topology = Topology::of(abi, new, &communicator).map_err(text)?;
    let attached = attach(new, Served::new(communicator, topology));
    attached.map_err(|outcome| format!("MPI_Comm_set_attr has failed with error {outcome}"))?;
    Ok(true)
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
