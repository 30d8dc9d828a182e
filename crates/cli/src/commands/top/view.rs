//! The view of `tradewind top`: the difference of two moments, and the state at the second.

use super::moment::{CoreTime, JobMoment, Moment, ProcessMoment};
use engine::node::observed::{ObservedCollective, ObservedJob, ObservedRank};
use serde::Serialize;
use shm::process::ProcessState;
use shm::published_wait::{ObservedWait, Wait};
use shm::segment::Offset;
use std::collections::BTreeMap;
use std::time::Duration;

/// The node.
#[derive(Debug, Serialize)]
pub(super) struct View {
    /// Time in seconds over which rates and loads are measured.
    pub(super) seconds: f64,
    pub(super) cores: Vec<Core>,
    pub(super) jobs: Vec<Job>,
    pub(super) names: Vec<Name>,
}

/// A core.
#[derive(Debug, Serialize)]
pub(super) struct Core {
    pub(super) core: u32,
    /// Part of the time in which it ran anything, in percent.
    pub(super) busy_percent: f64,
    /// Processes of ranks that run on it, or ran there last.
    pub(super) processes: Vec<u32>,
}

/// A job.
#[derive(Debug, Serialize)]
pub(super) struct Job {
    /// Process of the node service.
    pub(super) service: u32,
    /// Program of the first rank that runs.
    pub(super) program: String,
    pub(super) engine: &'static str,
    /// Number of cores that the ranks share.
    pub(super) cores: u32,
    pub(super) ranks: Vec<Rank>,
    pub(super) collectives: Vec<Collective>,
    pub(super) queues: Vec<Queue>,
}

/// A rank.
#[derive(Debug, Serialize)]
pub(super) struct Rank {
    /// The rank in the job.
    pub(super) rank: u32,
    pub(super) process: u32,
    pub(super) core: Option<u32>,
    /// CPU time of all its threads, in percent of one core.
    pub(super) cpu_percent: Option<f64>,
    pub(super) state: State,
    /// For each thread that waits: what for.
    pub(super) waits: Vec<Waiting>,
    /// The way in which it left.
    pub(super) exit: Option<String>,
}

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It has not joined.
    Absent,
    /// Its main thread runs, or polls.
    Computing,
    /// A thread waits for another rank.
    Waiting,
    /// Its main thread sleeps, and not in a wait for another rank.
    Sleeping,
    /// It is stopped by a signal or a debugger.
    Stopped,
    /// It has left, or its process has ended.
    Ended,
}

/// A wait of a thread.
#[derive(Debug, Serialize)]
pub(super) struct Waiting {
    pub(super) seconds: f64,
    pub(super) subject: String,
}

/// A collective under way.
#[derive(Debug, Serialize)]
pub(super) struct Collective {
    /// As in "allreduce #17 of 8 bytes".
    pub(super) call: String,
    /// "all ranks", or which others: communicators are numbered by their location.
    pub(super) communicator: String,
    pub(super) started: Vec<u32>,
    pub(super) missing: Vec<u32>,
}

/// A queue.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    /// Rank that has created it.
    pub(super) rank: u32,
    pub(super) queue: String,
    pub(super) kind: &'static str,
    pub(super) capacity: u64,
    pub(super) waiting: Option<u64>,
    /// Messages received a second; `None` for a queue that is new.
    pub(super) received_per_second: Option<f64>,
}

/// A published name.
#[derive(Debug, Serialize)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) process: u32,
    pub(super) connections: u32,
    pub(super) fullest_percent: u32,
}

impl View {
    /// Returns the view of the second moment, with what has happened since the first.
    pub(super) fn between(before: &Moment, after: &Moment) -> View {
        let span = after.at.saturating_duration_since(before.at);
        let jobs = after.jobs.iter().map(|job| {
            let same = before.jobs.iter().find(|earlier| earlier.name == job.name);
            Job::between(same, job, span)
        });
        let jobs: Vec<Job> = jobs.collect();
        let mut processes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for rank in jobs.iter().flat_map(|job| &job.ranks) {
            if let Some(core) = rank.core {
                processes.entry(core).or_default().push(rank.process);
            }
        }
        let core = |(core, now): (&u32, &CoreTime)| Core {
            core: *core,
            busy_percent: before.cores.get(core).map_or(0.0, |then| busy_percent(*then, *now)),
            processes: processes.remove(core).unwrap_or_default(),
        };
        let cores = after.cores.iter().map(core).collect();
        let names = after.names.iter().map(|entry| Name {
            name: entry.name.clone(),
            process: entry.pid,
            connections: entry.connections,
            fullest_percent: entry.fullest,
        });
        View { seconds: span.as_secs_f64(), cores, jobs, names: names.collect() }
    }
}

