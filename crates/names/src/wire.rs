//! Messages between a process and the name server, over [`shm::broker`].
//!
//! A process sends a number and a [`Request`]; the name server answers with the same number, which
//! matches responses to requests, and a [`Response`]. It also sends [`Notification`]s. Descriptors
//! accompany a message in the documented order.

use crate::codec::{self, fields, messages};
pub use crate::error::{NameError, Refusal};
pub use crate::key::ProgramKey;
use queues::id::{QueueName, SourceName};
use shm::process::StartTime;
use std::fmt;

/// Longest name of a program in bytes: two of them fit into a message.
pub const MAX_PROGRAM_NAME: usize = 64;
/// Cache lines of a connection's ring.
pub const RING_LINES: u32 = 256;
/// Length of the longest message of a connection in bytes: a quarter of its ring, less the header.
pub const MAX_MESSAGE_BYTES: usize = RING_LINES as usize / 4 * 64 - 8;
/// Largest number of connections of a process, both directions together.
pub const MAX_CONNECTIONS: usize = 4096;
/// Largest number of other programs that a program may be connected with, besides itself.
pub const MAX_CLIENTS: u16 = 4000;

messages! {
    /// A request of a process.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Request {
        /// Adds a program of this name, which exists as long as the sender's socket is open or a
        /// process has opened it. Answered by [`Response::Added`].
        1 => Add { name: String, started: StartTime },
        /// Registers the sender as the process of a program. Answered by [`Response::Opened`].
        2 => Open { name: String, key: ProgramKey, started: StartTime },
        /// Looks up the name of another program in the sender's table. Answered by
        /// [`Response::Named`], when a process has opened that program if `waits` is set.
        3 => LookUp { program: String, waits: bool },
        /// Opens a connection to a name. Answered by [`Response::Connection`].
        4 => Connect { name: QueueName },
        /// Reports that an end of a connection has been dropped. Not answered.
        5 => Close { connection: u32, dropped: DroppedEnd },
        /// Excludes the program of a name, and other programs of its process, from sending to the
        /// sender. Answered by [`Response::Done`].
        6 => Refuse { name: QueueName },
        /// Ends that. Answered by [`Response::Done`].
        7 => Admit { name: QueueName },
        /// Gives the sender's published name to another program, with all clients. Answered by
        /// [`Response::Done`].
        8 => Move { to: String },
        /// Requests the description of the first published name after this one. Answered by
        /// [`Response::Entry`], or by [`Response::Done`] after the last one.
        9 => Next { after: String },
        /// Opens a connection with a program on another node. The name server there listens at
        /// `node`, a host and a port, and has the secret of which `key` is derived. Answered by
        /// [`Response::RemoteOpened`].
        10 => OpenRemote { program: String, node: String, key: ProgramKey },
        /// Accepts connections of other nodes that have the key at a listening socket, which comes
        /// with it, until the sender closes its connection. Answered by [`Response::Done`].
        11 => Listen { key: ProgramKey },
    }
}

messages! {
    /// The end of a connection that has been dropped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum DroppedEnd {
        0 => Receiver,
        1 => Sender,
    }
}

messages! {
    /// A response of the name server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Response {
        0 => Refused(refusal: Refusal),
        1 => Added { key: ProgramKey },
        /// With the destination table.
        2 => Opened,
        3 => Named { name: QueueName },
        /// With the ring's memory and the socket.
        4 => Connection(offer: ConnectionOffer),
        5 => Done,
        6 => Entry(entry: NameEntry),
        /// The program of this node that stands for the one on the other node.
        7 => RemoteOpened { program: String },
    }
}

/// Description of a published name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameEntry {
    /// The name.
    pub name: String,
    /// Process that has published it.
    pub pid: u32,
    /// Time of the publication in seconds since 1970.
    pub since: u64,
    /// Number of connections on which others send to it.
    pub connections: u32,
    /// Occupied part of the fullest of their rings, in percent.
    pub fullest: u32,
}

messages! {
    /// A notification of the name server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Notification {
        /// Another process has opened a connection to this one. With the ring's memory and the
        /// socket.
        0 => Connected(offer: ConnectionOffer),
        /// A connection is closed.
        1 => Closed { connection: u32, why: CloseReason },
    }
}

/// An end of a connection, as offered to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOffer {
    /// Number of the connection.
    pub connection: u32,
    /// Name of the sender in the receiver's table.
    pub source: SourceName,
    /// Process at the other end.
    pub peer: Peer,
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Name of its program.
    pub program: String,
    /// Process number in the system.
    pub pid: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "program {} (process {})", self.program, self.pid)
    }
}

fields! {
    NameEntry { name, pid, since, connections, fullest }
    ConnectionOffer { connection, source, peer }
    Peer { program, pid }
}

messages! {
    /// Reason why a connection is closed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CloseReason {
        /// The process at the other end has ended.
        0 => Gone,
        /// The receiver excludes the sender.
        1 => Refused,
        /// The other end has been dropped.
        2 => Left,
        /// The connection passed another node, which does not respond any more.
        3 => NodeLost,
        /// The connection passed another node, where the process has ended.
        4 => GoneThere,
    }
}

