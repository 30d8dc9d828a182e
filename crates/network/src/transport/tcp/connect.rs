//! Connects a node with others: with those that it needs from the start, and later with any other
//! one.
//!
//! At the start each node connects to those with lower numbers and accepts the others. Later each
//! of the two may need the other one first, or both at once. Then the connection of the node with
//! the higher number stands: it refuses the other one before it has answered it, so nothing has
//! been sent there.
//!
//! Any process can connect, so the other end of an accepted connection is a stranger until the
//! handshake has proven that it has the job's key. A stranger delays the connection with the node
//! that it claims to be, and does not prevent it.

mod listener;
mod strangers;
#[cfg(test)]
mod tests;
mod times;

pub use listener::Listener;

use super::connection::{Reading, configure};
use super::handshake::Versions;
use super::pending::{HandshakeStage, HandshakeStep, PendingConnection};
use crate::error::{Error, refused};
use crate::job_nodes::Key;
use crate::transport::poller::Poller;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use shm::inherited::above_standard;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Largest number of accepted connections in their handshake, besides those of all other
/// nodes. One that was not answered is closed for the next.
pub const MAX_PENDING: usize = 128;
/// Time before the next attempt if the network has no route, or the system no descriptor.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time within which a node that was answered proves itself, unless packets are lost: many times a
/// round trip. Afterwards the other end counts as a stranger.
const PROOF_TIME: Duration = Duration::from_secs(1);

/// The connections of a node that are being made.
#[derive(Debug)]
pub(super) struct Connector {
    listener: Listener,
    node: u32,
    pub(super) addresses: Vec<SocketAddr>,
    key: Key,
    pending: Vec<PendingConnection>,
    /// By node: true once it is connected, or is to be connected no more.
    is_settled: Vec<bool>,
    /// Connections that are proven and that the owner has not taken.
    made: Vec<(u32, OwnedFd)>,
    /// Nodes with which this one is to connect, by the time since when.
    wanted: BTreeMap<u32, Instant>,
    /// Nodes to connect to once more, with the time of the attempt.
    retries: Vec<(Instant, u32)>,
    /// The last node that closed a connection: it had too many pending ones, or another program
    /// has its address.
    closed: Option<u32>,
    /// Version of the last connection from another version of the protocol.
    other_version: Option<u16>,
    /// No connection is accepted until this time, because no descriptor is left.
    is_full_until: Option<Instant>,
    pub(super) refused: u64,
    /// Time for a connection.
    limit: Duration,
    /// False once all nodes that are needed at the start are connected.
    is_starting: bool,
}

/// The number of a connector's sockets in the poller of its owner.
pub(super) const CONNECTING: u64 = u32::MAX as u64;

/// Outcome of connections.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) connected: Vec<(u32, OwnedFd)>,
    /// Nodes that cannot be reached, with the reason.
    pub(super) failed: Vec<(u32, String)>,
}

/// Connects with these nodes. They, or this one, are connecting at about the same time.
pub(super) fn connect(
    listener: Listener,
    node: u32,
    addresses: &[SocketAddr],
    key: Key,
    limit: Duration,
    others: impl Iterator<Item = u32>,
) -> Result<Connector, Error> {
    let now = Instant::now();
    let mut connector = Connector {
        listener,
        node,
        addresses: addresses.to_vec(),
        key,
        pending: Vec::new(),
        is_settled: vec![false; addresses.len()],
        made: Vec::new(),
        wanted: others.map(|other| (other, now)).collect(),
        retries: Vec::new(),
        closed: None,
        other_version: None,
        is_full_until: None,
        refused: 0,
        limit,
        is_starting: true,
    };
    let deadline = now + limit;
    // One side of each pair connects, so no pair has two connections.
    let lower: Vec<u32> = connector.wanted.keys().copied().filter(|to| *to < node).collect();
    lower.into_iter().try_for_each(|to| connector.begin(to))?;
    while let Some(missing) = connector.wanted.keys().next().copied() {
        if Instant::now() >= deadline {
            return Err(connector.unreachable(missing, connector.late(missing)));
        }
        connector.sleep(deadline)?;
        connector.accept();
        connector.advance()?;
        connector.retry()?;
    }
    connector.is_starting = false;
    Ok(connector)
}

impl Connector {
    /// Takes the connections that have been made.
    pub(super) fn take_made(&mut self) -> Vec<(u32, OwnedFd)> {
        std::mem::take(&mut self.made)
    }

