//! The check that all ranks of the job have this library.
//!
//! Some ranks may lack it: one program of several was started without `tradewind mpi`, a wrapper
//! removes LD_PRELOAD, a program is linked statically. They take part in no collective of this
//! library, and must receive no message of it, because a receive of the program may accept any
//! message. So each rank that has the library announces itself by MPI's own name service
//! (`MPI_Publish_name`), which needs no call of any other rank, and reaches all nodes of the job.
//! Until the check has succeeded, no collective is started. In a job on one node the ranks look for each
//! other by a local socket first (`node`), which is faster; all of them obey its decision. Only if that
//! finds some missing, or none at all, the name service decides.
//!
//! Announcements go up a binary tree of the ranks: a rank announces itself when both its children
//! have announced that theirs are complete, or after a limit. Rank 0 then publishes the decision. If
//! it is not complete, it first looks every rank up, after a time in which all that are there have
//! announced themselves. Without rank 0, the lowest rank that is there does this.
//!
//! All ranks obey one decision, also if some are so late that two ranks would decide differently: a
//! name that is published is not replaced (MPICH, Open MPI), and the rank that decides looks up
//! what has become of its decision. (Intel MPI replaces a name. There two decisions are possible if a
//! rank publishes one while another one, seconds late, is between its last look-up and its
//! publication.)
//!
//! A rank that can publish no name at all has no name service, and checks nothing. If only the
//! announcement of a rank fails, the others take it for one without the library, and it obeys their
//! decision. Where a look-up may end the job, the socket alone decides. Processes that the
//! program has spawned are not checked: all of them have the environment of one call.
//!
//! The names stay until MPI_Finalize. If ranks lack the library, a rank that ends before the last one
//! has decided leaves its names to the end of the launcher.

mod node;

use crate::abi::{Abi, STANDARD, library_version};
use crate::host::call;
use crate::tolerance::with_errors_returned;
use node::{Place, Presence};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time after which the name service is asked, in a job on one node.
const ON_NODE: Duration = Duration::from_millis(300);
/// Time after which a rank announces itself without its children.
const ANNOUNCED: Duration = Duration::from_millis(700);
/// Time after which rank 0 looks up which ranks are there.
const EXAMINED: Duration = Duration::from_millis(1500);
/// Time after which the lowest rank does so instead of rank 0.
const WITHOUT_FIRST: Duration = Duration::from_millis(2500);
/// Time after which a rank goes on without a decision of others.
const LIMIT: Duration = Duration::from_millis(4500);
/// Longest time for looking ranks up.
const EXAMINATION: Duration = Duration::from_secs(1);

/// Value of a rank with a complete part of the tree, and of the decision if all ranks are there.
const COMPLETE: &str = "complete";
/// Value of another rank.
const PARTIAL: &str = "partial";
/// Decision of a rank that knows no more than that there is none.
const UNKNOWN: &str = "unknown";
/// Name of the decision.
const DECISION: &str = "decision";

/// Bytes of a port name that all MPI libraries have.
const PORT_BYTES: usize = 256;
/// Most bytes of a list of ranks in a decision.
const MOST_LISTED: usize = 160;

/// Names that this process has published, with their values.
static PUBLISHED: Mutex<Vec<(CString, CString)>> = Mutex::new(Vec::new());

/// Attempts to publish a name, after which there is no name service.
const ATTEMPTS: u32 = 3;

/// Why the ranks are not known to have this library.
pub(crate) struct Left {
    /// The rank or setting that is the cause, and the way out.
    pub(crate) line: String,
    /// The same for the report.
    pub(crate) summary: &'static str,
}

impl Left {
    fn without_library(line: String) -> Option<Self> {
        Some(Left { line, summary: "some ranks were started without `tradewind mpi`" })
    }

    fn unknown(why: &str) -> Self {
        let summary = "it is not known whether all ranks were started with `tradewind mpi`";
        Left { line: format!("{summary}, so nothing runs on tradewind: {why}"), summary }
    }
}

/// Returns when all ranks of the world are known to have this library, or that some may lack it.
/// Every rank that calls this returns alike; one of them has the reason.
pub(crate) fn check(abi: &Abi, (rank, ranks): (u32, u32)) -> Result<(), Option<Left>> {
    if ranks < 2 || is_spawned(abi) {
        return Ok(());
    }
    let begin = Instant::now();
    let place = node::place(ranks);
    if aborts_without_a_name(abi) {
        return check_without_names(place, (rank, ranks));
    }
    if let Place::Node(name) = &place
        && let Presence::Complete = node::check(name, (rank, ranks), ON_NODE)
    {
        return Ok(());
    }
    let check = || Check { abi, job: job(), rank, ranks, begin }.run();
    with_errors_returned(abi, abi.comm_world, || with_errors_returned(abi, abi.comm_self, check))
}

