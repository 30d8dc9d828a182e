//! Messages between a process and the name server, over [`shm::broker`].
//!
//! A process sends a number and a [`Request`]; the name server answers with the same number, which
//! matches responses to requests, and a [`Response`]. It also sends [`Notification`]s. Descriptors
//! accompany a message in the documented order.
//!
//! The messages are public for the name server in the crate `service`; programs use
//! [`crate::port`].

use super::address::{Peer, PortAddress};
use super::codec::{self, fields, messages};
use super::config::JobConfig;
use super::error::Refusal;
use super::key::JobKey;
use crate::id::{QueueIndex, QueueName, SourceName};
use crate::receive_queues::Class;
use shm::process::StartTime;

/// Longest name of a job in bytes: two of them fit into a message.
pub const MAX_JOB_NAME: usize = 64;

messages! {
    /// A request of a process.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Request {
        /// Registers the sender as this process of this job. Answered by [`Response::Registered`].
        1 => Register { job: String, process: u32, key: JobKey, started: StartTime },
        /// Opens a port of the sender. Answered by [`Response::PortOpened`].
        2 => OpenPort { port: u16 },
        /// Looks up the name of a port in the sender's job. Answered by [`Response::Named`]; with
        /// `wait`, when the port is open.
        3 => LookUp { address: PortAddress, wait: bool },
        /// Opens a connection from a port to a name; with `dedicated`, one with a ring. Answered by
        /// [`Response::Connection`].
        4 => OpenConnection { port: u16, name: QueueName, class: Class, dedicated: bool },
        /// Reports that an end of a connection has been dropped. Not answered.
        5 => CloseConnection { connection: u32, dropped: DroppedEnd },
        /// Changes the sources that a port accepts. Answered by [`Response::Done`].
        6 => Accept { port: u16, filter: SourceFilter },
        /// Returns the receiving end of a connection after [`Notification::MoveConnection`], with
        /// the ring's memory and the socket. Not answered.
        7 => HandOver { connection: u32, position: u64 },
        /// Adds a job, which the sender owns from then on. Answered by [`Response::JobAdded`].
        8 => AddJob { config: JobConfig, started: StartTime },
        /// Grants or revokes the right of a job to send to the sender's. Answered by
        /// [`Response::Done`].
        9 => SetRight { from: String, may: bool },
        /// Revokes a name of the sender's job. Answered by [`Response::Done`].
        10 => Revoke { name: QueueName },
        /// Re-points a name of the sender's job to another port. Answered by [`Response::Done`].
        11 => Repoint { name: QueueName, to: PortAddress },
        /// Re-points every name of a port of the sender's job to another of its ports. Answered by
        /// [`Response::Done`].
        12 => MovePort { from: PortAddress, to: PortAddress },
        /// Requests the description of the first job after this name, in the order of the names,
        /// that admits all other jobs. Answered by [`Response::Job`], or by [`Response::Done`]
        /// after the last one.
        13 => NextJob { after: String },
        /// Opens a connection with a job on another node. The name server there listens at `node`,
        /// a host and a port, and has the secret of which `key` is derived. Answered by
        /// [`Response::RemoteOpened`].
        14 => OpenRemote { job: String, node: String, key: JobKey },
        /// Accepts connections of other nodes that have the key at a listening socket, which comes
        /// with it, until the sender closes its connection. Answered by [`Response::Done`].
        15 => Listen { key: JobKey },
    }
}

messages! {
    /// The end of a connection that has been dropped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DroppedEnd {
        0 => Receiver,
        1 => Sender,
        /// The sending end; the sender continues on another connection.
        2 => SenderGoesOn,
    }
}

impl DroppedEnd {
    pub fn is_receiver(self) -> bool {
        self == DroppedEnd::Receiver
    }
}

messages! {
    /// A change of the sources that a port accepts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SourceFilter {
        0 => All,
        1 => Nothing,
        2 => Add(source: SourceName),
        3 => Remove(source: SourceName),
    }
}

