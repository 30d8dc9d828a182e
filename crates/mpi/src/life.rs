//! The beginning and the end of the MPI library.

use crate::abi::{Abi, abi, library_name, library_version};
use crate::communicators;
use crate::failures;
use crate::host::{Handle, Pointer, call};
use crate::private::completed;
use crate::reason::Reason;
use crate::request_array::examine_empty_status;
use crate::selection;
use crate::settings::Settings;
use crate::table::{Parts, Takeover};
use crate::thread_checkers::thread_checker;
use crate::tolerance::{is_on, with_errors_returned};
use crate::{
    buffers, incomplete, persistent, presence, private, relief, report, requests, tolerance,
};
use launch::environment::{Environment, Lookup};
use std::ffi::{CStr, OsStr, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tradewind::{DataType, Job, Op, interop};

/// State between initialization and finalization.
enum Life {
    /// The communicator of this library's own calls is there.
    Open {
        /// Present if the world is served.
        job: Option<Job>,
        /// Description for the report.
        served: String,
        reports: bool,
    },
    /// Nothing of this library is collective.
    Unopened {
        /// The report, on a rank that knows the reason.
        served: Option<String>,
        /// Time before the ranks looked for each other.
        begin: Instant,
    },
}

static LIFE: Mutex<Option<Life>> = Mutex::new(None);

/// The job, when tradewind's part has ended.
static ENDED: Mutex<Option<Job>> = Mutex::new(None);

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
    // The job needs both. In a process with threads, as most MPI libraries start, each of them waits
    // for all processors, for ten milliseconds and more.
    shm::fence::register();
    shm::descriptor::reserve();
}

/// Initializes the MPI library by this function, and then sets tradewind up. Collective over the world.
pub(crate) fn initialize(library: impl FnOnce() -> c_int) -> c_int {
    before_initialization();
    let outcome = library();
    if outcome == 0 {
        enter(Settings::read);
    }
    outcome
}

/// Sets tradewind up with these settings. Collective over the world.
pub(crate) fn enter(settings: impl FnOnce() -> Settings) {
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
    // Read when warnings are printed.
    let settings = settings();
    tolerance::examine();
    let begin = Instant::now();
    let opened = World::open(abi, settings.is_on);
    let (world, agreement) = match opened.and_then(|world| world.agree(&settings)) {
        Ok(agreed) => agreed,
        Err(why) => {
            let served = why.filter(|_| settings.reports).map(left_because);
            return keep(abi, Life::Unopened { served, begin });
        }
    };
    let reports = agreement.reports;
    if reports {
        report::measure_times();
        selection::count_left();
    }
    let job = world.join(&agreement, &settings);
    let joined = if failures::agree_on_own(job.is_ok()) {
        job
    } else {
        job.and(Err("a rank has failed meanwhile".to_owned()))
    };
    let (job, served) = match joined.and_then(|job| world.serve(&agreement, job)) {
        Ok(job) => {
            let nodes = match job.world().nodes() {
                1 => "one node".to_owned(),
                nodes => format!("{nodes} nodes"),
            };
            let served =
                format!("collectives of {} ranks of {nodes}, {} ABI", world.ranks, abi.name);
            (Some(job), served)
        }
        Err(why) => (None, left_because(why)),
    };
    keep(abi, Life::Open { job, served, reports });
}

/// The line of the report where nothing is served.
fn left_because(why: String) -> String {
    format!("all collectives are left to the MPI library: {why}")
}

/// Keeps the state until MPI_Finalize ends it.
fn keep(abi: &Abi, life: Life) {
    *LIFE.lock().unwrap_or_else(PoisonError::into_inner) = Some(life);
    if let Err(outcome) = end_in_finalize(abi) {
        log::warn!("MPI_Finalize does not end tradewind's part: error {outcome}");
    }
}

/// Lets MPI_Finalize call [`end`], by the delete function of an attribute of MPI_COMM_SELF. MPI
/// deletes those first of all, in the reverse order in which they were set. The program can set
/// none before this one, so all functions of the program have run by then, and may complete
/// collectives.
fn end_in_finalize(abi: &Abi) -> Result<(), c_int> {
    unsafe extern "C" fn delete(_: Handle, _: c_int, _: Pointer, _: Pointer) -> c_int {
        end();
        0
    }
    let mut keyval = communicators::create_keyval(delete)?;
    let outcome = call!(Comm_set_attr(abi.comm_self, keyval, std::ptr::null_mut()));
    call!(Comm_free_keyval(&raw mut keyval));
    private::check(outcome)
}

