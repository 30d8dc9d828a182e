//! Orders of the launcher of a job on several nodes to the launchers of the nodes.
//!
//! They are written to the standard input of the remote command, one line of JSON each. The end of
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
use std::sync::mpsc::{Sender, channel};
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

/// The inputs of the launchers of all nodes. Each has a thread that writes to it: a remote command
/// that does not read, as while ssh connects, delays neither the other nodes nor this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Controls(Arc<Mutex<Vec<Sender<Vec<u8>>>>>);

impl Controls {
    pub(super) fn add(&self, mut input: ChildStdin) -> Result<(), ServiceError> {
        let (lines, received) = channel::<Vec<u8>>();
        let write = move || {
            for line in received {
                // Fails if the remote command has ended, which its process handle reports.
                if input.write_all(&line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("orders to a node".into())
            .spawn(write)
            .map_err(system("start a thread"))?;
        self.lock().push(lines);
        Ok(())
    }

    /// Sends an order to all nodes.
    pub(super) fn send(&self, order: &Order) {
        self.lock().iter().for_each(|lines| send(lines, order));
    }

    /// Sends each node its order.
    pub(super) fn send_each(&self, orders: impl Iterator<Item = Order>) {
        self.lock().iter().zip(orders).for_each(|(lines, order)| send(lines, &order));
    }

    /// Ends the ranks of all nodes, after the orders so far.
    pub(super) fn end(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sender<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(lines: &Sender<Vec<u8>>, order: &Order) {
    let Ok(mut line) = serde_json::to_vec(order) else { return };
    line.push(b'\n');
    // Fails if the thread has ended with its node.
    let _ = lines.send(line);
}

/// Orders that arrive while the ranks run.
#[derive(Debug)]
pub(super) struct Orders(UnixStream);

/// Action of a node's launcher on an order.
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
        // Further signals leave the stream readable, so the next wait returns at once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn started(command: &mut Command, controls: &Controls) -> Child {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("every system has it");
        controls.add(child.stdin.take().expect("piped")).expect("a thread");
        child
    }

    #[test]
    fn a_node_that_does_not_read_delays_no_other() {
        let controls = Controls::default();
        let mut silent = started(Command::new("sleep").arg("1000"), &controls);
        let reader = started(&mut Command::new("cat"), &controls);
        // More than a pipe takes.
        let store = "x".repeat(1 << 20);
        controls.send(&Order::Store(store.clone()));
        controls.end();
        let output = reader.wait_with_output().expect("a child").stdout;
        let order = read(&mut output.as_slice()).expect("an order");
        assert!(matches!(order, Some(Order::Store(text)) if text == store));
        silent.kill().expect("it is ours");
        silent.wait().expect("a child");
    }
}
