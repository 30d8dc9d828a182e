//! The beginning and the end of the MPI library.

use crate::abi::{Abi, abi, library_version};
use crate::communicators;
use crate::completion::examine_empty_status;
use crate::host::{Handle, Pointer, call};
use crate::settings::Settings;
use crate::{buffers, persistent, relief, report, requests, take};
use launch::node_identity::NodeIdentity;
use std::ffi::{CStr, OsStr, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tradewind::{DataType, Job, Op};

/// State between initialization and finalization.
struct Life {
    /// Present if the world is served.
    job: Option<Job>,
    /// Description for the report.
    served: String,
    rank: c_int,
    reports: bool,
}

static LIFE: Mutex<Option<Life>> = Mutex::new(None);

/// Messages on standard error, a line each.
struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            // One write: lines of several processes stay whole.
            let line = format!("tradewind: {}\n", record.args());
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Prepares this process before the MPI library is initialized.
pub(crate) fn before_initialization() {
    // The job needs the registration. In a process with threads, as most MPI libraries start, it
    // waits for all processors, for ten milliseconds and more.
    shm::fence::register();
}

/// Sets tradewind up after the MPI library is initialized. Collective over the world.
pub(crate) fn initialized(outcome: c_int) {
    if outcome != 0 {
        return;
    }
    static LOGGER: StandardError = StandardError;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let Some(abi) = abi() else {
        let version = library_version();
        let first = version.lines().next().unwrap_or_default();
        log::warn!("this MPI library is not known, so nothing runs on tradewind: {first}");
        return;
    };
    let world = World::of(abi);
    let settings = Settings::read();
    let agreement = world.agree(&settings);
    let reports = agreement.reports;
    if reports {
        report::measure_times();
    }
    let (job, served) = match world.join(&agreement, settings.kinds) {
        Ok(job) => {
            let served =
                format!("collectives of {} ranks of one node, {} ABI", world.ranks, abi.name);
            (Some(job), served)
        }
        Err(why) => (None, format!("all collectives are left to the MPI library: {why}")),
    };
    let life = Life { job, served, rank: world.rank, reports };
    *LIFE.lock().unwrap_or_else(PoisonError::into_inner) = Some(life);
}

/// `MPI_COMM_WORLD`.
struct World {
    abi: &'static Abi,
    rank: c_int,
    ranks: c_int,
}

/// The name of the node service, and the calls that are taken over, as rank 0 passes them on.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Invitation {
    service: [u8; 120],
    kinds: u64,
}

/// Settings and facts of all ranks.
struct Agreement {
    /// Any rank asks for the report, which is collective.
    reports: bool,
    is_on: bool,
    on_one_node: bool,
}

/// A number of the node of this process, by which the node service is reachable: ranks with another
/// number are on other nodes. `None` if the node cannot be identified.
fn node_number() -> Option<u64> {
    let node = NodeIdentity::of_this_process(None, None).ok()?;
    // The ranks load the same library, so their hashes are the same function.
    let mut hasher = DefaultHasher::new();
    node.name.hash(&mut hasher);
    Some(hasher.finish())
}

impl World {
    fn of(abi: &'static Abi) -> Self {
        let mut world = World { abi, rank: 0, ranks: 0 };
        call!(Comm_rank(abi.comm_world, &raw mut world.rank));
        call!(Comm_size(abi.comm_world, &raw mut world.ranks));
        world
    }

    /// Joins a job with all ranks of the world. Every rank returns alike, unless the MPI library
    /// fails.
    fn join(&self, agreement: &Agreement, kinds: u64) -> Result<Job, String> {
        let abi = self.abi;
        if self.ranks < 2 {
            return Err("there is one rank".into());
        }
        if !agreement.is_on {
            return Err("TRADEWIND_MPI is off".into());
        }
        if !agreement.on_one_node {
            return Err("the ranks are on several nodes".into());
        }
        let invitation = self.invite(kinds)?;
        let service = CStr::from_bytes_until_nul(&invitation.service).unwrap_or_default();
        if service.is_empty() {
            return Err("the node service could not be started".into());
        }
        let rank = self.rank.cast_unsigned();
        let ranks = self.ranks.cast_unsigned();
        let name = service.to_string_lossy();
        let job = Job::join(&name, rank, ranks, |admitted| self.all(admitted));
        if let Err(error) = &job {
            log::warn!("nothing runs on tradewind: {error}");
        }
        buffers::examine_predefined_types(abi);
        examine_empty_status(abi);
        take::set_kinds(invitation.kinds);
        let opened = communicators::open_private(abi, self.rank);
        let job = self.agreed(job.map_err(|error| error.to_string()))?;
        opened
            .and_then(|()| communicators::open(abi, job.world().clone()))
            .map_err(|outcome| format!("the MPI library reports error {outcome}"))?;
        relief::open(job.world().clone());
        Ok(job)
    }