    /// Watches the listener, from now on at the [number](CONNECTING) of connections to be made.
    pub(super) fn watch(&mut self, poller: &Poller, limit: Duration) -> Result<(), Error> {
        self.limit = limit;
        // Edge-triggered: a connection that cannot be accepted must not wake the agent for ever.
        poller.add(&self.listener.socket, CONNECTING, EventFlags::IN | EventFlags::ET)?;
        self.watch_pending(poller)
    }

    /// Returns true if a node is another one, and has not been connected.
    pub(super) fn may_connect(&self, node: u32) -> bool {
        node != self.node && !self.is_settled[node as usize]
    }

    /// Connects with a node that [may be connected](Self::may_connect).
    pub(super) fn want(&mut self, node: u32) {
        self.wanted.entry(node).or_insert_with(Instant::now);
    }

    /// Connects with a node no more.
    pub(super) fn abandon(&mut self, node: u32) {
        self.is_settled[node as usize] = true;
        self.forget(node);
    }

    /// Returns true if a node may consider a connection open that is in its handshake here: it has
    /// an answer, and its proof has not arrived. A stranger may claim to be the node.
    pub(super) fn has_answered(&self, node: u32) -> bool {
        self.pending.iter().any(|connection| connection.stage.origin() == Some(node))
    }

    fn forget(&mut self, node: u32) {
        self.wanted.remove(&node);
        self.retries.retain(|(_, to)| *to != node);
        self.pending.retain(|connection| connection.stage.target() != Some(node));
    }

    /// Makes all progress that is possible without waiting.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn progress(&mut self, poller: &Poller) -> Result<Made, Error> {
        let mut failed = Vec::new();
        self.accept();
        let advanced = self.advance().and_then(|()| self.retry());
        let begun = advanced.and_then(|()| self.begin_wanted());
        match begun {
            Ok(()) => {}
            // The others make progress in the next call, which the owner makes at once.
            Err(Error::NodeUnreachable { node, why, .. }) => failed.push((node, why)),
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        // Behind `advance`, which has read every proof that has arrived.
        self.expire(now);
        let late: Vec<u32> = self.late_nodes(now).collect();
        failed.extend(late.into_iter().map(|node| (node, self.late(node))));
        failed.iter().for_each(|(node, _)| self.abandon(*node));
        self.watch_pending(poller)?;
        Ok(Made { connected: self.take_made(), failed })
    }

    /// Begins to connect to the nodes that are wanted, where nothing is under way.
    fn begin_wanted(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.keys().copied();
        let now = Instant::now();
        let new: Vec<u32> = wanted.filter(|node| !self.is_under_way(*node, now)).collect();
        new.into_iter().try_for_each(|node| self.begin(node))
    }

    /// Makes the attempts that are due.
    fn retry(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        while let Some(due) = self.retries.iter().position(|(at, _)| *at <= now) {
            let (_, to) = self.retries.swap_remove(due);
            if !self.wanted.contains_key(&to) || self.accepted_since(to).is_some() {
                continue;
            }
            if self.may_prove(to, now) {
                // The attempt remains: the other end may be a stranger.
                self.retries.push((now + RETRY_INTERVAL, to));
            } else {
                self.begin(to)?;
            }
        }
        Ok(())
    }