/// The ranks of `MPI_COMM_WORLD`, on a communicator of this library's own.
struct World {
    abi: &'static Abi,
    communicator: Handle,
    /// False if this rank could not create the communicator, which then is MPI_COMM_WORLD.
    is_open: bool,
    rank: c_int,
    ranks: c_int,
}

/// Settings of all ranks.
struct Agreement {
    /// Any rank asks for the report, which is collective.
    reports: bool,
    /// Why a rank has switched the library off.
    off: Option<(&'static str, Reason)>,
    /// The calls that the user has chosen, as rank 0 has them.
    chosen: Option<u128>,
}

/// The data that a rank has received when it has joined.
struct Received {
    job: Job,
    /// The table of rank 0, as a message.
    table: Vec<u8>,
}

/// Stands for a rank that runs under a tool that checks threads, in the agreement: the others leave
/// all calls as well.
const UNDER_CHECKER: c_int = -1;
/// Bytes of a rank in an exchange. Longer messages take a second one.
const BLOCK: usize = 1024;
/// Bytes of the length in front of a message.
const LENGTH: usize = 4;

impl World {
    /// Collective over the ranks of the world that have this library. Fails if some ranks lack it:
    /// nothing of this library is collective then. One rank knows the reason.
    fn open(abi: &'static Abi, warns: bool) -> Result<Self, Option<String>> {
        let (mut rank, mut ranks) = (0, 0);
        call!(Comm_rank(abi.comm_world, &raw mut rank));
        call!(Comm_size(abi.comm_world, &raw mut ranks));
        if let Err(left) = presence::check(abi, (rank.cast_unsigned(), ranks.cast_unsigned())) {
            if let Some(left) = left.as_ref().filter(|_| warns) {
                log::warn!("{}", left.line);
            }
            return Err(left.map(|left| left.summary.to_owned()));
        }
        let opened = private::open_private(abi, rank);
        if let Err(outcome) = opened {
            log::warn!("nothing runs on tradewind: the MPI library reports error {outcome}");
        }
        let is_open = opened.is_ok();
        if !is_open && is_on() {
            // A failed process; the others learn of it.
            return Err(None);
        }
        let communicator = if is_open { private::private().0 } else { abi.comm_world };
        Ok(World { abi, communicator, is_open, rank, ranks })
    }

    /// Joins a job with all ranks of the world. Every rank returns alike, unless the MPI library
    /// fails.
    fn join(&self, agreement: &Agreement, settings: &Settings) -> Result<Received, String> {
        if self.ranks < 2 {
            selection::leave_others(Reason::OneRank);
            return Err("there is one rank".into());
        }
        if let Some((why, reason)) = agreement.off {
            selection::leave_others(reason);
            return Err(why.into());
        }
        let rank = self.rank.cast_unsigned();
        let ranks = self.ranks.cast_unsigned();
        let command = own_command();
        // The first exchange carries the table of rank 0 as well.
        let parts = Parts { sizes: settings.chosen.is_none(), times: agreement.reports };
        let mut table = Some(self.own_table(parts));
        let mut received = None;
        let job = interop::join(rank, ranks, command.as_deref(), |own| match table.take() {
            Some(table) => {
                let (words, table) = self.exchange_with(own, &table)?;
                received = Some(table);
                Some(words)
            }
            None => self.exchange(own),
        });
        let job = job.map_err(|error| {
            // All ranks have failed alike: one line says it.
            if rank == 0 {
                log::warn!("nothing runs on tradewind: {error}");
            }
            "the ranks could not join a job".to_owned()
        })?;
        Ok(Received { job, table: received.unwrap_or_default() })
    }

    /// Serves the world, as a rank of the job.
    fn serve(&self, agreement: &Agreement, received: Received) -> Result<Job, String> {
        let abi = self.abi;
        let Received { job, table } = received;
        buffers::examine_predefined_types(abi);
        examine_empty_status(abi);
        // The table is of jobs on one node: with others, the ranks of a node are fewer.
        let table = if job.world().nodes() == 1 { table.as_slice() } else { &[] };
        let chosen = agreement.chosen.unwrap_or_default();
        let takeover = Takeover::from_message(table).with_forced(chosen);
        selection::set(takeover, agreement.chosen.is_some());
        communicators::open(abi, job.world().clone())?;
        relief::open(job.world().clone());
        requests::set_world(Some(job.world().clone()));
        requests::set_oversubscribed(!interop::has_cores_for_all(job.world()));
        Ok(job)
    }

