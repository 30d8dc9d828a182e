//! Processes that have failed, and communicators that were revoked, in an MPI library that goes on
//! after both (ULFM: Open MPI started with `--with-ft ulfm`).
//!
//! The MPI library is the authority: a collective that runs here ends with the error class with
//! which it would end there, and only after the library knows the cause, so that the program then
//! finds the failed processes in it. New calls on a communicator with a failure are left to the
//! library, which reports it. They are not recorded as external: other ranks may still have started
//! the same call here, and learn of the failure while they wait.
//!
//! Communicators that `MPIX_Comm_shrink` creates are left to the MPI library by all ranks:
//! tradewind can create none without the failed ones.

use crate::abi::Abi;
use crate::communicators::{self, Origin, poke};
use crate::host::{self, Handle, Pointer, call};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tradewind::Error;

/// Longest time that a failure which tradewind has detected waits for the MPI library's detection.
const LIMIT: Duration = Duration::from_secs(5);

/// True if the MPI library goes on after failures.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Finds out whether the MPI library goes on after failures.
pub(crate) fn examine() {
    let enabled = host::variable(c"ompi_ftmpi_enabled").cast::<bool>();
    // SAFETY: the library's variable of this type, which MPI_Init has written.
    let is_on = !enabled.is_null() && unsafe { enabled.cast::<u8>().read() } != 0;
    IS_ON.store(is_on && host::Comm_is_revoked.find().is_some(), Ordering::Relaxed);
}

/// Returns whether the MPI library goes on after failures.
#[inline]
pub(crate) fn is_on() -> bool {
    // Relaxed: written in the initialization of MPI, before any call that may be taken over.
    IS_ON.load(Ordering::Relaxed)
}

/// Returns whether a communicator was revoked.
#[inline]
pub(crate) fn is_revoked(communicator: Handle) -> bool {
    is_on() && ask_revoked(communicator)
}

#[cold]
fn ask_revoked(communicator: Handle) -> bool {
    let mut is_revoked = 0;
    call!(Comm_is_revoked(communicator, &raw mut is_revoked));
    is_revoked != 0
}

/// Returns whether the MPI library knows that a process has failed: a probe for its messages then
/// fails. (`MPIX_Comm_get_failed` takes a lock that Open MPI 5.0.11 keeps in some failures.)
fn knows(abi: &Abi, rank_in_world: c_int) -> bool {
    let (private, _) = communicators::private();
    let mut found = 0;
    let ignored = abi.ignored_status();
    call!(Iprobe(rank_in_world, abi.any_tag, private, &raw mut found, ignored)) != 0
}

/// The rank in the world of a rank of a communicator.
fn rank_in_world(abi: &Abi, communicator: Handle, rank: u32) -> Option<c_int> {
    let mut groups = [0isize; 2];
    let [of_one, of_world] = groups.each_mut().map(|group| (&raw mut *group).cast::<c_void>());
    call!(Comm_group(communicator, of_one));
    call!(Comm_group(communicators::private().0, of_world));
    let rank = c_int::try_from(rank).ok()?;
    let mut translated = abi.undefined;
    // SAFETY: the variables are as large as the handles of every ABI.
    let (from, to) = unsafe { (abi.read(of_one, 0), abi.read(of_world, 0)) };
    let outcome = call!(Group_translate_ranks(from, 1, &raw const rank, to, &raw mut translated));
    call!(Group_free(of_one));
    call!(Group_free(of_world));
    (outcome == 0 && translated != abi.undefined).then_some(translated)
}

/// Returns whether the cause of an error is a failed process, or a wait that [`flow`] has ended.
fn is_failure(error: &Error) -> bool {
    matches!(error, Error::RankFailed { .. } | Error::NodeUnreachable { .. } | Error::GivenUp)
}

/// Returns whether the MPI library goes on, and knows the cause of an error now or soon.
fn may_be_known(error: &Error) -> bool {
    is_on() && (is_failure(error) || matches!(error, Error::Broken))
}

/// Reports an error of a collective on standard error, unless the MPI library goes on after it.
pub(crate) fn log(name: &str, error: &Error) {
    if may_be_known(error) {
        log::debug!("MPI_{name}: {error}");
    } else {
        log::error!("MPI_{name}: {error}");
    }
}

/// Reports that a new communicator is left to the MPI library, as [`log`].
pub(crate) fn log_left(error: &Error) {
    if may_be_known(error) {
        log::debug!("a communicator is left to the MPI library: {error}");
    } else {
        log::warn!("a communicator is left to the MPI library: {error}");
    }
}

/// The error code of a call that has failed in tradewind at this time. `None` until the MPI library
/// knows the cause.
pub(crate) fn code(abi: &Abi, origin: Origin, error: &Error, since: Instant) -> Option<c_int> {
    if let Some(code) = origin.failure(abi) {
        return Some(code);
    }
    if !is_failure(error) {
        return Some(abi.error_other);
    }
    if is_on() && since.elapsed() < LIMIT && !is_known(abi, origin, error) {
        return None;
    }
    origin.record_failure();
    Some(abi.error_process_failed)
}

