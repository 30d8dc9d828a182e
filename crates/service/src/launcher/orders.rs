//! Orders of the launcher of a job on several nodes to the launchers of the nodes.
//!
//! They travel through the standard input of the remote command, one line of JSON each. The end of
//! the input, as at the death of the launcher or of the connection, ends the ranks.

use crate::error::{ServiceError, system};
use crate::events::{Events, NodeEvent};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An order.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Order {
    /// The ranks of the node; the first order.
    Setup(Setup),
    /// Hosts and ports of the key-value space; the second order.
    Store(String),
    /// A signal for the ranks.
    Signal(i32),
}

/// The ranks of a node.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Setup {
    /// Version of the launcher.
    pub(super) version: String,
    /// First rank of this node.
    pub(super) first: u32,
    /// Number of ranks of this node.
    pub(super) ranks: u32,
    /// Number of ranks of the job.
    pub(super) total: u32,
    /// Secret of the key-value space.
    pub(super) secret: String,
    /// True if this node has the key-value space.
    pub(super) serves: bool,
    pub(super) engine: String,
    /// A core for each rank, or no binding; by default a core if there are enough.
    pub(super) binds: Option<bool>,
    /// True if lines of output begin with the rank.
    pub(super) prefix: bool,
    pub(super) grace_seconds: f64,
    pub(super) directory: PathBuf,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// Reads the next order. `None` at the end of the input.
pub(super) fn read(input: &mut impl BufRead) -> Result<Option<Order>, ServiceError> {
    let failed = "read the orders of the launcher";
    let mut line = String::new();
    if input.read_line(&mut line).map_err(system(failed))? == 0 {
        return Ok(None);
    }
    let order = serde_json::from_str(&line).map_err(|error| ServiceError::System {
        action: "read an order of the launcher: use one version of tradewind on all nodes",
        source: error.into(),
    })?;
    Ok(Some(order))
}

/// The inputs of the launchers of all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Controls(Arc<Mutex<Vec<ChildStdin>>>);

impl Controls {
    pub(super) fn add(&self, input: ChildStdin) {
        self.lock().push(input);
    }

    /// Sends an order to all nodes.
    pub(super) fn send(&self, order: &Order) {
        self.lock().iter_mut().for_each(|input| write(input, order));
    }

    /// Sends each node its order.
    pub(super) fn send_each(&self, orders: impl Iterator<Item = Order>) {
        self.lock().iter_mut().zip(orders).for_each(|(input, order)| write(input, &order));
    }

    /// Ends the ranks of all nodes.
    pub(super) fn end(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ChildStdin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(input: &mut ChildStdin, order: &Order) {
    let Ok(mut line) = serde_json::to_vec(order) else { return };
    line.push(b'\n');
    // Fails if the remote command has ended, which its process handle reports.
    let _ = input.write_all(&line).and_then(|()| input.flush());
}

/// Orders that arrive while the ranks run.
#[derive(Debug)]
pub(super) struct Orders(UnixStream);

/// What the launcher of a node does by an order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pass(Signal),
    End,
}

impl Orders {
    /// Reads orders on a thread of its own.
    pub(super) fn receive(
        mut input: impl BufRead + Send + 'static,
        events: &Events,
    ) -> Result<Self, ServiceError> {
        let failed = "receive orders of the launcher";
        let (reading, mut writing) = UnixStream::pair().map_err(system(failed))?;
        reading.set_nonblocking(true).map_err(system(failed))?;
        events.add(&reading, NodeEvent::Order)?;
        let copy = move || {
            while let Ok(Some(order)) = read(&mut input) {
                if let Order::Signal(number) = order
                    && let Ok(number) = u8::try_from(number)
                    && writing.write_all(&[number]).is_err()
                {
                    return;
                }
            }
            // Both ends of the thread's life are the end of the orders.
        };
        std::thread::Builder::new()
            .name("orders of the launcher".into())
            .spawn(copy)
            .map_err(system(failed))?;
        Ok(Orders(reading))
    }

    /// Returns the actions since the last call.
    pub(super) fn pending(&mut self) -> Vec<Action> {
        let mut bytes = [0; 64];
        match self.0.read(&mut bytes) {
            Ok(0) => vec![Action::End],
            Ok(count) => {
                let signals = bytes[..count].iter();
                signals
                    .filter_map(|number| super::signals::passed((*number).into()))
                    .map(Action::Pass)
                    .collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// The descriptor that is readable when there are actions.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.0
    }
}
