//! Connecting every node with every other.

use super::greeting::{self, ANSWER_BYTES, HELLO_BYTES, Nonce, PROOF_BYTES, Pair, Side};
use crate::carrier::Error;
use crate::invitation::{Key, random_key};
use crate::transport::sleeper::refused;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with, sockopt};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Strangers that may be about to prove who they are, besides all other nodes. Whoever came first
/// gives way to the next.
pub const STRANGERS: usize = 128;
/// Time before another attempt where the network says that there is no way, or the system that
/// there is no descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the other nodes of a job knock. Its port is the kernel's choice unless it is asked for
/// one.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address; port 0 stands for any.
    ///
    /// # Errors
    /// When the system refuses: no such address, a port that is taken.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Listener, Error> {
        let listen = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok::<_, std::io::Error>(Listener { socket, address })
        };
        listen().map_err(refused("listen for the job's other nodes"))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection on its way.
#[derive(Debug)]
struct Guest {
    socket: OwnedFd,
    stage: Stage,
    /// What has come of the next thing to come.
    heard: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// This side connects: not yet connected.
    Connecting { to: u32 },
    /// This side connects: has greeted.
    Greeted { to: u32, nonce: Nonce },
    /// This side accepts: has heard nothing.
    Accepted,
    /// This side accepts: has answered.
    Answered(Pair),
}

impl Stage {
    /// Whether the other end has come by itself and shown nothing.
    fn is_unproven(self) -> bool {
        matches!(self, Stage::Accepted | Stage::Answered(_))
    }
}

/// What became of a connection.
enum Step {
    Waits,
    /// It is this node, as shown.
    Known(u32),
    /// The other end is not who it should be.
    Refused,
    /// The other end has closed the connection.
    Closed,
    /// The node cannot be reached (yet).
    Failed(Errno),
}

struct Setup<'a> {
    listener: Listener,
    node: u32,
    addresses: &'a [SocketAddr],
    key: Key,
    guests: Vec<Guest>,
    known: Vec<Option<OwnedFd>>,
    /// Nodes to try again, and when.
    again: Vec<(Instant, u32)>,
    /// The last node that closed a connection: strangers may have crowded this one out there, or it
    /// is another program's address.
    closed: Option<u32>,
    /// Until when nobody is let in, because no descriptor is left.
    is_full_until: Option<Instant>,
    refused: u64,
    waited: Duration,
}

/// Sockets with all other nodes, and how many strangers were refused.
pub(super) fn connect(
    listener: Listener,
    node: u32,
    addresses: &[SocketAddr],
    key: Key,
    limit: Duration,
) -> Result<(Vec<(u32, OwnedFd)>, u64), Error> {
    let known = addresses.iter().map(|_| None).collect();
    let (guests, again) = (Vec::new(), Vec::new());
    let mut setup = Setup {
        listener,
        node,
        addresses,
        key,
        guests,
        known,
        again,
        closed: None,
        is_full_until: None,
        refused: 0,
        waited: limit,
    };
    let deadline = Instant::now() + limit;
    (0..node).try_for_each(|to| setup.dial(to))?;
    while setup.missing().is_some() {
        if Instant::now() >= deadline {
            return Err(setup.late());
        }
        setup.wait(deadline)?;
        setup.accept();
        setup.advance()?;
        let now = Instant::now();
        while let Some(due) = setup.again.iter().position(|(at, _)| *at <= now) {
            let (_, to) = setup.again.swap_remove(due);
            setup.dial(to)?;
        }
    }
    let sockets =
        (0..).zip(setup.known).filter_map(|(node, socket)| Some((node, socket?))).collect();
    Ok((sockets, setup.refused))
}