fn busy_percent(before: CoreTime, after: CoreTime) -> f64 {
    // The times of a core that was switched off and on begin anew.
    let busy = after.busy.saturating_sub(before.busy);
    let all = after.all.saturating_sub(before.all).max(1);
    100.0 * busy.min(all) as f64 / all as f64
}

/// Returns how often something happened a second.
fn per_second(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64().max(f64::EPSILON)
}

impl Job {
    fn between(before: Option<&JobMoment>, after: &JobMoment, span: Duration) -> Job {
        let JobMoment { service, engine, cores, job, processes, queues, .. } = after;
        let names = RankNames::of(job);
        let ranks = (0..).zip(&job.ranks).zip(processes).map(|((number, rank), process)| {
            let earlier = before.and_then(|before| before.processes.get(number as usize)?.as_ref());
            Rank::between(&names, number, rank, (earlier, process.as_ref()), job, span)
        });
        let program = processes.iter().flatten().map(|process| process.program.clone()).next();
        let communicators: Vec<Offset> =
            job.collectives.iter().map(|collective| collective.communicator).collect();
        let queue = |queue: &service::observer::QueueOfJob| {
            let is_same = |other: &&service::observer::QueueOfJob| {
                (other.at, other.queue.kind) == (queue.at, queue.queue.kind)
            };
            let earlier = before.and_then(|before| before.queues.iter().find(is_same));
            // A queue that was created anew at the same place has received less.
            let received = earlier
                .and_then(|earlier| queue.queue.received.checked_sub(earlier.queue.received));
            Queue {
                rank: names.of_node(queue.rank),
                queue: format!("{:#x}", queue.at.0),
                kind: queue.queue.kind,
                capacity: queue.queue.capacity,
                waiting: queue.queue.waiting,
                received_per_second: received.map(|count| per_second(count, span)),
            }
        };
        Job {
            service: *service,
            program: program.unwrap_or_default(),
            engine: engine.name(),
            cores: *cores,
            ranks: ranks.collect(),
            collectives: job
                .collectives
                .iter()
                .map(|collective| Collective::of(collective, &names, &communicators))
                .collect(),
            queues: queues.iter().map(queue).collect(),
        }
    }
}

/// Numbers of the ranks in the job, by their number on the node.
struct RankNames(Vec<u32>);

impl RankNames {
    fn of(job: &ObservedJob) -> RankNames {
        RankNames(
            (0..).zip(&job.ranks).map(|(number, rank)| rank.job_rank.unwrap_or(number)).collect(),
        )
    }

    fn of_node(&self, rank: u32) -> u32 {
        self.0.get(rank as usize).copied().unwrap_or(rank)
    }

    fn of_list(&self, ranks: &[u32]) -> Vec<u32> {
        ranks.iter().map(|rank| self.of_node(*rank)).collect()
    }
}

impl Rank {
    fn between(
        names: &RankNames,
        number: u32,
        rank: &ObservedRank,
        (before, after): (Option<&ProcessMoment>, Option<&ProcessMoment>),
        job: &ObservedJob,
        span: Duration,
    ) -> Rank {
        let cpu_percent = before.zip(after).map(|(before, after)| {
            let used = after.cpu_time.saturating_sub(before.cpu_time);
            100.0 * used.as_secs_f64() / span.as_secs_f64().max(f64::EPSILON)
        });
        let state = match after.map(|process| process.state) {
            _ if rank.exit.is_some() => State::Ended,
            None if rank.has_joined => State::Ended,
            None => State::Absent,
            Some(ProcessState::Zombie | ProcessState::Gone) => State::Ended,
            Some(ProcessState::Stopped) => State::Stopped,
            Some(_) if !rank.waits.is_empty() => State::Waiting,
            Some(ProcessState::Running) => State::Computing,
            Some(ProcessState::Sleeping) => State::Sleeping,
        };
        // A killed process leaves its waits behind.
        let waits: &[ObservedWait] = if state == State::Ended { &[] } else { &rank.waits };
        let waiting = |wait: &ObservedWait| Waiting {
            seconds: wait.duration.as_secs_f64(),
            subject: subject(wait.wait, job, names),
        };
        Rank {
            rank: names.of_node(number),
            process: rank.process,
            core: after.map(|process| process.core),
            cpu_percent,
            state,
            waits: waits.iter().map(waiting).collect(),
            exit: rank.exit.as_ref().map(ToString::to_string),
        }
    }
}