    /// The rule or table that decides about the calls of the job, as a message. That of rank 0 counts.
    fn own_table(&self, parts: Parts) -> Vec<u8> {
        if self.rank != 0 {
            return Vec::new();
        }
        let library = library_name();
        let job = (&library[..], self.ranks.cast_unsigned());
        let by_rule = Takeover::of_rule(job, parts);
        let path = Environment.mpi_table_file().filter(|path| path.is_file());
        let Some(path) = path.filter(|_| parts.sizes || parts.times) else {
            return by_rule.to_message();
        };
        match by_rule.with_table(&path, job, parts) {
            Ok(takeover) => takeover.to_message(),
            Err(error) => {
                let what = match parts.sizes {
                    true => "the built-in rule decides which calls run on tradewind",
                    false => "the report has no times of the MPI library",
                };
                log::warn!("{what}: {error}");
                Takeover::of_rule(job, parts).to_message()
            }
        }
    }

    /// Returns the settings of all ranks, agreed on in one call: each call costs about a
    /// millisecond of start-up where ranks share cores. Fails if a rank has no communicator, or the
    /// MPI library fails.
    fn agree(self, settings: &Settings) -> Result<(Self, Agreement), Option<String>> {
        // Of rank 0: the line is about all ranks.
        let why = |text: &str| (self.rank == 0).then(|| text.to_owned());
        let is_silent = c_int::from(!settings.reports);
        // Of rank 0: whether the user has chosen, and the set in thirds. They are no negative numbers,
        // and below those of the others.
        let of_first = |number: u128| if self.rank == 0 { number as c_int } else { c_int::MAX };
        let kinds = settings.chosen.unwrap_or_default();
        let third = |number: u32| of_first(kinds >> (22 * number) & 0x3f_ffff);
        let is_chosen = of_first(u128::from(settings.chosen.is_some()));
        let checker = settings.is_on.then(thread_checker).flatten();
        let is_on = if checker.is_some() { UNDER_CHECKER } else { c_int::from(settings.is_on) };
        let is_open = c_int::from(self.is_open);
        let own = [is_open, is_silent, is_on, is_chosen, third(0), third(1), third(2)];
        let Some([is_open, is_silent, is_on, is_chosen, thirds @ ..]) = self.minimum(own) else {
            return Err(why("the ranks could not exchange their settings"));
        };
        if is_open == 0 {
            return Err(why("a rank could not duplicate MPI_COMM_WORLD"));
        }
        let kinds = (0..).zip(thirds).map(|(number, third)| (third as u128) << (22 * number));
        let chosen = (is_chosen == 1).then(|| kinds.sum());
        let off = match is_on {
            UNDER_CHECKER => Some(("a tool checks the threads of a rank", Reason::Job)),
            0 => Some(("TRADEWIND_MPI is off", Reason::Off)),
            _ => None,
        };
        if self.rank == 0 {
            // The others have the same values, as a rule.
            settings.unknown.iter().for_each(|line| log::warn!("{line}"));
        }
        if is_on == UNDER_CHECKER && self.rank == 0 {
            let name = checker.unwrap_or("a tool that checks threads");
            log::warn!(
                "{name} does not know the synchronization between processes, so nothing runs \
                 on tradewind: run the program without that tool"
            );
        }
        Ok((self, Agreement { reports: is_silent == 0, off, chosen }))
    }

    /// Returns the minimum over all ranks of each number, unless the MPI library fails.
    fn minimum<const N: usize>(&self, own: [c_int; N]) -> Option<[c_int; N]> {
        let mut least = [0; N];
        let from: Pointer = own.as_ptr().cast_mut().cast();
        let to: Pointer = least.as_mut_ptr().cast();
        let minimum = self.abi.operation(Op::Minimum);
        let int = self.abi.int;
        // Where the MPI library goes on after failures, one may end a call on some ranks only, and
        // only the communicator of this library's own may then be revoked.
        let communicator = if is_on() { self.communicator } else { self.abi.comm_world };
        let outcome = with_errors_returned(self.abi, communicator, || {
            completed(self.abi, |request| {
                call!(Iallreduce(from, to, N as c_int, int, minimum, communicator, request))
            })
        });
        succeeded(outcome).then_some(least)
    }