impl Setup<'_> {
    fn missing(&self) -> Option<u32> {
        (0..)
            .zip(&self.known)
            .find(|(node, socket)| *node != self.node && socket.is_none())
            .map(|(node, _)| node)
    }

    fn late(&self) -> Error {
        let node = self.missing().unwrap_or(self.node);
        let seconds = self.waited.as_secs_f64();
        let why = if self.closed == Some(node) {
            format!(
                "it has closed every connection for {seconds} s; does the job's node service listen there?"
            )
        } else {
            format!(
                "no connection within {seconds} s; does the job's node service run there, and do firewalls let it through?"
            )
        };
        self.unreachable(node, why)
    }

    fn unreachable(&self, node: u32, why: String) -> Error {
        Error::NodeUnreachable { node, address: self.addresses[node as usize].to_string(), why }
    }

    /// Begins a connection to a node.
    fn dial(&mut self, to: u32) -> Result<(), Error> {
        let address = self.addresses[to as usize];
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => socket,
            // Strangers have them.
            Err(Errno::MFILE | Errno::NFILE) if self.turn_one_away() => {
                self.again.push((Instant::now(), to));
                return Ok(());
            }
            Err(error) => return Err(refused("make a socket for another node")(error)),
        };
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.guests.push(Guest {
                    socket,
                    stage: Stage::Connecting { to },
                    heard: Vec::new(),
                });
                Ok(())
            }
            Err(error) => self.failed(to, error),
        }
    }

    fn failed(&mut self, to: u32, error: Errno) -> Result<(), Error> {
        match error {
            // Its address was told only after it listened.
            Errno::CONNREFUSED => {
                Err(self.unreachable(to, "nobody listens there: its node service has ended".into()))
            }
            Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::TIMEDOUT
            | Errno::AGAIN
            | Errno::CONNRESET => {
                self.again.push((Instant::now() + PAUSE, to));
                Ok(())
            }
            error => Err(self.unreachable(to, std::io::Error::from(error).to_string())),
        }
    }

    /// Sleeps until somebody knocks, speaks or hears, or it is time for another attempt.
    fn wait(&self, deadline: Instant) -> Result<(), Error> {
        let times = self.again.iter().map(|(at, _)| *at).chain(self.is_full_until);
        let end = times.chain([deadline]).min().unwrap_or(deadline);
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        // Whoever knocks and cannot be let in would keep this awake.
        let knocks = if self.is_full_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = vec![PollFd::new(&self.listener.socket, knocks)];
        watched.extend(self.guests.iter().map(|guest| {
            let connecting = matches!(guest.stage, Stage::Connecting { .. });
            PollFd::new(&guest.socket, if connecting { PollFlags::OUT } else { PollFlags::IN })
        }));
        match poll(&mut watched, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(refused("wait for the job's other nodes")(error)),
        }
    }

    /// Lets in who knocks: some at a time, for strangers may knock faster than they are turned
    /// away.
    fn accept(&mut self) {
        self.is_full_until = self.is_full_until.filter(|until| *until > Instant::now());
        let most = STRANGERS + self.addresses.len();
        for _ in 0..STRANGERS {
            let socket = match self.listener.socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::MFILE | Errno::NFILE) if self.turn_one_away() => continue,
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.is_full_until = Some(Instant::now() + PAUSE);
                        return;
                    }
                    Some(Errno::CONNABORTED | Errno::INTR) => continue,
                    _ => return,
                },
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.guests.iter().filter(|guest| guest.stage.is_unproven()).count() >= most {
                self.turn_one_away();
            }
            self.guests.push(Guest {
                socket: socket.into(),
                stage: Stage::Accepted,
                heard: Vec::new(),
            });
        }
    }

    /// Closes the connection of whoever came first and has not proven to be a node; a node tries
    /// again. False if there is none.
    fn turn_one_away(&mut self) -> bool {
        let Some(first) = self.guests.iter().position(|guest| guest.stage.is_unproven()) else {
            return false;
        };
        self.guests.remove(first);
        self.refused += 1;
        true
    }

    /// Takes every connection as far as it goes.
    fn advance(&mut self) -> Result<(), Error> {
        for mut guest in std::mem::take(&mut self.guests) {
            let step = loop {
                match guest.step(self.node, &self.key)? {
                    Some(step) => break step,
                    None => continue,
                }
            };
            match (step, guest.stage) {
                (Step::Waits, _) => self.guests.push(guest),
                (Step::Known(node), _) => match self.known.get_mut(node as usize) {
                    Some(place @ None) if node != self.node => *place = Some(guest.socket),
                    _ => self.refused += 1,
                },
                (Step::Failed(error), Stage::Connecting { to }) => self.failed(to, error)?,
                (Step::Closed, Stage::Greeted { to, .. }) => {
                    self.closed = Some(to);
                    self.again.push((Instant::now() + PAUSE, to));
                }
                (Step::Refused, Stage::Greeted { to, .. }) => {
                    let why =
                        "what listens there is not this job's node service; is the address right?"
                            .into();
                    return Err(self.unreachable(to, why));
                }
                (Step::Failed(_) | Step::Refused | Step::Closed, _) => self.refused += 1,
            }
        }
        Ok(())
    }
}

