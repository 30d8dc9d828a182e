//! The process that holds the values: a thread with one loop over all connections.

use super::error::{Error, system};
use super::messages::{self, Frame, HELLO_BYTES, PROOF_BYTES, Values};
use super::peer::{Peer, Stage};
use super::shared_secret::{Handshake, Nonce, SharedSecret, Side};
use crate::ports::listen_everywhere;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of connections without a proof, besides one of each rank. The oldest one is
/// closed for the next; a rank connects again.
const MAX_UNPROVEN: usize = 128;
/// Time for the last messages to the ranks after a failure.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Largest number of ranks or addresses that a message lists.
const LISTED: usize = 16;

/// The server of a key-value space. Dropping it ends the exchange, with an error on the ranks that
/// still take part.
#[derive(Debug)]
pub struct Server {
    thread: Option<JoinHandle<()>>,
    stop: Arc<OwnedFd>,
    address: SocketAddr,
}

impl Server {
    /// Listens for the ranks of a job at `port`: at the address `host` if it is an address of this
    /// node, otherwise at all addresses, because a name may resolve to another address here than on
    /// other nodes. `origin` names the variables from which both are. `limit` is the time within
    /// which each fence must be complete.
    ///
    /// # Errors
    /// If the port is in use, or the system refuses a step.
    pub fn start(
        (host, port): (&str, u16),
        origin: &str,
        secret: SharedSecret,
        ranks: u32,
        limit: Duration,
    ) -> Result<Self, Error> {
        let listener = listen(host, port).map_err(|source| Error::Listen {
            address: super::client::show(host, port),
            origin: origin.into(),
            source,
        })?;
        let place = format!("{} ({origin})", super::client::show(host, port));
        Self::serve_at(listener, place, secret, ranks, limit)
    }

    /// Starts a server that listens already.
    ///
    /// # Errors
    /// If the system refuses a step.
    pub fn with_listener(
        listener: TcpListener,
        secret: SharedSecret,
        ranks: u32,
        limit: Duration,
    ) -> Result<Self, Error> {
        let place = listener.local_addr().map_err(system("listen for the job's ranks"))?;
        Self::serve_at(listener, place.to_string(), secret, ranks, limit)
    }

    fn serve_at(
        listener: TcpListener,
        place: String,
        secret: SharedSecret,
        ranks: u32,
        limit: Duration,
    ) -> Result<Self, Error> {
        let failed = "listen for the job's ranks";
        listener.set_nonblocking(true).map_err(system(failed))?;
        let address = listener.local_addr().map_err(system(failed))?;
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system(failed))?;
        let stop = Arc::new(stop);
        let random = || shm::random::bytes().map_err(system("get random bytes from the system"));
        let space = Space {
            listener,
            place,
            secret,
            of_job: random()?,
            limit,
            deadline: None,
            peers: Vec::new(),
            ranks: (0..ranks).map(|_| RankState::default()).collect(),
            refused: BTreeSet::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("tradewind-store".into())
            .spawn(move || space.serve(&stopped))
            .map_err(system("start a thread"))?;
        Ok(Server { thread: Some(thread), stop, address })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a host and port for connections of processes on this node.
    pub fn local_host(&self) -> (String, u16) {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            // It accepts IPv4, too, and a node may have no IPv6 address at all.
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            ip => ip,
        };
        (ip.to_string(), self.address.port())
    }

    /// Waits until all ranks have finished or one has failed.
    pub fn finish(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the key-value space has panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if the event is full; then it is readable, which is all that matters.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        self.join();
    }
}

/// Listens as [`Server::start`] describes.
fn listen(host: &str, port: u16) -> std::io::Result<TcpListener> {
    if let Ok(literal) = host.parse::<IpAddr>() {
        match TcpListener::bind((literal, port)) {
            // The address of a service or of a router in front of this node.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
            bound => return bound,
        }
    }
    listen_everywhere(port)
}

