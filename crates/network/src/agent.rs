//! The agent engine: the node service runs the collectives between nodes, asleep until a rank or
//! the network wakes it.
//!
//! ```text
//!  rank                              node service                               other nodes
//!  AgentClient ── SharedRegion ────► RankSession ► AgentState ► Run ► Transport ──►
//!    ▲      ring, notifier                  │          ▲                  │
//!    └── slot: count, futex ◄───────────────┘          └──── frames ◄─────┘
//! ```
//!
//! A rank and its agent share a region of memory ([`shared_region`]). The rank submits schedules
//! and runs with their buffers there, and notifies the agent if it sleeps. A test for completion is
//! one load of a count in the region; a wait sleeps on it. The agent copies what it reads before it
//! uses it, so that no rank can harm it. Long buffers are the exception: a run uses them where they
//! lie, by system calls and copies that a change of the rank cannot harm (`runs::zero_copy`). An
//! [`Interpreter`](interpreter::Interpreter) executes each run. Its messages to other nodes go
//! through the [transport](crate::transport), those to ranks of the same node through a queue.
//!
//! # Unexpected messages
//! Messages for a run that the rank has not started are kept. Credits bound their payloads: beyond
//! them a sender uses the rendezvous protocol (`runs::credits`). Requests to send and contributions
//! to joins need no credit; they are bounded by number and bytes. More of them are dropped, and the
//! run fails.
//!
//! # Exits and failures
//! An agent carries through what its ranks have started, also after their processes have ended.
//! When a rank leaves or dies, its agent reports to all nodes how many runs of each communicator it
//! had started. Those runs can end; later ones end with
//! [`RankFailed`](crate::error::Error::RankFailed) on every node. When a node fails, all runs with
//! a member there end with [`NodeUnreachable`](crate::error::Error::NodeUnreachable). When all ranks of an agent
//! have exited it shuts down in order (`Shutdown`, answered by `ShutdownAck`), so that
//! the end of its connections is no failure.

mod client;
mod client_table;
mod idle;
pub mod messages;
mod session;
pub mod shared_region;
mod shutdown;
mod state;
mod submission;
mod submission_ring;
mod waiting_reports;

pub use client::{AgentAddress, AgentClient};
pub use interpreter::Limits;

use crate::backend::PendingTraffic;
use crate::error::{Error, RankExit, system};
use crate::node_map::NodeMap;
use crate::runs::clock::{now, until};
use crate::transport::Transport;
use idle::{IdleMode, IdleState};
use session::RankSession;
use shared_region::{SharedRegion, notifier};
use shm::mapped::Mapped;
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use state::AgentState;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Shortest message that is sent from the memory of its run.
const IN_PLACE: u64 = 16 << 10;

/// Returns the limits of an agent's interpreters. Credits bound the unexpected messages.
pub fn limits() -> Limits {
    Limits::new(goal::limits::EAGER_BETWEEN_NODES).with_in_place(IN_PLACE)
}

/// A command of the agent's owner.
#[derive(Debug)]
enum AgentCommand {
    WakeBy { rank: u32, word: Mapped<AtomicU32> },
    Open { rank: u32, region: SharedRegion, notifier: OwnedFd },
    Exit { rank: u32, how: RankExit },
    HoldUntilAllExit { pending: Box<dyn PendingTraffic> },
}

/// Number of the owner's notifier in the transport. Those of ranks have the numbers of the ranks.
const OWNER: u64 = u64::MAX - 1;

/// A running agent, in a thread of its own.
///
/// It ends when all ranks of its node have exited, their runs are over and the other nodes have
/// acknowledged that; after [`hold_until_all_exit`](Self::hold_until_all_exit), when the ranks of
/// all nodes have exited.
#[derive(Debug)]
pub struct Agent {
    commands: Sender<AgentCommand>,
    notifier: Arc<OwnedFd>,
    refused: Arc<AtomicU64>,
    /// Set before `ended` of [`start`](Self::start) is called.
    is_over: Arc<AtomicBool>,
}

