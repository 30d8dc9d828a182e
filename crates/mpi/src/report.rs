//! Counts of the calls that were taken over or left to the MPI library, the time that the program
//! spent in them, and the time that the MPI library has taken for such calls in a measurement.

use crate::abi::Abi;
use crate::failures::Survivors;
use crate::host::{Handle, Pointer, call};
use crate::kind::{Collective, Form, Kind};
use crate::reason::{REASON_NAMES, Reason};
use crate::table;
use std::cell::Cell;
use std::ffi::c_int;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Counts of a kind: calls that were taken; of a persistent collective, its starts.
const TAKEN: usize = 0;
/// Nanoseconds inside the start and the completion of calls that were taken.
const EXPOSED: usize = 1;
/// Calls that were taken and have a measured time of the MPI library.
const COMPARED: usize = 2;
/// Nanoseconds that the MPI library has taken for such calls in the measurement.
const LIBRARY: usize = 3;
/// Initializations of a persistent collective that was taken.
const INITIALIZED: usize = 4;
/// Calls that were left, by reason; of a persistent collective, its initializations.
const LEFT: usize = 5;

/// Number of counts of a kind.
const COUNTS_OF_KIND: usize = LEFT + REASON_NAMES.len();

/// Number of all counts.
const ALL_COUNTS: usize = Kind::COUNT * COUNTS_OF_KIND;

static COUNTS: [AtomicU64; ALL_COUNTS] = [const { AtomicU64::new(0) }; ALL_COUNTS];

fn count(kind: Kind, which: usize) -> &'static AtomicU64 {
    &COUNTS[kind.index() * COUNTS_OF_KIND + which]
}

/// True if there will be a report. Then each call is timed, by two reads of the clock, and the calls
/// that are left are counted, by a locked instruction each.
static TIMES: AtomicBool = AtomicBool::new(false);

pub(crate) fn measure_times() {
    TIMES.store(true, Ordering::Relaxed);
}