impl Guest {
    /// One step of the greeting; `None` if there may be another at once.
    fn step(&mut self, node: u32, key: &Key) -> Result<Option<Step>, Error> {
        match self.stage {
            Stage::Connecting { to } => {
                let mut watched = [PollFd::new(&self.socket, PollFlags::OUT)];
                if !matches!(poll(&mut watched, Some(&Timespec::default())), Ok(1..)) {
                    return Ok(Some(Step::Waits));
                }
                if let Err(error) | Ok(Err(error)) = sockopt::socket_error(&self.socket) {
                    return Ok(Some(Step::Failed(error)));
                }
                let nonce = random_key()?;
                self.say(&greeting::hello(node, to, &nonce));
                self.stage = Stage::Greeted { to, nonce };
                Ok(None)
            }
            Stage::Greeted { to, nonce } => {
                let bytes = match self.hear::<ANSWER_BYTES>() {
                    Ok(bytes) => bytes,
                    Err(step) => return Ok(Some(step)),
                };
                let (Some(to_nonce), Some(proof)) =
                    (bytes.first_chunk(), bytes.last_chunk::<PROOF_BYTES>())
                else {
                    return Ok(Some(Step::Refused));
                };
                let pair = Pair { from: node, to, from_nonce: nonce, to_nonce: *to_nonce };
                if *proof != pair.proof(key, Side::Accepting) {
                    return Ok(Some(Step::Refused));
                }
                self.say(&pair.proof(key, Side::Connecting));
                Ok(Some(Step::Known(to)))
            }
            Stage::Accepted => {
                let bytes = match self.hear::<HELLO_BYTES>() {
                    Ok(bytes) => bytes,
                    Err(step) => return Ok(Some(step)),
                };
                let Some((from, to, from_nonce)) =
                    greeting::read_hello(&bytes).filter(|(_, to, _)| *to == node)
                else {
                    return Ok(Some(Step::Refused));
                };
                let pair = Pair { from, to, from_nonce, to_nonce: random_key()? };
                let answer = [pair.to_nonce, pair.proof(key, Side::Accepting)].concat();
                self.say(&answer);
                self.stage = Stage::Answered(pair);
                Ok(None)
            }
            Stage::Answered(pair) => Ok(Some(match self.hear::<PROOF_BYTES>() {
                Ok(proof) if proof == pair.proof(key, Side::Connecting) => Step::Known(pair.from),
                Ok(_) => Step::Refused,
                Err(step) => step,
            })),
        }
    }

    /// Says a few bytes, for which a connection that is new always has room. Who has gone is
    /// noticed when nothing comes.
    fn say(&self, bytes: &[u8]) {
        let _ = send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// The next so many bytes, and not one more: what follows are frames.
    fn hear<const N: usize>(&mut self) -> Result<[u8; N], Step> {
        let mut bytes = [0; N];
        match rustix::io::read(self.socket.as_fd(), &mut bytes[..N - self.heard.len()]) {
            Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(Step::Closed),
            Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return Err(Step::Waits),
            Err(_) => return Err(Step::Refused),
        }
        let heard = self.heard.first_chunk().copied().ok_or(Step::Waits)?;
        self.heard.clear();
        Ok(heard)
    }
}