    /// Watches the connections in their handshake for what they wait for.
    fn watch_pending(&mut self, poller: &Poller) -> Result<(), Error> {
        for connection in &mut self.pending {
            let interest = connection.interest();
            let flags = if interest == PollFlags::OUT { EventFlags::OUT } else { EventFlags::IN };
            match connection.watched.replace(interest) {
                None => poller.add(&connection.socket, CONNECTING, flags)?,
                Some(watched) if watched != interest => {
                    poller.change(&connection.socket, CONNECTING, flags)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn unreachable(&self, node: u32, why: String) -> Error {
        Error::NodeUnreachable { node, address: self.addresses[node as usize].to_string(), why }
    }

    /// Begins to connect to a node.
    fn begin(&mut self, to: u32) -> Result<(), Error> {
        let address = self.addresses[to as usize];
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Many connections are made while the program runs, which may have closed standard input.
        let new = socket_with(family, SocketType::STREAM, flags, None).and_then(above_standard);
        let socket = match new {
            Ok(socket) => socket,
            // Pending connections of strangers may have taken them.
            Err(Errno::MFILE | Errno::NFILE) if self.has_unproven() => {
                let pause = if self.drop_unproven() { Duration::ZERO } else { RETRY_INTERVAL };
                self.retries.push((Instant::now() + pause, to));
                return Ok(());
            }
            Err(error) if self.is_starting => {
                return Err(refused("make a socket for another node")(error));
            }
            Err(error) => {
                let error = std::io::Error::from(error);
                let why = format!("there is no socket for it ({error}); raise `ulimit -n`");
                return Err(self.unreachable(to, why));
            }
        };
        if !self.is_starting {
            configure(&socket, self.limit, Reading::Always)?;
        }
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.pending.push(PendingConnection::connecting(socket, to));
                Ok(())
            }
            Err(error) => self.failed(to, error),
        }
    }

    fn failed(&mut self, to: u32, error: Errno) -> Result<(), Error> {
        match error {
            // A node publishes its address only once it listens, so it has ended.
            Errno::CONNREFUSED if self.is_starting => {
                Err(self
                    .unreachable(to, "nothing listens there: its node service has ended".into()))
            }
            // Later it may have ended in order, which the other nodes report soon.
            Errno::CONNREFUSED
            | Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::TIMEDOUT
            | Errno::AGAIN
            | Errno::CONNRESET => {
                self.retries.push((Instant::now() + RETRY_INTERVAL, to));
                Ok(())
            }
            error => Err(self.unreachable(to, std::io::Error::from(error).to_string())),
        }
    }

    /// Sleeps until a connection makes progress, a new one arrives, or it is time for an attempt.
    fn sleep(&self, deadline: Instant) -> Result<(), Error> {
        let times = self.retries.iter().map(|(at, _)| *at).chain(self.is_full_until);
        let end = times.chain([deadline]).min().unwrap_or(deadline);
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        // A connection that cannot be accepted would make the listener readable at once.
        let events = if self.is_full_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = vec![PollFd::new(&self.listener.socket, events)];
        watched.extend(
            self.pending
                .iter()
                .map(|connection| PollFd::new(&connection.socket, connection.interest())),
        );
        match poll(&mut watched, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(refused("wait for the job's other nodes")(error)),
        }
    }

    /// Advances every pending handshake as far as possible. Returns the first error.
    fn advance(&mut self) -> Result<(), Error> {
        // A second connection with a node ends before it is answered, so the node has sent nothing
        // there. Of two nodes that connect with each other at once, the one with the higher number
        // ends the other one's.
        let targets = self.pending.iter().filter_map(|connection| connection.stage.target());
        let claimed: BTreeSet<u32> = targets.filter(|to| *to < self.node).collect();
        let mut outcome = Ok(());
        for mut connection in std::mem::take(&mut self.pending) {
            let is_claimed = |from: u32| {
                let is_settled = self.is_settled.get(from as usize);
                claimed.contains(&from) || is_settled.copied().unwrap_or(false)
            };
            let step = connection.advance_unless(self.node, &self.key, is_claimed)?;
            let advanced = self.take_step(step, connection);
            outcome = outcome.and(advanced);
        }
        // Those that came behind the one that has been proven; nothing has been sent there.
        let is_settled = &self.is_settled;
        self.pending.retain(|one| one.stage.target().is_none_or(|to| !is_settled[to as usize]));
        outcome
    }

    /// Processes a step of a handshake.
    fn take_step(
        &mut self,
        step: HandshakeStep,
        connection: PendingConnection,
    ) -> Result<(), Error> {
        match (step, connection.stage) {
            (HandshakeStep::Pending, _) => self.pending.push(connection),
            (HandshakeStep::Proven(node), _) => match self.is_settled.get_mut(node as usize) {
                Some(is_settled) if node != self.node && !*is_settled => {
                    *is_settled = true;
                    self.made.push((node, connection.socket));
                    self.forget(node);
                }
                // A node that is connected stays on its first connection.
                _ => self.refused += 1,
            },
            (HandshakeStep::Failed(error), HandshakeStage::Connecting { to }) => {
                return self.failed(to, error);
            }
            (HandshakeStep::Closed, HandshakeStage::HelloSent { to, .. }) => {
                self.closed = Some(to);
                self.retries.push((Instant::now() + RETRY_INTERVAL, to));
            }
            (HandshakeStep::Refused, HandshakeStage::HelloSent { to, .. }) => {
                let why =
                    "what listens there is not this job's node service; is the address right?";
                return Err(self.unreachable(to, why.into()));
            }
            (HandshakeStep::OtherVersion(version), HandshakeStage::HelloSent { to, .. }) => {
                let versions = Versions { theirs: version };
                return Err(self.unreachable(to, format!("it has {versions}")));
            }
            (HandshakeStep::OtherVersion(version), _) => {
                // Any process can send such a hello, so it ends nothing. It explains why a node is
                // late.
                self.other_version = Some(version);
                self.refused += 1;
            }
            (HandshakeStep::Superseded, _) => {}
            (HandshakeStep::Failed(_) | HandshakeStep::Refused | HandshakeStep::Closed, _) => {
                self.refused += 1;
            }
        }
        Ok(())
    }
}