messages! {
    /// A response of the name server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Response {
        0 => Refused(refusal: Refusal),
        /// Number of ports per process of the job, and number of resident ones. With the job's
        /// segment, the memory of the process's receive queues and its event, if the job has a
        /// segment.
        1 => Registered { ports: u16, resident: u16 },
        /// With the destination table and the inverse table.
        2 => PortOpened { name: QueueName, queue: QueueIndex },
        3 => Named { name: QueueName },
        /// With the descriptors of the [`TransportOffer`].
        4 => Connection(offer: ConnectionOffer),
        5 => Done,
        6 => JobAdded { key: JobKey },
        7 => Job(job: JobEntry),
        /// The job of this node that stands for the one on the other node.
        8 => RemoteOpened { job: String },
    }
}

/// Description of a job that admits all other jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEntry {
    /// Name of the job.
    pub name: String,
    /// Process that added it.
    pub pid: u32,
    /// Time of the addition in seconds since 1970.
    pub since: u64,
    /// Number of connections on which others send to it.
    pub connections: u32,
    /// Occupied part of the fullest of their rings, in percent.
    pub fullest: u32,
}

fields! {
    JobEntry { name, pid, since, connections, fullest }
}

messages! {
    /// A notification of the name server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Notification {
        /// Another process has opened a connection to this port; with the ring's memory and the
        /// socket if it has a ring. Messages of the connection `after`, if that is not 0, come
        /// first.
        0 => ConnectionOpened { port: u16, position: u64, after: u32, offer: ConnectionOffer },
        /// A connection is closed.
        1 => ConnectionClosed { connection: u32, why: CloseReason },
        /// The receiving end of a connection is to move to another process.
        2 => MoveConnection { connection: u32 },
    }
}

/// An end of a connection, as offered to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOffer {
    pub connection: u32,
    pub transport: TransportOffer,
    pub class: Class,
    /// Name of the sender in the receiver's job.
    pub source: SourceName,
    /// Process at the other end.
    pub peer: Peer,
}

fields! {
    ConnectionOffer { connection, transport, class, source, peer }
}

messages! {
    /// Transport of a connection's messages.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TransportOffer {
        /// A ring of this many lines. With its memory and the socket.
        0 => Ring { lines: u32 },
        /// A receive queue of the process with the number `member`, and the queue's number on the
        /// node. For the sender, with the memory of the receive queues and their event.
        1 => Queue { member: u32, port: u16, queue: QueueIndex },
    }
}

messages! {
    /// Reason why a connection is closed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CloseReason {
        /// The process at the other end has ended.
        0 => Gone,
        /// The right to send has been revoked.
        1 => Revoked,
        /// The receiver does not accept the source.
        2 => Refused,
        /// The other end has been dropped.
        3 => Left,
        /// The other end has been dropped, and the sender continues on another connection.
        4 => Replaced,
        /// The connection passed another node, which does not respond any more.
        5 => NodeLost,
        /// The connection passed another node, where the process has ended.
        6 => GoneThere,
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
    pub fn encode(&self, number: u32) -> Vec<u8> {
        codec::encode_numbered(number, self)
    }

    /// Decodes the number and the request, if they are valid.
    pub fn decode(bytes: &[u8]) -> Option<(u32, Request)> {
        codec::decode(bytes)
    }
}

