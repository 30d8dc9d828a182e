//! A connection in its handshake, which either side drives without blocking.

use super::handshake::{self, ANSWER_BYTES, HELLO_BYTES, Hello, Nonce, PROOF_BYTES, Pair, Side};
use crate::error::Error;
use crate::job_nodes::{Key, random_key};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// A connection before the end of its handshake.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) stage: HandshakeStage,
    /// Time at which the socket was made.
    pub(crate) since: Instant,
    /// Bytes of the next message that have arrived.
    received: Vec<u8>,
    /// The pair of nodes that both sides have proven to be; `None` before.
    pub(crate) proven: Option<Pair>,
    /// The event for which a poller watches the socket.
    pub(crate) watched: Option<PollFlags>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HandshakeStage {
    /// This side connects; not yet connected.
    Connecting { to: u32 },
    /// This side connects; its hello has been sent.
    HelloSent { to: u32, nonce: Nonce },
    /// This side accepts; nothing has arrived.
    Accepted,
    /// This side accepts; its answer has been sent.
    AnswerSent(Pair),
}

impl HandshakeStage {
    /// Returns true if the other end has connected and proven nothing.
    pub(crate) fn is_unproven(self) -> bool {
        matches!(self, HandshakeStage::Accepted | HandshakeStage::AnswerSent(_))
    }

    /// The node to which this side connects.
    pub(crate) fn target(self) -> Option<u32> {
        match self {
            HandshakeStage::Connecting { to } | HandshakeStage::HelloSent { to, .. } => Some(to),
            HandshakeStage::Accepted | HandshakeStage::AnswerSent(_) => None,
        }
    }

    /// The node that has connected and that this side has answered.
    pub(crate) fn origin(self) -> Option<u32> {
        if let HandshakeStage::AnswerSent(pair) = self { Some(pair.from) } else { None }
    }
}

/// Outcome of a step of the handshake.
pub(crate) enum HandshakeStep {
    Pending,
    /// The other end has proven that it is this node.
    Proven(u32),
    /// The other end has sent something else than the handshake.
    Refused,
    /// The other end has another version of the protocol.
    OtherVersion(u16),
    /// The other end has closed the connection.
    Closed,
    /// This side connects to the other end itself.
    Superseded,
    /// The node cannot be reached (yet).
    Failed(Errno),
}

/// Chooses one of these positions in a list of unproven connections, to be closed for a new one.
///
/// The choice is random, because any fixed order lets strangers close the connection of a node:
/// under the oldest-first rule `n` strangers that connect during a round trip close it every time,
/// where `n` is the length of the list. With a random choice it survives `k` of them with the
/// probability (1 − 1/n)^k: 37 % for k = n. Each attempt is independent, so a node that tries
/// again gets through: of 100 attempts at k = n all fail with the probability 10⁻²⁰.
pub(crate) fn choose(positions: impl Iterator<Item = usize>) -> Option<usize> {
    let positions: Vec<usize> = positions.collect();
    let last = positions.len().checked_sub(1)?;
    // Without random bytes no handshake goes on either: any choice will do.
    let random = random_key().map_or(0, u128::from_le_bytes);
    positions.get((random % (last as u128 + 1)) as usize).copied()
}

impl PendingConnection {
    /// A socket that connects with this node.
    pub(crate) fn connecting(socket: OwnedFd, to: u32) -> Self {
        PendingConnection::new(socket, HandshakeStage::Connecting { to })
    }

    /// A socket that has been accepted.
    pub(crate) fn accepted(socket: OwnedFd) -> Self {
        PendingConnection::new(socket, HandshakeStage::Accepted)
    }

    fn new(socket: OwnedFd, stage: HandshakeStage) -> Self {
        let since = Instant::now();
        let received = Vec::new();
        PendingConnection { socket, stage, since, received, proven: None, watched: None }
    }

    /// Returns true if something has arrived that is not read.
    pub(crate) fn has_unread(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        matches!(poll(&mut watched, Some(&Timespec::default())), Ok(1..))
    }

