//! The processes that the launcher has started: starting, signalling and ending them.

use super::output::Copier;
use crate::error::{ServiceError, system};
use crate::events::{Event, Events};
use crate::server::Server;
use engine::Exit;
use engine::node::EngineKind;
use launch::environment::{CORE, ENGINE, JOB, RANK, SERVICE, SIZE};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use shm::process::ProcessHandle;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a rank that was asked to end (SIGTERM) may take before it is killed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the ranks run.
pub(super) struct Program<'a> {
    pub(super) path: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    pub(super) environment: &'a [(OsString, OsString)],
    /// The core of each rank; empty where they are not bound.
    pub(super) cores: &'a [usize],
}

impl Program<'_> {
    fn command(&self, rank: u32, ranks: u32, service: &str, engine: EngineKind) -> Command {
        let mut command = Command::new(self.path);
        command
            .args(self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(RANK, rank.to_string()).env(SIZE, ranks.to_string());
        command.env(SERVICE, service).env(ENGINE, engine.name());
        // Those of a job that this launcher itself may be a rank of.
        command.env_remove(JOB).env_remove(CORE);
        if let Some(core) = self.cores.get(rank as usize) {
            command.env(CORE, core.to_string());
        }
        // A process group each, so that what a rank starts can be ended with it. A group that is
        // not the terminal's may not read from the terminal, and would be stopped if it did.
        command.process_group(0);
        let reads = rank == 0 && !std::io::stdin().is_terminal();
        command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
        command
    }
}

/// How far the job's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// All is well.
    Running,
    /// A rank has failed; the others may see to their end.
    Failing,
    /// They have been asked to end.
    Asked,
    /// They have been killed.
    Killed,
}

/// One process.
#[derive(Debug)]
struct Rank {
    child: Child,
    handle: ProcessHandle,
    departure: Option<Exit>,
}

impl Rank {
    fn signal(&self, signal: Signal) {
        signal_group(&self.child, signal);
    }
}

fn signal_group(child: &Child, signal: Signal) {
    // The process is its group's leader and has not been waited for, so the group cannot be
    // somebody else's.
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // The group may be empty but for a zombie.
        let _ = kill_process_group(group, signal);
    }
}

/// Ends a child that cannot be watched, and so cannot be a rank.
fn end(child: &mut Child) {
    signal_group(child, Signal::KILL);
    // It has no result that anybody wants.
    let _ = child.wait();
}

/// All of them.
#[derive(Debug)]
pub(super) struct Children {
    ranks: Vec<Rank>,
    stage: Stage,
    stage_ends: Option<Instant>,
}

impl Children {
    /// Starts them all, or none.
    pub(super) fn start(
        program: &Program<'_>,
        server: &Server,
        engine: EngineKind,
        mut copier: Copier,
    ) -> Result<(Self, Copier), ServiceError> {
        let ranks = server.node().ranks();
        let mut children = Children { ranks: Vec::new(), stage: Stage::Running, stage_ends: None };
        for rank in 0..ranks {
            let mut command = program.command(rank, ranks, server.name(), engine);
            copier.prepare(&mut command);
            let spawned = command.spawn();
            let mut child = spawned.map_err(|source| ServiceError::Spawn {
                program: program.path.into(),
                rank,
                source,
            })?;
            copier.take(rank, &mut child);
            let handle = ProcessHandle::open(child.id()).inspect_err(|_| end(&mut child))?;
            children.ranks.push(Rank { handle, child, departure: None });
            server.events().add(&children.ranks[rank as usize].handle, Event::Child(rank))?;
        }
        copier.start()?;
        Ok((children, copier))
    }

    pub(super) fn any_lives(&self) -> bool {
        self.ranks.iter().any(|rank| rank.departure.is_none())
    }

    /// Ranks whose process lives.
    pub(super) fn living(&self) -> Vec<u32> {
        let ranks = self.ranks.iter().zip(0..);
        ranks.filter(|(rank, _)| rank.departure.is_none()).map(|(_, number)| number).collect()
    }

    /// How a process that this one has started ended, if it has.
    pub(super) fn departure_of(&self, pid: u32) -> Option<Exit> {
        let rank = self.ranks.iter().find(|rank| rank.handle.pid() == pid)?;
        rank.departure.or_else(|| departure(&rank.handle).ok().flatten())
    }

    /// Notes that a process has ended, and how; the first time only.
    pub(super) fn see_off(
        &mut self,
        rank: u32,
        events: &Events,
    ) -> Result<Option<(u32, Exit)>, ServiceError> {
        let Some(rank) = self.ranks.get_mut(rank as usize).filter(|rank| rank.departure.is_none())
        else {
            return Ok(None);
        };
        rank.departure = departure(&rank.handle)?;
        let Some(how) = rank.departure else { return Ok(None) };
        // Left in the set, the handle would be ready for ever.
        events.remove(&rank.handle);
        Ok(Some((rank.handle.pid(), how)))
    }

    pub(super) fn pass_on(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.departure.is_none()) {
            rank.signal(signal);
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// When the time given to the ranks is over.
    pub(super) fn stage_ends(&self) -> Option<Instant> {
        self.stage_ends
    }

    /// The ranks are to end within this time, unless they are to do so already.
    pub(super) fn fail_within(&mut self, grace: Duration) {
        let end = Instant::now().checked_add(grace);
        if self.stage == Stage::Running || self.stage == Stage::Failing && end < self.stage_ends {
            self.stage = Stage::Failing;
            self.stage_ends = end;
        }
    }

    /// Asks the ranks to end, or kills them if they were asked.
    pub(super) fn end_next(&mut self) {
        if self.stage == Stage::Failing {
            self.stage = Stage::Asked;
            self.stage_ends = Instant::now().checked_add(LAST_WORDS);
            self.signal_groups(Signal::TERM);
            // A stopped process hears nothing.
            self.signal_groups(Signal::CONT);
        } else {
            self.stage = Stage::Killed;
            self.stage_ends = None;
            self.signal_groups(Signal::KILL);
        }
    }

    /// Every group, that of a rank that has ended too: what it started may still run.
    fn signal_groups(&self, signal: Signal) {
        self.ranks.iter().for_each(|rank| rank.signal(signal));
    }
}

impl Drop for Children {
    /// Nothing of a job that failed is left behind. What a rank of a successful one leaves running
    /// in its group it may have left on purpose.
    fn drop(&mut self) {
        if self.stage != Stage::Running || self.any_lives() {
            self.signal_groups(Signal::KILL);
        }
        for rank in &mut self.ranks {
            // Only here are they waited for: until now each kept the number of its process group
            // for us.
            let _ = rank.child.wait();
        }
    }
}

/// How a child has ended, if it has. It stays a zombie.
fn departure(handle: &ProcessHandle) -> Result<Option<Exit>, ServiceError> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::PidFd(handle.as_fd()), options)
        .map_err(system("ask how a rank has ended"))?;
    Ok(status.and_then(|status| {
        let exited = status.exit_status().map(Exit::Exited);
        exited.or_else(|| status.terminating_signal().map(Exit::Killed))
    }))
}