impl Agent {
    /// Starts the agent of the transport's node. The thread calls `ended` when it ends, also after
    /// a panic.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(
        nodes: NodeMap,
        mut transport: Box<dyn Transport>,
        limits: Limits,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Agent, Error> {
        // The ranks' sleeping threads wait for stores of the agent, too.
        shm::fence::register();
        let notifier = Arc::new(notifier()?);
        transport.watch(notifier.as_fd(), OWNER)?;
        let (commands, received) = channel();
        let mut state = AgentState::new(nodes, transport, limits);
        let refused = Arc::new(AtomicU64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let body = {
            // The thread's own descriptor stays open after the owner has dropped this agent.
            let notifier = Arc::clone(&notifier);
            let refused = Arc::clone(&refused);
            let is_over = Arc::clone(&is_over);
            move || {
                let _ended = OnDrop(Some(move || {
                    // Release: pairs with the Acquire in `has_ended`.
                    is_over.store(true, Ordering::Release);
                    ended();
                }));
                let _notifier = notifier;
                // A refusal of the system ends the agent. Dropping the state reports that to its
                // ranks, and closing the connections to the other nodes.
                let _ = run(&mut state, &received, &refused);
                drop(state);
            }
        };
        let thread = std::thread::Builder::new().name("tradewind-agent".into()).spawn(body);
        thread.map_err(|error| system("start the agent's thread", error))?;
        Ok(Agent { commands, notifier, refused, is_over })
    }

    /// Sets the wake-up word of the threads of a rank that wait for [messages]. Processes change it
    /// as [`Wakeup::by_store`](shm::wakeup::Wakeup::by_store) prescribes. Precedes
    /// [`open`](Self::open); without it the rank polls.
    pub fn wake_by(&self, rank: u32, word: Mapped<AtomicU32>) {
        self.send(AgentCommand::WakeBy { rank, word });
    }

    /// Adds a rank of this node that has joined, with the agent's side of its region.
    pub fn open(&self, rank: u32, region: SharedRegion, notifier: OwnedFd) {
        self.send(AgentCommand::Open { rank, region, notifier });
    }

    /// Reports the exit of a rank of this node.
    pub fn exit(&self, rank: u32, how: RankExit) {
        self.send(AgentCommand::Exit { rank, how });
    }

    /// Keeps the agent until the ranks of all nodes have exited: another backend of this node may
    /// carry messages that a rank somewhere needs. The last rank of this node leaves when the other
    /// nodes have acknowledged what is pending in that backend, too.
    pub fn hold_until_all_exit(&self, pending: Box<dyn PendingTraffic>) {
        self.send(AgentCommand::HoldUntilAllExit { pending });
    }

    /// Returns true if the agent has ended.
    pub fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `start`.
        self.is_over.load(Ordering::Acquire)
    }

    /// Number of connections and frames that were refused: those of strangers, and damaged ones.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn send(&self, command: AgentCommand) {
        // An agent that has ended needs no commands.
        // The command precedes the notification, so an agent that this wakes finds it.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|action| action());
    }
}

/// The agent's loop: processes everything, then polls or sleeps until a rank, the owner, the
/// network or a timer wakes it.
fn run(
    state: &mut AgentState,
    commands: &Receiver<AgentCommand>,
    refused: &AtomicU64,
) -> Result<(), Error> {
    let mut arrivals = Vec::new();
    let mut idle = IdleState::default();
    loop {
        let time = now();
        for command in commands.try_iter() {
            execute(state, command)?;
        }
        let turn = state.turn(time, &mut arrivals);
        if turn.had_events {
            idle.record_event(time);
        }
        if turn.expects_more {
            idle.expect_more(time);
        }
        refused.store(state.refused(), Ordering::Relaxed);
        if state.is_over() {
            return Ok(());
        }
        let timeout = match idle.mode(time, state.all_ranks_wait()) {
            IdleMode::Poll => {
                state.poll(&mut arrivals)?;
                continue;
            }
            IdleMode::Yield => {
                std::thread::yield_now();
                state.poll(&mut arrivals)?;
                continue;
            }
            // A submission after `arm` notifies the agent, and one before it makes `arm` fail. Then
            // the agent only polls the transport and serves the ring.
            IdleMode::Sleep if state.arm() => {
                let timer = state.next_timer().map(until);
                timer.into_iter().chain(state.next_poll()).min()
            }
            IdleMode::Sleep => Some(Duration::ZERO),
        };
        state.wait(timeout, &mut arrivals)?;
        state.disarm();
    }
}

fn execute(state: &mut AgentState, command: AgentCommand) -> Result<(), Error> {
    match command {
        AgentCommand::WakeBy { rank, word } => state.set_wakeup(rank, word),
        AgentCommand::Open { rank, region, notifier } => {
            let session = RankSession::new(rank, region, notifier);
            if let Some(local) = state.local_rank_of(rank) {
                state.transport().watch(session.notifier.as_fd(), local as u64)?;
                state.open(session);
            }
        }
        AgentCommand::Exit { rank, how } => {
            if let Some(local) = state.local_rank_of(rank) {
                // The rank's submissions from before its exit count.
                state.serve(local);
                state.drain_messages(local);
                state.exit(local, how);
            }
        }
        AgentCommand::HoldUntilAllExit { pending } => state.hold_until_all_exit(pending),
    }
    Ok(())
}