    /// As [`exchange`](Self::exchange), with a second message behind the first, of which that of
    /// rank 0 is returned.
    fn exchange_with(&self, own: &[u8], second: &[u8]) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
        let length = u32::try_from(second.len()).ok()?.to_le_bytes();
        let mut received = self.exchange(&[own, second, &length].concat())?;
        let mut seconds = received.iter_mut().map(|message| {
            let length = u32::from_le_bytes(*message.last_chunk::<LENGTH>()?) as usize;
            message.truncate(message.len() - LENGTH);
            Some(message.split_off(message.len().checked_sub(length)?))
        });
        let seconds = seconds.by_ref().collect::<Option<Vec<_>>>()?;
        Some((received, seconds.into_iter().next()?))
    }

    /// Sends bytes to all ranks and returns those of every rank.
    fn exchange(&self, own: &[u8]) -> Option<Vec<Vec<u8>>> {
        let length = u32::try_from(own.len()).ok()?.to_le_bytes();
        let message = [&length, own].concat();
        let first = self.allgather(&message, BLOCK)?;
        let length = |block: &[u8]| {
            let length = block.first_chunk::<LENGTH>().copied().unwrap_or_default();
            u32::from_le_bytes(length) as usize
        };
        let longest = first.chunks(BLOCK).map(length).max()?;
        let (all, block) = match LENGTH + longest {
            ..=BLOCK => (first, BLOCK),
            longer => (self.allgather(&message, longer)?, longer),
        };
        all.chunks(block)
            .map(|block| Some(block.get(LENGTH..LENGTH + length(block))?.to_vec()))
            .collect()
    }

    /// Gathers the first `block` bytes of the messages of all ranks, filled up with zeros.
    fn allgather(&self, own: &[u8], block: usize) -> Option<Vec<u8>> {
        let mut own = own.to_vec();
        own.resize(block, 0);
        let mut all = vec![0u8; block * usize::try_from(self.ranks).ok()?];
        let count = c_int::try_from(block).ok()?;
        let from: Pointer = own.as_mut_ptr().cast();
        let to: Pointer = all.as_mut_ptr().cast();
        let byte = self.abi.byte;
        let communicator = self.communicator;
        let outcome = completed(self.abi, |request| {
            call!(Iallgather(from, count, byte, to, count, byte, communicator, request))
        });
        succeeded(outcome).then_some(all)
    }
}

/// Returns whether a collective of all ranks has succeeded. A failure ends it on the others, too.
fn succeeded(outcome: c_int) -> bool {
    if outcome != 0 {
        failures::give_up_own();
    }
    outcome == 0
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

/// `MPI_Finalize`.
pub(crate) fn finalize() -> c_int {
    let outcome = call!(Finalize());
    // Left only now, when no rank needs another one any more.
    drop(ENDED.lock().unwrap_or_else(PoisonError::into_inner).take());
    outcome
}

/// Ends tradewind's part, and prints the report. Collective over the world.
fn end() {
    let life = LIFE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (Some(life), Some(abi)) = (life, abi()) else { return };
    match life {
        Life::Open { job, served, reports } => {
            if let Some(types) = types_of_report(abi).filter(|_| reports) {
                report::print(abi, types, &served);
            }
            presence::close(abi);
            end_service(abi, job);
            private::close_private(abi);
        }
        Life::Unopened { served, begin } => {
            if let Some(served) = served {
                report::print_alone(&served);
            }
            if presence::is_over(begin) {
                presence::close(abi);
            }
        }
    }
}

/// Ends the service of the communicators of the job, if they are served.
fn end_service(abi: &Abi, job: Option<Job>) {
    let Some(job) = job else { return };
    relief::close();
    requests::set_world(None);
    persistent::close(abi);
    requests::free_handles(abi);
    incomplete::close(abi);
    communicators::close(abi);
    *ENDED.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
}

/// The handles of a type of 64 bits and of MPI_SUM.
fn types_of_report(abi: &Abi) -> Option<(Handle, Handle)> {
    let (_, element) = abi.elements.iter().find(|(element, _)| *element == DataType::U64)?;
    Some((*element, abi.operation(Op::Sum)))
}
