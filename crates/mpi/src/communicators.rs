//! Communicators: tradewind's counterpart of a communicator is an attribute of it.
//!
//! A communicator is set up where the MPI library creates it, by a call that is collective over its
//! parent. Intercommunicators, and those of calls that are not collective over a parent
//! (`MPI_Comm_create_group`, sessions, spawned processes, `MPI_Comm_idup`), have none: all ranks
//! leave their collectives to the MPI library.

use crate::abi::Abi;
use crate::failures;
use crate::host::{self, Handle, Pointer, Thread, call, pass};
use crate::kind::Kind;
use crate::origin::{Mark, Origin};
use crate::private::{check, drive, translated_rank};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::table::{Sizes, SizesByKind, sizes_on};
use crate::tolerance;
use crate::topology::Topology;
use crate::watch;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use tradewind::interop::{self, while_waiting};
use tradewind::{Communicator, Error, Op};

/// A communicator that tradewind serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) communicator: Communicator,
    /// The topology, if it has one.
    pub(crate) topology: Option<Topology>,
    /// The sizes at which its collectives run here.
    sizes: &'static SizesByKind,
    /// Its number in `watch` after a call on it was recorded as left, and 0 before.
    watched: AtomicU64,
    /// Failures on it.
    mark: Arc<Mark>,
}

impl Served {
    fn new(communicator: Communicator, topology: Option<Topology>) -> Self {
        Served::with_mark(communicator, topology, Mark::new())
    }

    fn with_mark(communicator: Communicator, topology: Option<Topology>, mark: Arc<Mark>) -> Self {
        let sizes = sizes_on((communicator.size(), communicator.nodes()));
        Served { communicator, topology, sizes, watched: AtomicU64::new(0), mark }
    }

    /// The origin of a call on this communicator of the MPI library.
    #[inline]
    pub(crate) fn origin(&self, communicator: Handle) -> Origin {
        self.mark.origin(communicator)
    }

    /// Records a call that is left to the MPI library because of its arguments. All ranks of a
    /// correct program leave it. A rank that has not, and waits for this one, gets an error.
    #[inline]
    pub(crate) fn record_external_collective(&self) {
        interop::record_external_collective(&self.communicator);
        // Relaxed: this thread has stored it, or another one that the program synchronizes with.
        if self.watched.load(Ordering::Relaxed) == 0 {
            self.watched.store(watch::begin(&self.communicator, &self.mark), Ordering::Relaxed);
        }
    }

    /// Reports that a call has failed before its end, and returns its error code. A failure that
    /// this rank alone has is recorded, because other ranks may wait.
    #[cold]
    pub(crate) fn fail(&self, abi: &Abi, call: (Kind, Origin), error: &Error) -> c_int {
        if !failures::concerns_all_ranks(error) {
            self.record_external_collective();
        }
        failures::report(abi, call, error)
    }

    /// Returns whether the MPI library fails collectives on this communicator, whose handle is
    /// passed.
    #[inline]
    pub(crate) fn has_failed(&self, communicator: Handle) -> bool {
        tolerance::is_on() && (self.mark.is_failed() || tolerance::is_revoked(communicator))
    }

    /// The sizes at which a collective runs here, if there are any.
    #[inline]
    pub(crate) fn sizes(&self, kind: Kind) -> Option<&'static Sizes> {
        self.sizes[kind.index()].as_ref()
    }

    pub(crate) fn size(&self) -> usize {
        self.communicator.size() as usize
    }

    pub(crate) fn rank(&self) -> usize {
        self.communicator.rank() as usize
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        watch::end(*self.watched.get_mut());
    }
}

/// The counterpart of the world, while tradewind serves communicators; otherwise null.
static WORLD: AtomicPtr<Served> = AtomicPtr::new(ptr::null_mut());
static KEYVAL: AtomicI32 = AtomicI32::new(0);

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