    /// Returns the job if all ranks have one.
    fn agreed(&self, job: Result<Job, String>) -> Result<Job, String> {
        match (self.all(job.is_ok()), job) {
            (true, job) => job,
            (false, job) => {
                communicators::close_private(self.abi);
                Err(job.err().unwrap_or_else(|| "another rank could not join".into()))
            }
        }
    }

    /// Returns the findings of all ranks, agreed on in one call: each call costs about a millisecond of start-up where
    /// ranks share cores.
    fn agree(&self, settings: &Settings) -> Agreement {
        // Equal on all ranks if the minimum is the maximum, which is the complement of the minimum of
        // the complements.
        let [low, high] = node_number()
            .map_or([self.rank, 0], |number| [number as c_int, (number >> 32) as c_int]);
        let is_silent = c_int::from(!settings.reports);
        let own = [is_silent, c_int::from(settings.is_on), low, high, !low, !high];
        let Some([is_silent, is_on, low, high, not_low, not_high]) = self.minimum(own) else {
            return Agreement { reports: false, is_on: false, on_one_node: false };
        };
        let on_one_node = low == !not_low && high == !not_high;
        Agreement { reports: is_silent == 0, is_on: is_on == 1, on_one_node }
    }

    /// Returns the minimum over all ranks of each number, unless the MPI library fails.
    fn minimum<const N: usize>(&self, own: [c_int; N]) -> Option<[c_int; N]> {
        let mut least = [0; N];
        let from: Pointer = own.as_ptr().cast_mut().cast();
        let to: Pointer = least.as_mut_ptr().cast();
        let Abi { int, comm_world, .. } = *self.abi;
        let minimum = self.abi.operation(Op::Minimum);
        let outcome = call!(Allreduce(from, to, N as c_int, int, minimum, comm_world));
        (outcome == 0).then_some(least)
    }

    /// Returns whether a condition holds on all ranks.
    fn all(&self, condition: bool) -> bool {
        self.minimum([c_int::from(condition)]) == Some([1])
    }

    /// Starts the node service on rank 0, whose invitation all ranks receive.
    fn invite(&self, kinds: u64) -> Result<Invitation, String> {
        let mut invitation = Invitation { service: [0; 120], kinds: 0 };
        if self.rank == 0 {
            invitation.kinds = kinds;
            match Job::start_service(self.ranks.cast_unsigned(), own_command().as_deref()) {
                Ok(name) => {
                    let length = name.len().min(invitation.service.len() - 1);
                    invitation.service[..length].copy_from_slice(&name.as_bytes()[..length]);
                }
                Err(error) => log::warn!("nothing runs on tradewind: {error}"),
            }
        }
        // A sum with zeros. A broadcast would do, but with Open MPI 5 each later message between two
        // ranks took 60 ns longer after one: their mailboxes, rings that both fill from the start,
        // were then at different places.
        let mut received = Invitation { service: [0; 120], kinds: 0 };
        let from: Pointer = (&raw mut invitation).cast();
        let to: Pointer = (&raw mut received).cast();
        let words = (size_of::<Invitation>() / 4) as c_int;
        let int = self.abi.int;
        let sum = self.abi.operation(Op::Sum);
        match call!(Allreduce(from, to, words, int, sum, self.abi.comm_world)) {
            0 => Ok(received),
            outcome => Err(format!("the MPI library reports error {outcome}")),
        }
    }
}

/// The `tradewind` command that was installed with this library: in the same directory, or in the
/// `bin` beside its `lib`.
fn own_command() -> Option<PathBuf> {
    // SAFETY: an all-zero value is valid: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: *const libc::c_void = (own_command as fn() -> Option<PathBuf>) as *const _;
    // SAFETY: the address is one of this library, and `info` outlives the call.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's names are terminated and live as long as this library.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()));
    let directory = path.parent()?;
    [directory.join("tradewind"), directory.join("../bin/tradewind")]
        .into_iter()
        .find(|command| command.is_file())
}

/// Ends tradewind's part before the MPI library is finalized, and prints the report. Returns the
/// job, which is left afterwards, when no rank needs another one any more.
pub(crate) fn before_finalize() -> Option<Job> {
    let life = LIFE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let life = life?;
    let abi = abi()?;
    if life.reports {
        report::print(abi, life.rank, types_of_report(abi)?, &life.served);
    }
    let job = life.job?;
    relief::close();
    persistent::close(abi);
    requests::free_handles(abi);
    communicators::close(abi);
    Some(job)
}

/// The handles of a type of 64 bits and of MPI_SUM.
fn types_of_report(abi: &Abi) -> Option<(Handle, Handle)> {
    let (_, element) = abi.elements.iter().find(|(element, _)| *element == DataType::U64)?;
    Some((*element, abi.operation(Op::Sum)))
}