/// The check without the name service: jobs on several nodes are not checked.
fn check_without_names(place: Place, (rank, ranks): (u32, u32)) -> Result<(), Option<Left>> {
    let presence = match place {
        Place::Node(name) => node::check(&name, (rank, ranks), LIMIT),
        Place::Nodes => Presence::Complete,
        // All that ranks with a name find is then that this one is missing.
        Place::Unknown(why) => Presence::Unknown(Some(why).filter(|_| rank == 0)),
    };
    match presence {
        Presence::Complete => Ok(()),
        Presence::Missing(which) => Err(Left::without_library(describe(ranks, &list(&which)))),
        Presence::Unknown(why) => Err(why.as_deref().map(Left::unknown)),
    }
}

/// Returns whether no rank looks for names any more, if the check has begun at this time.
pub(crate) fn is_over(begin: Instant) -> bool {
    begin.elapsed() > LIMIT + EXAMINATION
}

/// Takes the names of this process back.
pub(crate) fn close(abi: &Abi) {
    let published =
        std::mem::take(&mut *PUBLISHED.lock().unwrap_or_else(|error| error.into_inner()));
    let withdraw = || {
        for (name, value) in &published {
            call!(Unpublish_name(name.as_ptr(), abi.info_null, value.as_ptr()));
        }
    };
    if !published.is_empty() {
        with_errors_returned(abi, abi.comm_self, withdraw);
    }
}

/// Returns whether the look-up of a name that is not there ends the job, whatever the error handlers
/// are: so does Intel MPI 2021 in programs with the ABI of the MPI standard.
fn aborts_without_a_name(abi: &Abi) -> bool {
    abi.name == STANDARD && library_version().contains("Intel")
}

fn is_spawned(abi: &Abi) -> bool {
    abi.written(|at| call!(Comm_get_parent(at))).is_ok_and(|parent| parent != abi.comm_null)
}

/// The job's name where the launcher's name service may know several jobs.
fn job() -> String {
    let names = ["PMIX_NAMESPACE", "PMI_JOBID", "I_MPI_HYDRA_UUID"];
    let job = names.into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    job.replace(|letter: char| letter.is_whitespace() || letter == '=', "-")
}

struct Check<'a> {
    abi: &'a Abi,
    job: String,
    rank: u32,
    ranks: u32,
    begin: Instant,
}