/// Sets the world up, unless a rank cannot. Collective over the world.
pub(crate) fn open(abi: &Abi, world: Communicator) -> Result<(), String> {
    let text = |outcome| format!("the MPI library reports error {outcome}");
    let opened = create_keyval(delete_attribute).and_then(|keyval| {
        KEYVAL.store(keyval, Ordering::Relaxed);
        attach(abi.comm_world, Served::new(world.clone(), None))
    });
    let obstacle = opened.err().map(text);
    let voter = Served::new(world, None);
    let agreed = while_waiting(drive, || all_have_done(&voter, obstacle.as_deref()));
    match (opened, agreed) {
        (Ok(world), Ok(true)) => {
            WORLD.store(world, Ordering::Release);
            Ok(())
        }
        (Ok(_), agreed) => {
            detach(abi.comm_world);
            Err(agreed.map_or_else(|error| error.to_string(), |_| "a rank could not".to_owned()))
        }
        (Err(outcome), _) => Err(text(outcome)),
    }
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

/// Ends the service of all communicators, before the MPI library is finalized.
pub(crate) fn close(abi: &Abi) {
    WORLD.store(ptr::null_mut(), Ordering::Release);
    let mut keyval = KEYVAL.load(Ordering::Relaxed);
    call!(Comm_delete_attr(abi.comm_world, keyval));
    call!(Comm_free_keyval(&raw mut keyval));
}

fn attach(communicator: Handle, served: Served) -> Result<*mut Served, c_int> {
    CHANGES.fetch_add(1, Ordering::Relaxed);
    served.mark.enter(communicator);
    let value = Box::into_raw(Box::new(served));
    let keyval = KEYVAL.load(Ordering::Relaxed);
    match check(call!(Comm_set_attr(communicator, keyval, value.cast()))) {
        Ok(()) => Ok(value),
        Err(outcome) => {
            // SAFETY: the MPI library has not kept the pointer.
            let served = unsafe { Box::from_raw(value) };
            served.mark.remove();
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
    let served = unsafe { Box::from_raw(value.cast::<Served>()) };
    served.mark.remove();
    drop(served);
    0
}

/// Sets up a communicator that the MPI library has created by a call that is collective over
/// `parent`; this rank's may be MPI_COMM_NULL. Collective over `parent`, whatever the results are on its
/// ranks.
pub(crate) fn created(abi: &Abi, parent: Handle, new: Handle) {
    let Some(parent_served) = served(abi, parent) else { return };
    let awaited = tolerance::awaiting(parent);
    let is_set_up = while_waiting(drive, || set_up(abi, (parent, parent_served), new));
    drop(awaited);
    match &is_set_up {
        // The watch of the rank whose call has failed reports a mismatch.
        Ok(_) | Err(Error::Mismatch { .. }) => {}
        Err(error) => {
            if matches!(error, Error::RankFailed { .. } | Error::NodeUnreachable { .. }) {
                parent_served.mark.record_failure();
            }
            failures::log_left(error);
        }
    }
    if new == abi.comm_null || is_single(new) {
        return;
    }
    let is_set_up = matches!(is_set_up, Ok(true));
    if !failures::agree(abi, new, is_set_up) && is_set_up {
        detach(new);
    }
}

/// Records that a call that would create a communicator has failed on this rank with this error.
/// The other ranks may wait for this one.
pub(crate) fn not_created(abi: &Abi, parent: Handle, outcome: c_int) {
    let Some(served) = served(abi, parent) else { return };
    let class = failures::class(outcome);
    let classes = [abi.error_process_failed, abi.error_revoked];
    if tolerance::is_on() && (served.has_failed(parent) || classes.contains(&class)) {
        // The program goes on after it, and the others learn of the failure while they wait.
        if class == abi.error_process_failed {
            served.mark.record_failure();
        }
        return;
    }
    served.record_external_collective();
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

/// Makes the counterpart of a communicator in two steps: `make` creates it, and `finish`, on the
/// ranks that are in it, may wait for them. If one rank of the parent fails in either, all of them
/// leave the communicator to the MPI library, and this returns `None`. `text` says what has hindered
/// this rank, as [`all_have_done`] prints it. Collective over the parent.
fn made_by_all<T>(
    parent: &Served,
    make: impl FnOnce() -> tradewind::Result<Option<Communicator>>,
    finish: impl FnOnce(Communicator) -> tradewind::Result<T>,
    text: impl Fn(&Error) -> String,
) -> tradewind::Result<Option<Option<T>>> {
    let made = make();
    // On one node no rank waits in the second step, so one vote after both is enough.
    let made = match parent.communicator.nodes() {
        1 => made,
        _ => match voted(parent, made, &text)? {
            Some(made) => Ok(made),
            None => return Ok(None),
        },
    };
    voted(parent, made.and_then(|new| new.map(finish).transpose()), text)
}

/// Returns what this rank has made, or `None` if one rank could not.
fn voted<T>(
    parent: &Served,
    made: tradewind::Result<T>,
    text: impl Fn(&Error) -> String,
) -> tradewind::Result<Option<T>> {
    let obstacle = made.as_ref().err().map(text);
    match (all_have_done(parent, obstacle.as_deref()), made) {
        (Ok(true), made) => made.map(Some),
        (Ok(false), _) => Ok(None),
        // The first error has the cause.
        (Err(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
    }
}

/// Returns a communicator of the same ranks and topology for one persistent collective. MPI matches
/// persistent collectives in the order of their initializations, and ranks may start them in
/// different orders. Collective over the communicator; if one rank does not accept the collective, or
/// cannot make the communicator, all ranks leave it to the MPI library.
pub(crate) fn own(
    abi: &Abi,
    (handle, served): (Handle, &Served),
    is_accepted: bool,
) -> Result<Served, Refusal> {
    let _awaited = tolerance::awaiting(handle);
    while_waiting(drive, || {
        if !all_have_done(served, if is_accepted { None } else { Some("") })? {
            return Err(Refusal::Left(Reason::Arguments));
        }
        let finish = |communicator: Communicator| {
            let topology = match served.topology {
                Some(_) => Topology::of(abi, handle, &communicator)?,
                None => None,
            };
            Ok(Served::with_mark(communicator, topology, Arc::clone(&served.mark)))
        };
        // The report counts those without memory.
        let text = |error: &Error| match error {
            Error::NoMemory(_) => String::new(),
            error => error.to_string(),
        };
        let made = made_by_all(served, || served.communicator.dup().map(Some), finish, text)?;
        made.flatten().ok_or(Refusal::Left(Reason::Memory))
    })
}

/// Sets a new communicator up, unless one of the parent's ranks cannot: then all of them leave it, as
/// well as others that the same call has created. Returns whether this rank has a counterpart of it.
fn set_up(abi: &Abi, (parent, served): (Handle, &Served), new: Handle) -> tradewind::Result<bool> {
    gather_ranks(served)?;
    let make = || {
        let place = if new == abi.comm_null { None } else { place(abi, parent, new) };
        let color = place.map(|(first, _)| first);
        served.communicator.split(color, place.map_or(0, |(_, rank)| rank))
    };
    let finish = |communicator: Communicator| {
        let topology = Topology::of(abi, new, &communicator)?;
        Attached::new(new, Served::new(communicator, topology))
    };
    let built = made_by_all(served, make, finish, Error::to_string)?.flatten();
    let is_built = built.is_some();
    if let Some(attached) = built {
        attached.keep();
    }
    Ok(is_built)
}

/// A communicator with a counterpart, which is taken from it unless it is kept.
struct Attached(Handle);

impl Attached {
    fn new(communicator: Handle, served: Served) -> tradewind::Result<Self> {
        let text = |outcome| format!("MPI_Comm_set_attr has failed with error {outcome}");
        attach(communicator, served).map_err(|outcome| Error::NoMemory(text(outcome)))?;
        Ok(Attached(communicator))
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        detach(self.0);
    }
}

/// Takes the counterpart from a communicator.
fn detach(communicator: Handle) {
    call!(Comm_delete_attr(communicator, KEYVAL.load(Ordering::Relaxed)));
}

/// The rank in the parent of the first rank of a new communicator, which distinguishes it from
/// others of the same call, and this process's rank in it. `None` for a single rank.
fn place(abi: &Abi, parent: Handle, new: Handle) -> Option<(u32, i64)> {
    if is_single(new) {
        return None;
    }
    let mut rank = 0;
    call!(Comm_rank(new, &raw mut rank));
    let first = translated_rank(abi, (new, 0), parent)?;
    Some((u32::try_from(first).ok()?, i64::from(rank)))
}
