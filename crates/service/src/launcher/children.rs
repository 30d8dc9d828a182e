//! The child processes of the launcher: start, signals and end.

use super::orders::{Controls, Order};
use super::output::Copier;
use crate::error::{ServiceError, system};
use crate::events::{Events, NodeEvent};
use engine::Exit;
use launch::environment::{CORE, JOB, RANK, SERVICE, SIZE, STORE};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use shm::process::{ProcessHandle, kill_with_this_thread};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL for a rank.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Time for the launchers of nodes to end their ranks, which takes [`TERM_GRACE`].
const NODE_GRACE: Duration = Duration::from_secs(5);

/// Program of the ranks.
pub(super) struct RankProgram<'a> {
    pub(super) path: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    pub(super) environment: &'a [(OsString, OsString)],
    /// Variables that lead to the job, the same for all ranks.
    pub(super) job: &'a [(&'static str, OsString)],
    /// The core of each rank; empty without binding.
    pub(super) cores: &'a [usize],
    /// First rank of this node.
    pub(super) first: u32,
    /// Number of ranks of the job.
    pub(super) total: u32,
    /// True if rank 0 reads the standard input of this process.
    pub(super) passes_input: bool,
}

impl RankProgram<'_> {
    /// Returns the command of a rank of this node. The rank ends with the thread that starts it.
    pub(super) fn command(&self, local_rank: u32) -> Command {
        let mut command = Command::new(self.path);
        command
            .args(self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Variables of a job of which this launcher itself may be a rank.
        for name in [JOB, CORE, SERVICE, STORE] {
            command.env_remove(name);
        }
        let rank = self.first + local_rank;
        command.env(RANK, rank.to_string()).env(SIZE, self.total.to_string());
        command.envs(self.job.iter().map(|(name, value)| (name, value)));
        if let Some(core) = self.cores.get(local_rank as usize) {
            command.env(CORE, core.to_string());
        }
        // A process group each, so that the descendants of a rank can be ended with it. A
        // background group that reads from the terminal would be stopped, so no rank gets the
        // terminal.
        command.process_group(0);
        // Where this process is killed, nothing else ends ranks that make no call.
        kill_with_this_thread(&mut command);
        let reads = rank == 0 && self.passes_input && !std::io::stdin().is_terminal();
        command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
        command
    }
}

/// Stage of the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No rank has failed.
    Running,
    /// A rank has failed. The others have time to end by themselves.
    Failing,
    /// The ranks have been sent SIGTERM.
    Terminating,
    /// The ranks have been killed.
    Killed,
}

/// One process.
#[derive(Debug)]
struct Rank {
    child: Child,
    handle: ProcessHandle,
    exit: Option<Exit>,
}

impl Rank {
    fn signal(&self, signal: Signal) {
        signal_group(&self.child, signal);
    }
}

fn signal_group(child: &Child, signal: Signal) {
    // The process is the leader of its group and has not been waited for, so its number cannot have
    // become that of another group.
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // Fails if only a zombie is left of the group.
        let _ = kill_process_group(group, signal);
    }
}

/// Kills a child that cannot be watched and therefore cannot be a rank.
fn end(child: &mut Child) {
    signal_group(child, Signal::KILL);
    // Only removes the zombie; the status has no use.
    let _ = child.wait();
}

/// The children of a job.
#[derive(Debug)]
pub(super) struct Children {
    ranks: Vec<Rank>,
    stage: Stage,
    stage_ends: Option<Instant>,
    /// Present if the children are launchers of nodes.
    controls: Option<Controls>,
}

impl Children {
    /// Starts all commands, or none. `first` is the number of the first child. The calling thread
    /// must live as long as the children.
    pub(super) fn start(
        commands: impl Iterator<Item = Command>,
        first: u32,
        events: &Events,
        mut copier: Copier,
        controls: Option<Controls>,
    ) -> Result<(Self, Copier), ServiceError> {
        let ranks = Vec::new();
        let stage = Stage::Running;
        let mut children = Children { ranks, stage, stage_ends: None, controls };
        for (local, mut command) in (0..).zip(commands) {
            let rank = first + local;
            copier.prepare(&mut command);
            let spawned = command.spawn();
            let mut child = spawned.map_err(|source| ServiceError::Spawn {
                program: command.get_program().into(),
                rank,
                source,
            })?;
            copier.take(rank, &mut child);
            if let (Some(controls), Some(input)) = (&children.controls, child.stdin.take()) {
                controls.add(input).inspect_err(|_| end(&mut child))?;
            }
            let handle = ProcessHandle::open(child.id()).inspect_err(|_| end(&mut child))?;
            events.add(&handle, NodeEvent::Child(local))?;
            children.ranks.push(Rank { handle, child, exit: None });
        }
        copier.start()?;
        Ok((children, copier))
    }

