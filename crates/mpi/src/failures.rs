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
use crate::host::{Handle, call};
use crate::kind::Kind;
use crate::origin::Origin;
use crate::private::{poke, private, translated_rank};
use crate::tolerance::{is_on, with_errors_returned};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tradewind::Error;

/// Longest time that a failure which tradewind has detected waits for the MPI library's detection.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns whether the MPI library knows that a process has failed: a probe for its messages then
/// fails. (`MPIX_Comm_get_failed` takes a lock that Open MPI 5.0.11 keeps in some failures.)
fn knows(abi: &Abi, rank_in_world: c_int) -> bool {
    let (private, _) = private();
    let mut found = 0;
    let ignored = abi.ignored_status();
    call!(Iprobe(rank_in_world, abi.any_tag, private, &raw mut found, ignored)) != 0
}

/// The class of an error code of the MPI library.
pub(crate) fn class(code: c_int) -> c_int {
    let mut class = code;
    call!(Error_class(code, &raw mut class));
    class
}

/// Returns whether the cause of an error may be a failed process: its own, that of the failure which
/// has broken the communicator, or that of a wait which the MPI library has ended.
fn is_failure(error: &Error) -> bool {
    match error {
        Error::RankFailed { .. } | Error::NodeUnreachable { .. } | Error::GivenUp => true,
        Error::Broken => is_on(),
        _ => false,
    }
}

/// Returns whether the MPI library goes on, and knows the cause of an error now or soon.
fn may_be_known(error: &Error) -> bool {
    is_on() && is_failure(error)
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

/// Returns whether other ranks get an error, too, or the call keeps its number among those of this
/// rank. A start that fails for another reason has given its number back, or has taken none.
pub(crate) fn concerns_all_ranks(error: &Error) -> bool {
    matches!(
        error,
        Error::Broken
            | Error::Mismatch { .. }
            | Error::RankFailed { .. }
            | Error::NodeUnreachable { .. }
            | Error::ServiceFailed
            | Error::GivenUp
            | Error::BlockLength { .. }
            | Error::MissingEdge { .. }
            | Error::DivisionByZero { .. }
    )
}

/// Reports that a call has failed, and returns its error code.
pub(crate) fn report(abi: &Abi, (kind, origin): (Kind, Origin), error: &Error) -> c_int {
    log(kind.name(), error);
    let code = awaited_code(abi, (kind, origin), error);
    origin.report(abi, code);
    code
}

/// The error code of a call that has failed in tradewind at this time. `None` until the MPI library
/// knows the cause.
pub(crate) fn code(
    abi: &Abi,
    (kind, origin): (Kind, Origin),
    error: &Error,
    since: Instant,
) -> Option<c_int> {
    if let Some(code) = origin.failure(abi) {
        return Some(code);
    }
    if matches!(error, Error::Mismatch { .. }) {
        origin.record_mismatch();
    }
    let is_broken_by_mismatch = matches!(error, Error::Broken) && origin.is_mismatched();
    if !is_failure(error) || is_broken_by_mismatch {
        let text = format!("MPI_{} on tradewind: {error}", kind.name());
        return Some(described(abi, text).unwrap_or(abi.error_other));
    }
    if is_on() && since.elapsed() < LIMIT && !is_known(abi, origin, error) {
        return None;
    }
    origin.record_failure();
    Some(abi.error_process_failed)
}

/// An error code of the class MPI_ERR_OTHER with this text. The MPI library prints the text where it
/// ends the job; with MPI_ERR_OTHER itself it would name only MPI_Comm_call_errhandler. `None` if the
/// library creates no such codes, or has another text for them (MPICH 4.0.2).
#[cold]
fn described(abi: &Abi, mut text: String) -> Option<c_int> {
    /// Codes that this library creates, at most. The MPI library has some thousands in all.
    const MOST: usize = 64;
    /// Longest text that all MPI libraries take, in bytes.
    const LONGEST: usize = 255;
    static CODES: Mutex<BTreeMap<String, Option<c_int>>> = Mutex::new(BTreeMap::new());
    text.truncate(text.floor_char_boundary(LONGEST));
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = codes.get(&text) {
        return *code;
    }
    if codes.len() == MOST {
        return None;
    }
    let code = new_code(abi, &text);
    codes.insert(text, code);
    code
}

/// Creates the error code of a text.
fn new_code(abi: &Abi, text: &str) -> Option<c_int> {
    /// At least as long as the texts of all MPI libraries.
    const BUFFER: usize = 2048;
    let text = CString::new(text).ok()?;
    let mut code = 0;
    let created = call!(Add_error_code(abi.error_other, &raw mut code));
    if created != 0 || call!(Add_error_string(code, text.as_ptr())) != 0 {
        return None;
    }
    let mut found = [0u8; BUFFER];
    let mut length = 0;
    let outcome = call!(Error_string(code, found.as_mut_ptr().cast(), &raw mut length));
    let found = CStr::from_bytes_until_nul(&found).ok()?;
    (outcome == 0 && found == text.as_c_str()).then_some(code)
}

/// Returns whether the MPI library knows of a failed rank.
#[cold]
fn is_known(abi: &Abi, origin: Origin, error: &Error) -> bool {
    let rank = error.failed_rank().zip(origin.existing());
    let rank = rank.and_then(|(rank, communicator)| {
        translated_rank(abi, (communicator, c_int::try_from(rank).ok()?), private().0)
    });
    rank.is_none_or(|rank| knows(abi, rank))
}

/// As [`code`], of a call that has just failed, after a wait for the MPI library.
fn awaited_code(abi: &Abi, call: (Kind, Origin), error: &Error) -> c_int {
    let since = Instant::now();
    loop {
        if let Some(code) = code(abi, call, error, since) {
            return code;
        }
        poke(abi);
        std::thread::yield_now();
    }
}

/// Returns whether all ranks of a communicator of this library's own pass `true`, if the MPI
/// library goes on after failures; otherwise, whether this rank does.
pub(crate) fn agree_on_own(own: bool) -> bool {
    let mut all = c_int::from(own);
    if is_on() {
        let (private, _) = private();
        call!(Comm_agree(private, &raw mut all));
    }
    all == 1
}

/// Ends the collectives of the other ranks on the communicator of this library's own calls.
pub(crate) fn give_up_own() {
    if is_on() {
        let (private, _) = private();
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
        let (private, _) = private();
        if !is_on() {
            return Some(Survivors(private));
        }
        let shrunken = abi.written(|at| call!(Comm_shrink(private, at))).ok()?;
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
        abi.by_address(self.0, |at| call!(Comm_free(at)));
    }
}