/// Describes what a thread waits for.
fn subject(wait: Wait, job: &ObservedJob, names: &RankNames) -> String {
    let from = |rank: Option<u32>| match rank {
        Some(rank) => format!("rank {}", names.of_node(rank)),
        None => "any rank".to_owned(),
    };
    match wait {
        Wait::Collective { state, sequence, .. } => {
            let found = job.collectives.iter().find(|collective| {
                (collective.communicator, collective.sequence) == (state, sequence)
            });
            // It has ended since the wait was observed.
            let Some(found) = found else { return format!("collective #{sequence}") };
            let missing = match &found.missing[..] {
                [] => "which all ranks have started".to_owned(),
                missing => format!("without {}", list("rank", &names.of_list(missing))),
            };
            format!("{}, {missing}", call(found))
        }
        Wait::BetweenNodes => "a collective between nodes".to_owned(),
        Wait::Receive { source, tag: Some(tag) } => {
            format!("a message from {} with tag {tag}", from(source))
        }
        Wait::Receive { source, tag: None } => format!("a message from {}", from(source)),
        Wait::Send { to: Some(to) } => {
            format!("the receive of its message by rank {}", names.of_node(to))
        }
        Wait::Send { to: None } => "the receives of its messages".to_owned(),
        Wait::QueueMessage { queue } => format!("a message in queue {:#x}", queue.0),
        Wait::QueueSpace { queue } => format!("space in queue {:#x}", queue.0),
        Wait::Peer => "another process".to_owned(),
    }
}

fn call(collective: &ObservedCollective) -> String {
    match collective.call {
        Some(call) => call.describe(collective.sequence, call.bytes > 0),
        None => format!("collective #{}", collective.sequence),
    }
}

impl Collective {
    fn of(
        collective: &ObservedCollective,
        names: &RankNames,
        communicators: &[Offset],
    ) -> Collective {
        let ranks = collective.started.len() + collective.missing.len();
        let communicator = if collective.is_world {
            "all ranks".to_owned()
        } else {
            let is_this = |at: &Offset| *at == collective.communicator;
            let number = communicators.iter().position(is_this).unwrap_or(0);
            format!("{ranks} ranks ({number})")
        };
        Collective {
            call: call(collective),
            communicator,
            started: names.of_list(&collective.started),
            missing: names.of_list(&collective.missing),
        }
    }
}

/// Lists numbers, with ranges: "ranks 0-3, 7".
pub(super) fn list(what: &str, numbers: &[u32]) -> String {
    /// Ranges beyond are left out.
    const MOST: usize = 6;
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let ranges: Vec<&[u32]> =
        sorted.chunk_by(|first, next| first.checked_add(1) == Some(*next)).collect();
    let shown = ranges.iter().take(MOST).filter_map(|range| match range {
        [one] => Some(one.to_string()),
        [first, second] => Some(format!("{first}, {second}")),
        [first, .., last] => Some(format!("{first}-{last}")),
        [] => None,
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if ranges.len() > MOST {
        text.push_str(", …");
    }
    let plural = if sorted.len() == 1 { "" } else { "s" };
    if sorted.is_empty() { format!("no {what}") } else { format!("{what}{plural} {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges() {
        assert_eq!(list("rank", &[]), "no rank");
        assert_eq!(list("rank", &[3]), "rank 3");
        assert_eq!(list("rank", &[4, 3]), "ranks 3, 4");
        assert_eq!(list("rank", &[9, 0, 1, 2, 3, 7]), "ranks 0-3, 7, 9");
        let odd: Vec<u32> = (0..10).map(|number| 2 * number).collect();
        assert_eq!(list("rank", &odd), "ranks 0, 2, 4, 6, 8, 10, …");
        assert_eq!(list("rank", &[u32::MAX, u32::MAX - 1, 0]), "ranks 0, 4294967294, 4294967295");
    }

    #[test]
    fn load_is_a_part_of_the_time() {
        let time = |busy, all| CoreTime { busy, all };
        assert!((busy_percent(time(10, 100), time(35, 150)) - 50.0).abs() < 1e-9);
        assert!(busy_percent(time(10, 100), time(10, 100)).abs() < 1e-9, "no tick has passed");
        assert!(busy_percent(time(10, 100), time(0, 5)).abs() < 1e-9, "the core was off");
    }
}