impl ServerMessage {
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

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
        "é".repeat(MAX_JOB_NAME / 2)
    }

    fn offers() -> [ConnectionOffer; 2] {
        let peer = Peer { job: longest(), process: u32::MAX, pid: 7 };
        let source = SourceName::new(16_383).expect("the last");
        let queue = QueueIndex::new(1 << 19).expect("small");
        let receive_queues = TransportOffer::Queue { member: u32::MAX, port: u16::MAX, queue };
        [(TransportOffer::Ring { lines: 256 }, Class::Request), (receive_queues, Class::Reply)].map(
            |(transport, class)| ConnectionOffer {
                connection: u32::MAX,
                transport,
                class,
                source,
                peer: peer.clone(),
            },
        )
    }

    fn requests() -> Vec<Request> {
        let name = QueueName::new(16_383).expect("the last");
        let source = SourceName::from(name);
        let key = "fffffffffffffffc0000000000000005".parse().expect("32 digits");
        let started = StartTime(u64::MAX);
        let filter = [
            SourceFilter::All,
            SourceFilter::Nothing,
            SourceFilter::Add(source),
            SourceFilter::Remove(source),
        ];
        let mut all = vec![
            Request::Register { job: longest(), process: 3, key, started },
            Request::OpenPort { port: u16::MAX },
            Request::LookUp {
                address: PortAddress { job: longest(), process: 9, port: 2 },
                wait: true,
            },
            Request::OpenConnection { port: 1, name, class: Class::Request, dedicated: true },
            Request::OpenConnection { port: 1, name, class: Class::Reply, dedicated: false },
            Request::CloseConnection { connection: 1 << 31, dropped: DroppedEnd::Receiver },
            Request::CloseConnection { connection: 1, dropped: DroppedEnd::Sender },
            Request::CloseConnection { connection: 1, dropped: DroppedEnd::SenderGoesOn },
            Request::HandOver { connection: 5, position: u64::MAX },
            Request::AddJob {
                config: JobConfig { segment_bytes: u64::MAX, ..JobConfig::new(&longest()) },
                started,
            },
            Request::SetRight { from: longest(), may: true },
            Request::Revoke { name },
            Request::NextJob { after: longest() },
            Request::OpenRemote { job: longest(), node: longest(), key },
            Request::Listen { key },
            Request::Repoint { name, to: PortAddress { job: longest(), process: 9, port: 2 } },
            Request::MovePort {
                from: PortAddress { job: longest(), process: 9, port: 2 },
                to: PortAddress { job: longest(), process: u32::MAX, port: u16::MAX },
            },
        ];
        all.extend(filter.map(|filter| Request::Accept { port: 7, filter }));
        all
    }

    #[test]
    fn every_message_is_decoded_to_itself() {
        for request in requests() {
            let bytes = request.encode(77);
            assert!(bytes.len() <= MAX_BYTES, "{request:?}");
            assert_eq!(Request::decode(&bytes), Some((77, request)));
        }
        let name = QueueName::new(3).expect("small");
        // A prefix of these bytes is the encoding of some fields of each reason.
        let fields = [3, b'w', b'h', b'y'];
        let prefixes = (0..=fields.len()).map(|end| &fields[..end]);
        let bytes =
            prefixes.flat_map(|fields| (0..=u8::MAX).map(move |code| [&[code], fields].concat()));
        let refusals = bytes.filter_map(|bytes| codec::decode(&bytes));
        let mut answers: Vec<Response> = refusals.map(Response::Refused).collect();
        assert_eq!(answers.len(), 24, "all reasons");
        answers.push(Response::Refused(Refusal::System { why: "why".repeat(200) }));
        answers.push(Response::Registered { ports: 4, resident: 16 });
        answers.push(Response::PortOpened { name, queue: QueueIndex::new(99).expect("small") });
        let key = "00000000000000000000000000000abc".parse().expect("32 digits");
        answers.extend([Response::Named { name }, Response::Done, Response::JobAdded { key }]);
        answers.extend(offers().map(Response::Connection));
        let (name, since, fullest) = (longest(), u64::MAX, 100);
        let job = JobEntry { name, pid: 7, since, connections: u32::MAX, fullest };
        answers.push(Response::Job(job));
        answers.push(Response::RemoteOpened { job: longest() });
        for answer in answers {
            let bytes = ServerMessage::Response(u32::MAX, answer.clone()).encode();
            assert!(bytes.len() <= MAX_BYTES, "{answer:?}");
            let decoded = ServerMessage::decode(&bytes);
            match (&answer, &decoded) {
                // A long text is truncated.
                (
                    Response::Refused(Refusal::System { .. }),
                    Some(ServerMessage::Response(_, Response::Refused(Refusal::System { why }))),
                ) => assert!(why.starts_with("why")),
                _ => assert_eq!(decoded, Some(ServerMessage::Response(u32::MAX, answer))),
            }
        }
        let reasons = [
            CloseReason::Gone,
            CloseReason::Revoked,
            CloseReason::Refused,
            CloseReason::Left,
            CloseReason::Replaced,
            CloseReason::NodeLost,
            CloseReason::GoneThere,
        ];
        let mut notices = vec![Notification::MoveConnection { connection: 8 }];
        notices.extend(offers().map(|offer| Notification::ConnectionOpened {
            port: 2,
            position: u64::MAX,
            after: 9,
            offer,
        }));
        notices.extend(reasons.map(|why| Notification::ConnectionClosed { connection: 4, why }));
        for notice in notices {
            let message = ServerMessage::Notification(notice);
            let bytes = message.encode();
            assert!(bytes.len() <= MAX_BYTES, "{message:?}");
            assert_eq!(ServerMessage::decode(&bytes), Some(message));
        }
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