/// Counts a call that was taken. Callers hold the lock of the requests, so no count is lost, and a
/// locked instruction is spared.
pub(crate) fn taken(kind: Kind) {
    let taken = count(kind, TAKEN);
    taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Counts a blocking call that was taken, if there will be a report.
#[inline]
pub(crate) fn taken_blocking(kind: Kind) {
    if TIMES.load(Ordering::Relaxed) {
        count(kind, TAKEN).fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an initialization of a persistent collective that was taken, if there will be a report.
pub(crate) fn initialized(kind: Kind) {
    if TIMES.load(Ordering::Relaxed) {
        count(kind, INITIALIZED).fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a call that was left, if there will be a report; for a persistent collective, its
/// initialization.
#[inline]
pub(crate) fn left(kind: Kind, reason: Reason) {
    if TIMES.load(Ordering::Relaxed) {
        count(kind, LEFT + reason as usize).fetch_add(1, Ordering::Relaxed);
    }
}

/// The time inside a function that starts or completes collectives, if there will be a report.
pub(crate) struct Clock(Cell<Option<Instant>>);

impl Clock {
    /// To be called at the begin of the function.
    #[inline]
    pub(crate) fn start() -> Self {
        Clock(Cell::new(TIMES.load(Ordering::Relaxed).then(|| {
            LENGTH.set(None);
            Instant::now()
        })))
    }

    /// Adds the time to a collective. Where the function completes several, each part of the time is
    /// added once: the next one has the time from here on.
    #[inline]
    pub(crate) fn add_to(&self, kind: Kind) {
        if let Some(begun) = self.0.get() {
            let now = Instant::now();
            let time = now.duration_since(begun).as_nanos() as u64;
            count(kind, EXPOSED).fetch_add(time, Ordering::Relaxed);
            self.0.set(Some(now));
        }
    }
}

thread_local! {
    /// Length of the call that this thread starts, as the table counts it; `None` if no time of the
    /// MPI library is measured for it.
    static LENGTH: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Notes the length of the call that this thread starts, if there will be a report.
#[inline]
pub(crate) fn note_length(bytes: Option<usize>) {
    if TIMES.load(Ordering::Relaxed) {
        LENGTH.set(bytes.map(|bytes| bytes as u64));
    }
}

/// Adds the time of the MPI library for the call that this thread has started, on a communicator of
/// `ranks` ranks, if there will be a report and the time is known.
#[inline]
pub(crate) fn compare(kind: Kind, ranks: usize) {
    if TIMES.load(Ordering::Relaxed) {
        let bytes = if kind.collective == Collective::Barrier { Some(0) } else { LENGTH.take() };
        let time = bytes.and_then(|bytes| table::library_time(kind, ranks as u32, bytes));
        if let Some(time) = time {
            count(kind, COMPARED).fetch_add(1, Ordering::Relaxed);
            count(kind, LIBRARY).fetch_add(time, Ordering::Relaxed);
        }
    }
}

/// Prints the report of a job in which no rank counts calls.
pub(crate) fn print_alone(served: &str) {
    eprintln!("tradewind: {served}");
}

/// Sums the counts of all ranks that have not failed at the first of them, which prints them. `sum` is
/// the handle of MPI_SUM and `element` that of a type of 64 bits.
pub(crate) fn print(abi: &Abi, (element, sum): (Handle, Handle), served: &str) {
    let Some(survivors) = Survivors::of_job(abi) else { return };
    let communicator = survivors.0;
    let mut rank = 0;
    call!(Comm_rank(communicator, &raw mut rank));
    let mut own = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    let mut all = own;
    let from = own.as_mut_ptr();
    let to = all.as_mut_ptr();
    let count = own.len() as c_int;
    let to = to.cast::<u8>() as Pointer;
    let outcome = call!(Reduce(from.cast(), to, count, element, sum, 0, communicator));
    survivors.end(abi, outcome);
    if rank == 0 && outcome == 0 {
        // One write: lines of several processes stay whole.
        eprint!("{}", text(&all, served));
    }
}

fn text(all: &[u64], served: &str) -> String {
    let mut text = format!("tradewind: {served}\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "tradewind: {:<30}{:>10}{:>10}  {:>14}  {:>14}  left because of",
        "collective (all ranks)", "taken", "left", "exposed each", "library's"
    );
    let mut has_unknown = false;
    for (kind, values) in Kind::ALL.iter().zip(all.chunks_exact(COUNTS_OF_KIND)) {
        let [taken, exposed, compared, library, initialized, left @ ..] = values else { continue };
        let total: u64 = left.iter().sum();
        // Both columns count calls of the row's name, and a time is that of a start.
        let is_persistent = kind.form == Form::Persistent;
        let calls = if is_persistent { initialized } else { taken };
        if calls + total == 0 {
            continue;
        }
        let reasons = REASON_NAMES.iter().zip(left).filter(|(_, count)| **count > 0);
        let reasons = reasons.map(|(reason, count)| format!("{reason} {count}"));
        let has_starts = is_persistent && *taken > 0;
        let starts = has_starts.then(|| format!("({taken} starts)"));
        let reasons: Vec<String> = reasons.chain(starts).collect();
        let name = format!("MPI_{}", kind.name());
        let mean = |sum, count| mean(sum, count).unwrap_or_default();
        // A mean of some of the calls would be of other lengths than the time beside it.
        let is_known = compared == taken;
        has_unknown |= !is_known;
        let library = if is_known { mean(*library, *compared) } else { "not measured".to_owned() };
        let each = mean(*exposed, *taken);
        let reasons = reasons.join(", ");
        let line = format!(
            "tradewind: {name:<30}{calls:>10}{total:>10}  {each:>14}  {library:>14}  {reasons}"
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if has_unknown {
        text.push_str(
            "tradewind: the library's times are those of `tradewind tune --mpi` with this library \
             and number of ranks\n",
        );
    }
    text
}

/// The mean of times in nanoseconds, if there are any.
fn mean(sum: u64, count: u64) -> Option<String> {
    (count > 0).then(|| format!("{:.2} µs", sum as f64 / count as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a report about calls of one kind.
    fn lines(
        name: &str,
        (taken, compared, initialized): (u64, u64, u64),
        left: u64,
    ) -> Vec<String> {
        let mut all = [0; ALL_COUNTS];
        let kind = Kind::named(name).expect("it is one");
        let values = &mut all[COUNTS_OF_KIND * kind.index()..][..COUNTS_OF_KIND];
        let counts = [taken, taken * 1500, compared, compared * 2500, initialized];
        values[..LEFT].copy_from_slice(&counts);
        values[LEFT + Reason::Length as usize] = left;
        text(&all, "two ranks").lines().skip(2).map(str::to_owned).collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().skip(2).collect()
    }

    #[test]
    fn times_of_the_library_stand_where_all_calls_have_one() {
        let all = lines("Iallreduce", (4, 4, 0), 0);
        assert_eq!(words(&all[0]), ["4", "0", "1.50", "µs", "2.50", "µs"]);
        assert_eq!(all.len(), 1);
        let some = lines("Iallreduce", (4, 3, 0), 1);
        let expected = ["4", "1", "1.50", "µs", "not", "measured", "length", "1"];
        assert_eq!(words(&some[0]), expected);
        assert!(some[1].contains("`tradewind tune --mpi`"), "{}", some[1]);
        let left = lines("Iallreduce", (0, 0, 0), 2);
        assert_eq!(words(&left[0]), ["0", "2", "length", "2"]);
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn persistent_collectives_are_counted_by_their_initializations() {
        let all = lines("Allreduce_init", (40, 40, 4), 1);
        assert_eq!(
            words(&all[0]),
            ["4", "1", "1.50", "µs", "2.50", "µs", "length", "1,", "(40", "starts)"]
        );
        assert_eq!(all.len(), 1);
    }
}
