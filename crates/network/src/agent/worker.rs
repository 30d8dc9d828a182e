//! The agent's thread: sleeps, and when something wakes it, does all there is to do.

use super::area::{Area, doorbell, system};
use super::core::Core;
use super::desk::Desk;
use crate::carrier::{Error, Exit, Outbox};
use crate::nodes::Nodes;
use crate::transport::Transport;
use interpreter::Limits;
use rustix::time::{ClockId, clock_gettime};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What the agent's owner tells it.
#[derive(Debug)]
enum Command {
    Open { rank: u32, area: Area, doorbell: OwnedFd },
    Depart { rank: u32, how: Exit },
    Stay { outbox: Box<dyn Outbox> },
}

/// The number of the owner's doorbell; ranks have theirs.
const OWNER: u64 = u64::MAX - 1;

/// An agent at work in a thread of its own.
///
/// It ends by itself when all ranks of its node are gone, their runs over and the other nodes
/// informed; if it is told to [stay](Self::stay), when the other nodes say the same.
#[derive(Debug)]
pub struct Agent {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
    refused: Arc<AtomicU64>,
    /// Set before the owner is told, which the thread still does.
    over: Arc<AtomicBool>,
}

impl Agent {
    /// Starts the agent of the transport's node. `ended` is called when the thread ends, however it
    /// does.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub fn start(
        nodes: Nodes,
        mut transport: Box<dyn Transport>,
        limits: Limits,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Agent, Error> {
        let bell = Arc::new(doorbell()?);
        transport.watch(bell.as_fd(), OWNER)?;
        let (commands, orders) = channel();
        let mut core = Core::new(nodes, transport, limits);
        // The thread's own, so that it is still heard when the owner has let go of this agent.
        let heard = Arc::clone(&bell);
        let refused = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&refused);
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        let body = move || {
            // Release: pairs with the Acquire in `has_ended`.
            let _ended = Finally(Some(move || {
                ending.store(true, Ordering::Release);
                ended();
            }));
            let _heard = heard;
            // What the system refuses an agent ends it, and so tells its ranks and the other nodes.
            let _ = work(&mut core, &orders, &counted);
            drop(core);
        };
        let thread = std::thread::Builder::new().name("tradewind-agent".into()).spawn(body);
        thread.map_err(|error| system("start the agent's thread", error))?;
        Ok(Agent { commands, bell, refused, over })
    }

    /// A rank of this node has come, with the agent's side of what it shares with it.
    pub fn open(&self, rank: u32, area: Area, doorbell: OwnedFd) {
        self.tell(Command::Open { rank, area, doorbell });
    }

    /// A rank of this node is gone.
    pub fn depart(&self, rank: u32, how: Exit) {
        self.tell(Command::Depart { rank, how });
    }

    /// Has it end only when the ranks of all nodes are gone: another engine of this node may have
    /// something that a rank somewhere needs. The last rank of this node leaves when the other
    /// nodes have acknowledged what is in that engine's outbox, too.
    pub fn stay(&self, outbox: Box<dyn Outbox>) {
        self.tell(Command::Stay { outbox });
    }

    /// Whether it has ended: so when the owner is told.
    pub fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release in `start`.
        self.over.load(Ordering::Acquire)
    }

    /// Connections and frames that were refused because they were not as they should be: strangers,
    /// damage.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn tell(&self, command: Command) {
        // An agent that has ended needs to know nothing.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

struct Finally<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|ended| ended());
    }
}

fn work(core: &mut Core, orders: &Receiver<Command>, refused: &AtomicU64) -> Result<(), Error> {
    let mut arrivals = Vec::new();
    loop {
        core.set_now(now());
        for order in orders.try_iter() {
            follow(core, order)?;
        }
        arrivals.drain(..).for_each(|arrival| core.arrive(arrival));
        (0..core.seats()).for_each(|seat| core.serve(seat));
        if core.is_postponing() {
            core.resume();
        }
        core.settle();
        core.transport().flush();
        core.publish();
        refused.store(core.refused(), Ordering::Relaxed);
        if core.is_over() {
            return Ok(());
        }
        let timeout = if core.doze() {
            let timer = core.next_timer().map(left);
            timer.into_iter().chain(core.until_look()).min()
        } else {
            Some(Duration::ZERO)
        };
        core.transport().wait(timeout, &mut arrivals)?;
        core.rise();
    }
}

fn follow(core: &mut Core, order: Command) -> Result<(), Error> {
    match order {
        Command::Open { rank, area, doorbell } => {
            let desk = Desk::new(rank, area, doorbell);
            if let Some(seat) = core.seat_of(rank) {
                core.transport().watch(desk.doorbell.as_fd(), seat as u64)?;
                core.open(desk);
            }
        }
        Command::Depart { rank, how } => {
            if let Some(seat) = core.seat_of(rank) {
                // What it submitted before is there to see.
                core.serve(seat);
                core.depart(seat, how);
            }
        }
        Command::Stay { outbox } => core.stay(outbox),
    }
    Ok(())
}

/// Nanoseconds of the machine's monotonic clock, which all processes of a node share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn left(time: u64) -> Duration {
    Duration::from_nanos(time.saturating_sub(now()))
}