    /// The event for which the handshake waits.
    pub(crate) fn interest(&self) -> PollFlags {
        let connects = matches!(self.stage, HandshakeStage::Connecting { .. });
        if connects { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Advances the handshake as far as possible, for this node and with this key.
    pub(crate) fn advance(&mut self, node: u32, key: &Key) -> Result<HandshakeStep, Error> {
        self.advance_unless(node, key, |_| false)
    }

    /// The same, but answers no node for which `is_claimed` holds.
    pub(crate) fn advance_unless(
        &mut self,
        node: u32,
        key: &Key,
        is_claimed: impl Fn(u32) -> bool,
    ) -> Result<HandshakeStep, Error> {
        loop {
            if let Some(step) = self.step(node, key, &is_claimed)? {
                return Ok(step);
            }
        }
    }

    /// Advances the handshake by a step; `None` if the next one may be possible at once.
    fn step(
        &mut self,
        node: u32,
        key: &Key,
        is_claimed: &impl Fn(u32) -> bool,
    ) -> Result<Option<HandshakeStep>, Error> {
        match self.stage {
            HandshakeStage::Connecting { to } => {
                let mut watched = [PollFd::new(&self.socket, PollFlags::OUT)];
                if !matches!(poll(&mut watched, Some(&Timespec::default())), Ok(1..)) {
                    return Ok(Some(HandshakeStep::Pending));
                }
                if let Err(error) | Ok(Err(error)) = sockopt::socket_error(&self.socket) {
                    return Ok(Some(HandshakeStep::Failed(error)));
                }
                let nonce = random_key()?;
                self.send_bytes(&handshake::hello(node, to, &nonce));
                self.stage = HandshakeStage::HelloSent { to, nonce };
                Ok(None)
            }
            HandshakeStage::HelloSent { to, nonce } => {
                let bytes = match self.receive::<ANSWER_BYTES>() {
                    Ok(bytes) => bytes,
                    Err(step) => return Ok(Some(step)),
                };
                if let Some(version) = handshake::read_other_version(&bytes) {
                    return Ok(Some(HandshakeStep::OtherVersion(version)));
                }
                let (Some(to_nonce), Some(proof)) =
                    (bytes.first_chunk(), bytes.last_chunk::<PROOF_BYTES>())
                else {
                    return Ok(Some(HandshakeStep::Refused));
                };
                let pair = Pair { from: node, to, from_nonce: nonce, to_nonce: *to_nonce };
                // The comparison need not take constant time: the random strings differ in every
                // connection, so a partial match is worth nothing in the next.
                if *proof != pair.proof(key, Side::Accepting) {
                    return Ok(Some(HandshakeStep::Refused));
                }
                self.send_bytes(&pair.proof(key, Side::Connecting));
                self.proven = Some(pair);
                Ok(Some(HandshakeStep::Proven(to)))
            }
            HandshakeStage::Accepted => {
                let bytes = match self.receive::<HELLO_BYTES>() {
                    Ok(bytes) => bytes,
                    Err(step) => return Ok(Some(step)),
                };
                let (from, to, from_nonce) = match handshake::read_hello(&bytes) {
                    Some(Hello::Node { from, to, nonce }) if to == node => (from, to, nonce),
                    Some(Hello::OtherVersion(version)) => {
                        // The hello has been read completely, so the close behind the answer does
                        // not reset the connection: the answer arrives.
                        self.send_bytes(&handshake::other_version());
                        return Ok(Some(HandshakeStep::OtherVersion(version)));
                    }
                    _ => return Ok(Some(HandshakeStep::Refused)),
                };
                if is_claimed(from) {
                    return Ok(Some(HandshakeStep::Superseded));
                }
                // Random bytes of this side are part of both proofs, so the other end cannot choose
                // what it has to prove.
                let pair = Pair { from, to, from_nonce, to_nonce: random_key()? };
                let answer = [pair.to_nonce, pair.proof(key, Side::Accepting)].concat();
                self.send_bytes(&answer);
                self.stage = HandshakeStage::AnswerSent(pair);
                Ok(None)
            }
            HandshakeStage::AnswerSent(pair) => Ok(Some(match self.receive::<PROOF_BYTES>() {
                Ok(proof) if proof == pair.proof(key, Side::Connecting) => {
                    self.proven = Some(pair);
                    HandshakeStep::Proven(pair.from)
                }
                Ok(_) => HandshakeStep::Refused,
                Err(step) => step,
            })),
        }
    }

    /// Sends a few bytes, which always fit the buffer of a new connection. An error shows when the
    /// answer does not arrive.
    fn send_bytes(&self, bytes: &[u8]) {
        let _ = send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Reads exactly the next `N` bytes: the bytes behind them are frames.
    fn receive<const N: usize>(&mut self) -> Result<[u8; N], HandshakeStep> {
        let mut bytes = [0; N];
        match rustix::io::read(self.socket.as_fd(), &mut bytes[..N - self.received.len()]) {
            Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(HandshakeStep::Closed),
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return Err(HandshakeStep::Pending),
            Err(_) => return Err(HandshakeStep::Refused),
        }
        let received = self.received.first_chunk().copied().ok_or(HandshakeStep::Pending)?;
        self.received.clear();
        Ok(received)
    }
}