messages! {
    /// Any message of the name server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ServerMessage {
        /// The response to the request with this number.
        0 => Response(number: u32, response: Response),
        1 => Notification(notification: Notification),
    }
}

impl Request {
    /// Encodes the request behind its number.
    pub fn encode(&self, number: u32) -> Vec<u8> {
        codec::encode_numbered(number, self)
    }

    /// Decodes the number and the request, if they are valid.
    pub fn decode(bytes: &[u8]) -> Option<(u32, Request)> {
        codec::decode(bytes)
    }
}

impl ServerMessage {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes a message, if it is valid.
    pub fn decode(bytes: &[u8]) -> Option<ServerMessage> {
        codec::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shm::broker::MAX_BYTES;

    fn longest() -> String {
        "é".repeat(MAX_PROGRAM_NAME / 2)
    }

    fn requests() -> Vec<Request> {
        let name = QueueName::new(16_383).expect("the last");
        let key = "fffffffffffffffc0000000000000005".parse().expect("32 digits");
        let started = StartTime(u64::MAX);
        vec![
            Request::Add { name: longest(), started },
            Request::Open { name: longest(), key, started },
            Request::LookUp { program: longest(), waits: true },
            Request::Connect { name },
            Request::Close { connection: 1 << 31, dropped: DroppedEnd::Receiver },
            Request::Close { connection: 1, dropped: DroppedEnd::Sender },
            Request::Refuse { name },
            Request::Admit { name },
            Request::Move { to: longest() },
            Request::Next { after: longest() },
            Request::OpenRemote { program: longest(), node: longest(), key },
            Request::Listen { key },
        ]
    }

    fn messages() -> Vec<ServerMessage> {
        let name = QueueName::new(3).expect("small");
        // A prefix of these bytes is the encoding of some fields of each reason.
        let fields = [3, b'w', b'h', b'y'];
        let prefixes = (0..=fields.len()).map(|end| &fields[..end]);
        let bytes =
            prefixes.flat_map(|fields| (0..=u8::MAX).map(move |code| [&[code], fields].concat()));
        let refusals = bytes.filter_map(|bytes| codec::decode(&bytes));
        let mut answers: Vec<Response> = refusals.map(Response::Refused).collect();
        assert_eq!(answers.len(), 16, "all reasons");
        let key = "00000000000000000000000000000abc".parse().expect("32 digits");
        let peer = Peer { program: longest(), pid: 7 };
        let source = SourceName::new(16_383).expect("the last");
        let offer = ConnectionOffer { connection: u32::MAX, source, peer };
        let entry = NameEntry {
            name: longest(),
            pid: 7,
            since: u64::MAX,
            connections: u32::MAX,
            fullest: 100,
        };
        answers.extend([
            Response::Added { key },
            Response::Opened,
            Response::Named { name },
            Response::Connection(offer.clone()),
            Response::Done,
            Response::Entry(entry),
            Response::RemoteOpened { program: longest() },
        ]);
        let reasons = [
            CloseReason::Gone,
            CloseReason::Refused,
            CloseReason::Left,
            CloseReason::NodeLost,
            CloseReason::GoneThere,
        ];
        let closed = reasons.map(|why| Notification::Closed { connection: 4, why });
        let notifications = [Notification::Connected(offer)].into_iter().chain(closed);
        let answers = answers.into_iter().map(|answer| ServerMessage::Response(u32::MAX, answer));
        answers.chain(notifications.map(ServerMessage::Notification)).collect()
    }

    #[test]
    fn every_message_is_decoded_to_itself() {
        for request in requests() {
            let bytes = request.encode(77);
            assert!(bytes.len() <= MAX_BYTES, "{request:?}");
            assert_eq!(Request::decode(&bytes), Some((77, request)));
        }
        for message in messages() {
            let bytes = message.encode();
            assert!(bytes.len() <= MAX_BYTES, "{message:?}");
            assert_eq!(ServerMessage::decode(&bytes), Some(message));
        }
    }

    #[test]
    fn a_long_text_is_truncated_to_fit() {
        let refused = Response::Refused(Refusal::System { why: "why".repeat(200) });
        let bytes = ServerMessage::Response(1, refused).encode();
        assert!(bytes.len() <= MAX_BYTES);
        let Some(ServerMessage::Response(1, Response::Refused(Refusal::System { why }))) =
            ServerMessage::decode(&bytes)
        else {
            panic!("it is valid");
        };
        assert!(why.starts_with("why"));
    }

    #[test]
    fn messages_that_are_cut_or_too_long_are_invalid() {
        for request in requests() {
            let bytes = request.encode(1);
            for length in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..length]), None, "{request:?} cut to {length}");
            }
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..MAX_BYTES)) {
            let _ = (Request::decode(&bytes), ServerMessage::decode(&bytes));
        }
    }
}