/// State of a rank in the exchange.
#[derive(Debug, Default)]
struct RankState {
    /// Address from which it has connected.
    address: Option<SocketAddr>,
    /// Values with which it waits in the current fence.
    waits_with: Option<Values>,
    has_finished: bool,
}

struct Space {
    listener: TcpListener,
    /// The address at which it listens, for messages.
    place: String,
    secret: SharedSecret,
    of_job: Nonce,
    limit: Duration,
    /// End of the time for the current fence; none before the first rank has connected, because a
    /// program may compute before it joins.
    deadline: Option<Instant>,
    peers: Vec<Peer>,
    ranks: Vec<RankState>,
    /// Addresses of connections that had another secret.
    refused: BTreeSet<IpAddr>,
}

impl Space {
    fn serve(mut self, stop: &OwnedFd) {
        let failure = loop {
            if self.ranks.iter().all(|rank| rank.has_finished) {
                break None;
            }
            // All input is read before the deadline is compared: a rank that was in time is not
            // late because this thread was.
            match self.wait(self.deadline, Some(stop)) {
                Ok(true) => {
                    break Some(
                        "rank 0 has ended while the ranks exchanged their addresses".into(),
                    );
                }
                Ok(false) => {}
                Err(error) => break Some(format!("rank 0 cannot wait for the ranks: {error}")),
            }
            if let Err(failure) = self.accept().and_then(|()| self.progress()) {
                break Some(failure);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break Some(self.time_out());
            }
        };
        if let Some(failure) = failure {
            self.fail(&failure);
        }
        // The sockets are not blocking, so the last messages may still be in `unsent`: the reason
        // of a failure, or of a refusal. The values are not: a rank finishes after it has read
        // them.
        let end = Instant::now() + LAST_WORDS;
        while self.peers.iter().any(|peer| !peer.unsent.is_empty() && !peer.is_closed)
            && Instant::now() < end
            && self.wait(Some(end), None).is_ok()
        {
            self.peers.iter_mut().for_each(Peer::send_unsent);
        }
    }