    pub(super) fn any_lives(&self) -> bool {
        self.ranks.iter().any(|rank| rank.exit.is_none())
    }

    /// Returns the ranks with a living process.
    pub(super) fn living(&self) -> Vec<u32> {
        let ranks = self.ranks.iter().zip(0..);
        ranks.filter(|(rank, _)| rank.exit.is_none()).map(|(_, number)| number).collect()
    }

    /// Returns the exit of a child, if it has ended.
    pub(super) fn exit_of(&self, pid: u32) -> Option<Exit> {
        let rank = self.ranks.iter().find(|rank| rank.handle.pid() == pid)?;
        rank.exit.or_else(|| child_exit(&rank.handle).ok().flatten())
    }

    /// Records the exit of a child. Returns its process number and exit, the first time only.
    pub(super) fn on_exit(
        &mut self,
        rank: u32,
        events: &Events,
    ) -> Result<Option<(u32, Exit)>, ServiceError> {
        let Some(rank) = self.ranks.get_mut(rank as usize).filter(|rank| rank.exit.is_none())
        else {
            return Ok(None);
        };
        rank.exit = child_exit(&rank.handle)?;
        let Some(how) = rank.exit else { return Ok(None) };
        // The handle of an ended process is ready for ever: in the set it would end every sleep.
        events.remove(&rank.handle);
        Ok(Some((rank.handle.pid(), how)))
    }

    pub(super) fn pass_on(&self, signal: Signal) {
        if let Some(controls) = &self.controls {
            return controls.send(&Order::Signal(signal.as_raw()));
        }
        for rank in self.ranks.iter().filter(|rank| rank.exit.is_none()) {
            rank.signal(signal);
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the end of the current stage.
    pub(super) fn stage_ends(&self) -> Option<Instant> {
        self.stage_ends
    }

    /// Sets the time within which the ranks have to end, unless an earlier end is set.
    pub(super) fn fail_within(&mut self, grace: Duration) {
        let end = Instant::now().checked_add(grace);
        if self.stage == Stage::Running || self.stage == Stage::Failing && end < self.stage_ends {
            self.stage = Stage::Failing;
            self.stage_ends = end;
        }
    }

    /// Sends SIGTERM to the ranks, or kills them if it was sent before.
    pub(super) fn end_next(&mut self) {
        if self.stage == Stage::Failing {
            self.stage = Stage::Terminating;
            if let Some(controls) = &self.controls {
                self.stage_ends = Instant::now().checked_add(NODE_GRACE);
                return controls.end();
            }
            self.stage_ends = Instant::now().checked_add(TERM_GRACE);
            self.signal_groups(Signal::TERM);
            // A stopped process handles no signal before it continues.
            self.signal_groups(Signal::CONT);
        } else {
            self.stage = Stage::Killed;
            self.stage_ends = None;
            self.signal_groups(Signal::KILL);
        }
    }

    /// Signals every group, also those of ended ranks: processes that they started may still run.
    fn signal_groups(&self, signal: Signal) {
        self.ranks.iter().for_each(|rank| rank.signal(signal));
    }
}

impl Drop for Children {
    /// Kills all processes of a failed job. Processes that a rank of a successful job leaves in its
    /// group may be intended to run on.
    fn drop(&mut self) {
        if self.stage != Stage::Running || self.any_lives() {
            self.signal_groups(Signal::KILL);
        }
        for rank in &mut self.ranks {
            // The wait frees the number of the process group. Until here no other group could get
            // it, so every signal went to the right processes.
            let _ = rank.child.wait();
        }
    }
}

/// Returns the exit of a child, if it has ended. It stays a zombie.
fn child_exit(handle: &ProcessHandle) -> Result<Option<Exit>, ServiceError> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::PidFd(handle.as_fd()), options)
        .map_err(system("read the exit status of a rank"))?;
    Ok(status.and_then(|status| {
        let exited = status.exit_status().map(Exit::Exited);
        exited.or_else(|| status.terminating_signal().map(Exit::Killed))
    }))
}