/// Returns whether the MPI library knows of a failed rank.
#[cold]
fn is_known(abi: &Abi, origin: Origin, error: &Error) -> bool {
    let rank = error.failed_rank().zip(origin.existing());
    let rank = rank.and_then(|(rank, communicator)| rank_in_world(abi, communicator, rank));
    rank.is_none_or(|rank| knows(abi, rank))
}

/// As [`code`], of a call that has just failed, after a wait for the MPI library.
pub(crate) fn awaited_code(abi: &Abi, origin: Origin, error: &Error) -> c_int {
    let since = Instant::now();
    loop {
        if let Some(code) = code(abi, origin, error, since) {
            return code;
        }
        poke(abi);
        std::thread::yield_now();
    }
}

thread_local! {
    /// The communicator on which a call of this thread waits inside tradewind, or 0.
    static AWAITED: Cell<Handle> = const { Cell::new(0) };
}

/// Notes that a call of this thread waits inside tradewind, until it is dropped.
pub(crate) struct Awaited(Handle);

/// Lets a wait inside tradewind end with a failure on this communicator: [`flow`] breaks it.
#[inline]
pub(crate) fn awaiting(communicator: Handle) -> Option<Awaited> {
    // A function of the program that the call executes may wait on another communicator.
    is_on().then(|| Awaited(AWAITED.replace(communicator)))
}

impl Drop for Awaited {
    fn drop(&mut self) {
        AWAITED.set(self.0);
    }
}

/// Whether the wait of this thread inside tradewind goes on.
pub(crate) fn flow() -> ControlFlow<()> {
    // A failed process ends the wait by itself.
    let is_revoked = is_on() && AWAITED.get() != 0 && ask_revoked(AWAITED.get());
    if is_revoked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Executes calls of the MPI library on a communicator of the program, with an error handler that
/// returns instead of the program's.
pub(crate) fn with_errors_returned<T>(
    abi: &Abi,
    communicator: Handle,
    calls: impl FnOnce() -> T,
) -> T {
    let mut handler: isize = 0;
    let at: Pointer = (&raw mut handler).cast();
    let is_kept = call!(Comm_get_errhandler(communicator, at)) == 0;
    call!(Comm_set_errhandler(communicator, abi.errors_return));
    let value = calls();
    if is_kept {
        // SAFETY: the variable is as large as the handles of every ABI.
        call!(Comm_set_errhandler(communicator, unsafe { abi.read(at, 0) }));
        call!(Errhandler_free(at));
    }
    value
}

/// Returns whether all ranks of a communicator of this library's own pass `true`, if the MPI
/// library goes on after failures; otherwise, whether this rank does.
pub(crate) fn agree_on_own(own: bool) -> bool {
    let mut all = c_int::from(own);
    if is_on() {
        let (private, _) = communicators::private();
        call!(Comm_agree(private, &raw mut all));
    }
    all == 1
}

/// Ends the collectives of the other ranks on the communicator of this library's own calls.
pub(crate) fn give_up_own() {
    if is_on() {
        let (private, _) = communicators::private();
        call!(Comm_revoke(private));
    }
}

/// Returns whether all ranks of a communicator that the program has just created pass `true`, which
/// is the same on all ranks that survive. All of them call this, if any of them passes `true`.
pub(crate) fn agree(abi: &Abi, communicator: Handle, own: bool) -> bool {
    if !is_on() {
        return own;
    }
    with_errors_returned(abi, communicator, || {
        if own {
            let mut all = 1;
            call!(Comm_agree(communicator, &raw mut all));
            return all == 1;
        }
        // The outcome is known. Nothing is awaited, because perhaps the communicator has not even
        // been created on all ranks. The flag and the request stay until the process ends.
        let flag = Box::leak(Box::new(0 as c_int));
        let request = Box::leak(Box::new(0isize));
        call!(Comm_iagree(communicator, flag, std::ptr::from_mut(request).cast()));
        false
    })
}

/// A communicator of all ranks that survive, made of this library's own for one collective.
pub(crate) struct Survivors(pub(crate) Handle);

impl Survivors {
    /// Collective over the ranks that survive. `None` if the MPI library cannot create it.
    pub(crate) fn of_job(abi: &Abi) -> Option<Self> {
        let (private, _) = communicators::private();
        if !is_on() {
            return Some(Survivors(private));
        }
        let mut shrunken: isize = 0;
        let at: Pointer = (&raw mut shrunken).cast();
        if call!(Comm_shrink(private, at)) != 0 {
            return None;
        }
        // SAFETY: the variable is as large as the handles of every ABI.
        let shrunken = unsafe { abi.read(at, 0) };
        call!(Comm_set_errhandler(shrunken, abi.errors_return));
        Some(Survivors(shrunken))
    }

    /// Ends the collective with this outcome: a failure ends it on the other ranks, too.
    pub(crate) fn end(self, abi: &Abi, outcome: c_int) {
        if !is_on() {
            return;
        }
        if outcome != 0 {
            call!(Comm_revoke(self.0));
        }
        let mut in_memory: isize = 0;
        let at: Pointer = (&raw mut in_memory).cast();
        // SAFETY: the variable is as large as the handles of every ABI.
        unsafe { abi.write(at, 0, self.0) };
        call!(Comm_free(at));
    }
}