    /// Sleeps until a connection makes progress or the deadline passes. Returns true if the server
    /// is to stop. Without `stop` only sending counts as progress.
    fn wait(&self, deadline: Option<Instant>, stop: Option<&OwnedFd>) -> rustix::io::Result<bool> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut watched = Vec::with_capacity(self.peers.len() + 2);
        if let Some(stop) = stop {
            watched.push(PollFd::new(stop, PollFlags::IN));
            watched.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // A connection from which nothing is read any more stays ready when its other end is reset:
        // without anything to send it is not watched.
        let is_watched =
            |peer: &&Peer| !peer.is_closed && (stop.is_some() || !peer.unsent.is_empty());
        watched.extend(self.peers.iter().filter(is_watched).map(|peer| {
            let read = if stop.is_some() { PollFlags::IN } else { PollFlags::empty() };
            let write = if peer.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&peer.socket, read | write)
        }));
        match poll(&mut watched, left.as_ref()) {
            Ok(_) => Ok(stop.is_some() && !watched[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Accepts new connections, a bounded number at a time: strangers may connect faster than they
    /// are refused. The error is the lack of a descriptor for a rank.
    fn accept(&mut self) -> Result<(), String> {
        for _ in 0..MAX_UNPROVEN {
            let (socket, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if lacks_descriptors(&error) => {
                    return Err(format!(
                        "rank 0 needs an open file for each of {} ranks: {error}; raise the limit (`ulimit -n`)",
                        self.ranks.len()
                    ));
                }
                // None is left, or it has ended already.
                Err(_) => return Ok(()),
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            // Latency of the handshake; without it the exchange only takes longer.
            let _ = socket.set_nodelay(true);
            let unproven = |peer: &Peer| !matches!(peer.stage, Stage::Rank(_));
            // Space for every rank in its handshake beside the strangers: ranks that start at the
            // same time do not displace each other.
            let most = MAX_UNPROVEN + self.ranks.len();
            if self.peers.iter().filter(|peer| unproven(peer)).count() >= most
                && let Some(oldest) = self.peers.iter().position(unproven)
            {
                self.peers.remove(oldest);
            }
            let ip = address.ip().to_canonical();
            self.peers.push(Peer::new(socket, SocketAddr::new(ip, address.port())));
        }
        Ok(())
    }

    /// Reads from all connections and answers. The error is a failure of the whole exchange.
    fn progress(&mut self) -> Result<(), String> {
        // Steps remove no peer, so the indices stay valid; closed ones are removed below.
        for index in 0..self.peers.len() {
            self.peers[index].receive();
            while self.step(index)? {}
            self.peers[index].send_unsent();
        }
        // After the steps: a rank may send its end and close the connection at once, and the end
        // counts.
        for peer in &self.peers {
            if let (Stage::Rank(rank), true) = (peer.stage, peer.is_closed)
                && !self.ranks[rank as usize].has_finished
            {
                return Err(format!(
                    "rank {rank} on {} has ended while the ranks exchanged their addresses",
                    peer.address.ip()
                ));
            }
        }
        self.peers.retain(|peer| {
            let has_ended = matches!(peer.stage, Stage::Ending) && peer.unsent.is_empty();
            !peer.is_closed && !has_ended
        });
        Ok(())
    }

    /// Handles the next message of a connection. Returns false if it has not arrived.
    fn step(&mut self, index: usize) -> Result<bool, String> {
        match self.peers[index].stage {
            Stage::Connected => {
                let Some(hello) = self.peers[index].take(HELLO_BYTES) else { return Ok(false) };
                self.answer(index, &hello);
                Ok(true)
            }
            Stage::Answered(handshake) => {
                let Some(proof) = self.peers[index].take(PROOF_BYTES) else { return Ok(false) };
                // The comparison need not take constant time: the random bytes differ in every
                // connection, so a partial match is worth nothing in the next.
                if proof == self.secret.proof(&handshake, Side::Client) {
                    self.admit(index, &handshake);
                } else {
                    self.refused.insert(self.peers[index].address.ip());
                    self.peers[index].is_closed = true;
                }
                Ok(true)
            }
            Stage::Rank(rank) => {
                let Some(contents) = self.peers[index].take_frame() else { return Ok(false) };
                self.handle(rank, &contents)?;
                Ok(true)
            }
            Stage::Ending => Ok(false),
        }
    }

    fn answer(&mut self, index: usize, hello: &[u8]) {
        let peer = &mut self.peers[index];
        let (Some((rank, ranks, of_client)), Ok(of_server)) =
            (messages::read_hello(hello), shm::random::bytes())
        else {
            peer.is_closed = true;
            return;
        };
        let handshake = Handshake { rank, ranks, of_client, of_server, of_job: self.of_job };
        // The server proves first, so a rank sends its proof only to a server with its secret. The
        // rank's random bytes are in this proof, so one of another connection is not valid here.
        let proof = self.secret.proof(&handshake, Side::Server);
        peer.unsent.extend(messages::answer(&of_server, &self.of_job, &proof));
        peer.stage = Stage::Answered(handshake);
    }

    /// Admits a rank that has proven that it has the secret, or refuses it with the reason.
    fn admit(&mut self, index: usize, &Handshake { rank, ranks, .. }: &Handshake) {
        let expected = self.ranks.len();
        let address = self.peers[index].address;
        // An address stays for ever: a second process of the same number is refused, and the first
        // one cannot connect again, because the loss of its connection ends the exchange.
        let known = self.ranks.get(rank as usize).map(|state| state.address);
        let refusal = match known {
            _ if ranks as usize != expected => Some(format!(
                "this is rank {rank} of {ranks}, and rank 0 belongs to a job of {expected} ranks: start all ranks with the same \
                 number of ranks"
            )),
            None => Some(format!("there is no rank {rank} in a job of {expected} ranks")),
            Some(Some(other)) => Some(format!(
                "rank {rank} has connected already, from {}: start each rank with a number of its own",
                other.ip()
            )),
            Some(None) => None,
        };
        let peer = &mut self.peers[index];
        match refusal {
            Some(why) => {
                peer.unsent.extend(Frame::Failed(why).encode());
                peer.stage = Stage::Ending;
            }
            None => {
                peer.stage = Stage::Rank(rank);
                // Only a process with the secret starts the time: a stranger must not.
                self.deadline.get_or_insert_with(|| Instant::now() + self.limit);
                self.ranks[rank as usize].address = Some(address);
            }
        }
    }

    fn handle(&mut self, rank: u32, contents: &[u8]) -> Result<(), String> {
        let state = &mut self.ranks[rank as usize];
        match Frame::decode(contents) {
            // A rank has one fence under way: `complete_fence` takes its values before it gets the
            // answer. Another fence before that is no client of this version.
            Some(Frame::Fence(values)) if state.waits_with.is_none() => {
                state.waits_with = Some(values);
                if self.ranks.iter().all(|rank| rank.waits_with.is_some()) {
                    self.complete_fence();
                }
                Ok(())
            }
            Some(Frame::Finish) => {
                state.has_finished = true;
                Ok(())
            }
            _ => Err(format!(
                "rank {rank} has sent something unexpected: use one version of tradewind on all nodes"
            )),
        }
    }

    /// Sends the values of all ranks to all ranks.
    fn complete_fence(&mut self) {
        let values =
            self.ranks.iter_mut().flat_map(|rank| rank.waits_with.take().unwrap_or_default());
        let bytes = Frame::Fence(values.collect()).encode();
        for peer in self.peers.iter_mut().filter(|peer| matches!(peer.stage, Stage::Rank(_))) {
            peer.unsent.extend_from_slice(&bytes);
            peer.send_unsent();
        }
        self.deadline = Some(Instant::now() + self.limit);
    }

    fn fail(&mut self, why: &str) {
        let bytes = Frame::Failed(why.into()).encode();
        for peer in self.peers.iter_mut().filter(|peer| matches!(peer.stage, Stage::Rank(_))) {
            peer.unsent.extend_from_slice(&bytes);
            peer.stage = Stage::Ending;
            peer.send_unsent();
        }
    }

    /// The message of a fence that some ranks have not entered in time.
    fn time_out(&self) -> String {
        let seconds = self.limit.as_secs_f64();
        let of = |is_missing: &dyn Fn(&RankState) -> bool| {
            let missing = (0..).zip(&self.ranks).filter(|(_, state)| is_missing(state));
            missing.map(|(rank, _): (u32, _)| rank).collect::<Vec<_>>()
        };
        let absent = of(&|state| state.address.is_none());
        if absent.is_empty() {
            let late = list(&of(&|state| state.waits_with.is_none() && !state.has_finished));
            return format!(
                "{late} did not take part in the exchange of addresses within {seconds} s"
            );
        }
        let mut text = format!(
            "{} did not connect to rank 0 at {} within {seconds} s: is each of them started, and does a firewall let this \
             port through?",
            list(&absent),
            self.place
        );
        if !self.refused.is_empty() {
            let all: Vec<String> =
                self.refused.iter().take(LISTED).map(IpAddr::to_string).collect();
            text += &format!(" Processes with another secret connected from {}", all.join(", "));
        }
        text
    }
}

/// Returns true for errors that last: without a descriptor the listener stays readable.
fn lacks_descriptors(error: &std::io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].into_iter().any(|errno| Errno::from_io_error(error) == Some(errno))
}

/// Formats a list of ranks: "rank 3", "ranks 1, 4 and 7".
fn list(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(LISTED).map(u32::to_string).collect();
    match (shown.split_last(), ranks.len().saturating_sub(LISTED)) {
        (None, _) => "no rank".into(),
        (Some((last, [])), 0) => format!("rank {last}"),
        (Some((last, others)), 0) => format!("ranks {} and {last}", others.join(", ")),
        (_, more) => format!("ranks {} and {more} others", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