impl Check<'_> {
    fn run(&self) -> Result<(), Option<Left>> {
        let has_children = 2 * self.rank + 1 < self.ranks;
        // Without a name service, no child is to be awaited.
        if has_children && !self.has_service() {
            return Ok(());
        }
        let children = [2 * self.rank + 1, 2 * self.rank + 2].map(|child| child.to_string());
        let mut children =
            children.iter().take(self.ranks.saturating_sub(2 * self.rank + 1) as usize);
        let is_complete = children
            .all(|child| self.awaited(child, ANNOUNCED).is_some_and(|value| value == COMPLETE));
        let own = if is_complete { COMPLETE } else { PARTIAL };
        if !self.publish(&self.rank.to_string(), own) {
            return self.obey_others();
        }
        let (decision, is_own) = match (self.rank, is_complete) {
            (0, true) => self.decide(COMPLETE),
            (0, false) => {
                std::thread::sleep(EXAMINED.saturating_sub(self.begin.elapsed()));
                self.decide(&self.examine())
            }
            _ => match self.awaited(DECISION, WITHOUT_FIRST) {
                Some(decision) => (decision, false),
                None => self.decide_without_first(),
            },
        };
        if decision == COMPLETE {
            return Ok(());
        }
        let line = is_own.then(|| describe(self.ranks, &decision));
        Err(line.and_then(Left::without_library))
    }

    /// Returns whether the launcher has a name service for this rank.
    fn has_service(&self) -> bool {
        let process = std::process::id();
        (0..ATTEMPTS).any(|attempt| {
            let name = format!("probe-{}-{process}-{attempt}", self.rank);
            self.publish(&name, PARTIAL)
        })
    }

    /// The outcome of a rank that could not announce itself: that of the others, if they decide.
    fn obey_others(&self) -> Result<(), Option<Left>> {
        match self.has_service().then(|| self.awaited(DECISION, LIMIT)).flatten() {
            Some(decision) if decision != COMPLETE => Err(None),
            _ => Ok(()),
        }
    }

    fn decide_without_first(&self) -> (String, bool) {
        // Where the time ends before a lower rank is found, there may be one.
        let has_lower = (0..self.rank).any(|lower| {
            self.begin.elapsed() > LIMIT || self.look_up(&lower.to_string()).is_some()
        });
        match has_lower.then(|| self.awaited(DECISION, LIMIT)) {
            None => self.decide(&self.examine()),
            Some(Some(decision)) => (decision, false),
            Some(None) => self.decide(UNKNOWN),
        }
    }

    /// Returns the decision that all ranks obey, and whether it is that of this rank.
    fn decide(&self, own: &str) -> (String, bool) {
        if let Some(decision) = self.look_up(DECISION) {
            return (decision, false);
        }
        let is_first = self.publish(DECISION, own);
        // No other rank knows a decision that cannot be found: all decide that some are missing.
        let decision = self.look_up(DECISION).unwrap_or_else(|| UNKNOWN.to_owned());
        let is_own = is_first && decision == own;
        (decision, is_own)
    }

    /// The decision: number and list of the ranks that have not announced themselves.
    fn examine(&self) -> String {
        let begin = Instant::now();
        let is_missing =
            |rank: &u32| *rank != self.rank && self.look_up(&rank.to_string()).is_none();
        let examined = (0..self.ranks).take_while(|_| begin.elapsed() < EXAMINATION);
        let mut is_whole = 0;
        let missing: Vec<u32> = examined.inspect(|_| is_whole += 1).filter(is_missing).collect();
        if is_whole < self.ranks {
            return UNKNOWN.to_owned();
        }
        if missing.is_empty() { COMPLETE.to_owned() } else { list(&missing) }
    }

    /// Looks a name up again and again until this time after the begin.
    fn awaited(&self, name: &str, limit: Duration) -> Option<String> {
        const LAST_PAUSE: Duration = Duration::from_millis(5);
        let mut pause = Duration::from_micros(100);
        loop {
            let is_late = self.begin.elapsed() >= limit;
            if let Some(value) = self.look_up(name) {
                return Some(value);
            }
            if is_late {
                return None;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LAST_PAUSE);
        }
    }

    fn name(&self, name: &str) -> CString {
        CString::new(format!("tradewind-{}-{name}", self.job)).unwrap_or_default()
    }

    fn look_up(&self, name: &str) -> Option<String> {
        let name = self.name(name);
        // Longer than the longest port name of any library.
        let mut value = [0 as c_char; 8 * PORT_BYTES];
        let outcome = call!(Lookup_name(name.as_ptr(), self.abi.info_null, value.as_mut_ptr()));
        // SAFETY: the library has written a terminated string, or nothing.
        let value = unsafe { CStr::from_ptr(value.as_ptr()) };
        (outcome == 0).then(|| value.to_string_lossy().into_owned())
    }

    /// Returns whether the name is published with this value by this rank.
    fn publish(&self, name: &str, value: &str) -> bool {
        let (name, value) = (self.name(name), CString::new(value).unwrap_or_default());
        let outcome: c_int = call!(Publish_name(name.as_ptr(), self.abi.info_null, value.as_ptr()));
        if outcome == 0 {
            let mut published = PUBLISHED.lock().unwrap_or_else(|error| error.into_inner());
            published.push((name, value));
        }
        outcome == 0
    }
}

/// The line about ranks without this library, which `decision` names.
fn describe(ranks: u32, decision: &str) -> String {
    let (who, which) = match decision.split_once(':') {
        Some(("1", rank)) => (format!("1 of {ranks} ranks was"), format!(": rank {rank}")),
        Some((count, list)) => (
            format!("{count} of {ranks} ranks were"),
            format!(": ranks {}", list.replace(',', ", ")),
        ),
        None => (format!("some of {ranks} ranks were"), String::new()),
    };
    format!(
        "{who} started without `tradewind mpi`{which}; nothing runs on tradewind: put \
         `tradewind mpi --` before each program of the job"
    )
}

/// Number and list of ranks, without spaces, which a name service may not allow: "5:1,4-7".
fn list(ranks: &[u32]) -> String {
    let mut text = format!("{}:", ranks.len());
    let mut is_first = true;
    for run in ranks.chunk_by(|one, next| one + 1 == *next) {
        let parts: Vec<String> = match run {
            [first, _, .., last] => vec![format!("{first}-{last}")],
            few => few.iter().map(ToString::to_string).collect(),
        };
        for part in parts {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{part}", if is_first { "" } else { "," });
            is_first = false;
        }
        if text.len() > MOST_LISTED {
            text.push_str(",...");
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short() {
        assert_eq!(list(&[2, 3]), "2:2,3");
        assert_eq!(list(&[0]), "1:0");
        assert_eq!(list(&[1, 4, 5, 6, 7]), "5:1,4-7");
        let all: Vec<u32> = (0..1000).map(|rank| 2 * rank).collect();
        assert!(list(&all).len() < PORT_BYTES && list(&all).ends_with(",..."), "{}", list(&all));
    }
}
