//! Messages between a process and the name server, over [`shm::broker`].
//!
//! A process sends a number and a [`Request`]; the name server answers with the same number, which
//! matches responses to requests, and a [`Response`]. It also sends [`Notification`]s. All numbers
//! are little-endian; a text is its length in one byte and UTF-8. Descriptors accompany a message
//! in the documented order.

use super::address::{JobKey, Peer, PortAddress};
use super::error::Refusal;
use crate::id::{QueueIndex, QueueName, SourceName};
use crate::receive_queues::Class;
use shm::process::StartTime;

/// Longest name of a job in bytes: two of them fit into a message.
pub(crate) const MAX_JOB_NAME: usize = 64;

/// A request of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Registers the sender as this process of this job. Answered by [`Response::Registered`].
    Register { job: String, process: u32, key: JobKey, started: StartTime },
    /// Opens a port of the sender. Answered by [`Response::PortOpened`].
    OpenPort { port: u16 },
    /// Looks up the name of a port in the sender's job. Answered by [`Response::Named`]; with
    /// `wait`, when the port is open.
    LookUp { address: PortAddress, wait: bool },
    /// Opens a connection from a port to a name; with `dedicated`, one with a ring. Answered by
    /// [`Response::Connection`].
    OpenConnection { port: u16, name: QueueName, class: Class, dedicated: bool },
    /// Reports that an end of a connection has been dropped. Not answered.
    CloseConnection { connection: u32, dropped: DroppedEnd },
    /// Changes the sources that a port accepts. Answered by [`Response::Done`].
    Accept { port: u16, filter: SourceFilter },
    /// Returns the receiving end of a connection after [`Notification::MoveConnection`], with the
    /// ring's memory and the socket. Not answered.
    HandOver { connection: u32, position: u64 },
}

/// The end of a connection that has been dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DroppedEnd {
    Receiver,
    Sender,
    /// The sending end; the sender continues on another connection.
    SenderGoesOn,
}

impl DroppedEnd {
    pub(crate) fn is_receiver(self) -> bool {
        self == DroppedEnd::Receiver
    }
}

/// A change of the sources that a port accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceFilter {
    All,
    Nothing,
    Add(SourceName),
    Remove(SourceName),
}

/// A response of the name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Response {
    Refused(Refusal),
    /// Number of ports per process of the job, and number of resident ones. With the job's segment,
    /// the memory of the process's receive queues and its event, if the job has a segment.
    Registered {
        ports: u16,
        resident: u16,
    },
    /// With the destination table and the inverse table.
    PortOpened {
        name: QueueName,
        queue: QueueIndex,
    },
    Named {
        name: QueueName,
    },
    /// With the descriptors of the [`TransportOffer`].
    Connection(ConnectionOffer),
    Done,
}

/// A notification of the name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notification {
    /// Another process has opened a connection to this port; with the ring's memory and the socket
    /// if it has a ring. Messages of the connection `after`, if that is not 0, come first.
    ConnectionOpened { port: u16, position: u64, after: u32, offer: ConnectionOffer },
    /// A connection is closed.
    ConnectionClosed { connection: u32, why: CloseReason },
    /// The receiving end of a connection is to move to another process.
    MoveConnection { connection: u32 },
}

/// An end of a connection, as offered to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionOffer {
    pub(crate) connection: u32,
    pub(crate) transport: TransportOffer,
    pub(crate) class: Class,
    /// Name of the sender in the receiver's job.
    pub(crate) source: SourceName,
    /// Process at the other end.
    pub(crate) peer: Peer,
}

/// Transport of a connection's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportOffer {
    /// A ring of this many lines. With its memory and the socket.
    Ring { lines: u32 },
    /// A receive queue of the process with the number `member`, and the queue's number on the node.
    /// For the sender, with the memory of the receive queues and their event.
    Queue { member: u32, port: u16, queue: QueueIndex },
}

/// Reason why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The process at the other end has ended.
    Gone,
    /// The right to send has been revoked.
    Revoked,
    /// The receiver does not accept the source.
    Refused,
    /// The other end has been dropped.
    Left,
    /// The other end has been dropped, and the sender continues on another connection.
    Replaced,
}

/// A message under construction.
struct Writer(Vec<u8>);

impl Writer {
    fn number(mut self, value: impl Into<u64>, bytes: usize) -> Self {
        self.0.extend_from_slice(&value.into().to_le_bytes()[..bytes]);
        self
    }

    fn text(self, text: &str) -> Self {
        let mut end = text.len().min(usize::from(u8::MAX) - 64);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut this = self.number(end as u64, 1);
        this.0.extend_from_slice(&text.as_bytes()[..end]);
        this
    }

    fn address(self, address: &PortAddress) -> Self {
        self.text(&address.job).number(address.process, 4).number(address.port, 2)
    }

    fn offer(self, offer: &ConnectionOffer) -> Self {
        let this = self.number(offer.connection, 4).number(offer.class as u8, 1);
        let this = match offer.transport {
            TransportOffer::Ring { lines } => this.number(0u8, 1).number(lines, 4),
            TransportOffer::Queue { member, port, queue } => {
                this.number(1u8, 1).number(member, 4).number(port, 2).number(queue.number(), 4)
            }
        };
        this.number(offer.source.number(), 2)
            .text(&offer.peer.job)
            .number(offer.peer.process, 4)
            .number(offer.peer.pid, 4)
    }
}

/// A received message. Every method returns `None` at its end or for an invalid value.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(taken);
        Some(u64::from_le_bytes(whole))
    }

    fn number_u32(&mut self) -> Option<u32> {
        self.number(4).map(|number| number as u32)
    }

    fn number_u16(&mut self) -> Option<u16> {
        self.number(2).map(|number| number as u16)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number(1)? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }

    fn name(&mut self) -> Option<QueueName> {
        self.number_u16().and_then(QueueName::new)
    }

    fn source(&mut self) -> Option<SourceName> {
        self.number_u16().and_then(SourceName::new)
    }

    fn address(&mut self) -> Option<PortAddress> {
        Some(PortAddress {
            job: self.text()?,
            process: self.number_u32()?,
            port: self.number_u16()?,
        })
    }

    fn offer(&mut self) -> Option<ConnectionOffer> {
        let connection = self.number_u32()?;
        let class = self.class()?;
        let transport = match self.number(1)? {
            0 => TransportOffer::Ring { lines: self.number_u32()? },
            1 => {
                let member = self.number_u32()?;
                let port = self.number_u16()?;
                TransportOffer::Queue { member, port, queue: QueueIndex::new(self.number_u32()?)? }
            }
            _ => return None,
        };
        let source = self.source()?;
        let peer = Peer { job: self.text()?, process: self.number_u32()?, pid: self.number_u32()? };
        Some(ConnectionOffer { connection, transport, class, source, peer })
    }

    fn class(&mut self) -> Option<Class> {
        match self.number(1)? {
            0 => Some(Class::Request),
            1 => Some(Class::Reply),
            _ => None,
        }
    }

    /// Returns `value` if all bytes have been read.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Refusal {
    /// Returns the code, the number and the text of a refusal.
    fn parts(&self) -> (u8, u32, &str) {
        match self {
            Refusal::NotUnderstood => (0, 0, ""),
            Refusal::UnknownJob => (1, 0, ""),
            Refusal::WrongKey => (2, 0, ""),
            Refusal::NoSuchProcess { processes } => (3, *processes, ""),
            Refusal::ProcessTaken { pid } => (4, *pid, ""),
            Refusal::Unwatchable => (5, 0, ""),
            Refusal::NoSuchPort { ports } => (6, u32::from(*ports), ""),
            Refusal::PortOpen => (7, 0, ""),
            Refusal::PortNotOpen => (8, 0, ""),
            Refusal::NoRight => (9, 0, ""),
            Refusal::UnknownName => (10, 0, ""),
            Refusal::RevokedName => (11, 0, ""),
            Refusal::ProcessGone => (12, 0, ""),
            Refusal::TableFull => (13, 0, ""),
            Refusal::SourceRefused => (14, 0, ""),
            Refusal::TooManyConnections => (15, 0, ""),
            Refusal::NoQueue => (16, 0, ""),
            Refusal::ConnectionOpen => (17, 0, ""),
            Refusal::System { why } => (18, 0, why),
            Refusal::Moving => (19, 0, ""),
        }
    }

    fn from_parts(code: u8, number: u32, why: String) -> Option<Refusal> {
        Some(match code {
            0 => Refusal::NotUnderstood,
            1 => Refusal::UnknownJob,
            2 => Refusal::WrongKey,
            3 => Refusal::NoSuchProcess { processes: number },
            4 => Refusal::ProcessTaken { pid: number },
            5 => Refusal::Unwatchable,
            6 => Refusal::NoSuchPort { ports: number as u16 },
            7 => Refusal::PortOpen,
            8 => Refusal::PortNotOpen,
            9 => Refusal::NoRight,
            10 => Refusal::UnknownName,
            11 => Refusal::RevokedName,
            12 => Refusal::ProcessGone,
            13 => Refusal::TableFull,
            14 => Refusal::SourceRefused,
            15 => Refusal::TooManyConnections,
            16 => Refusal::NoQueue,
            17 => Refusal::ConnectionOpen,
            18 => Refusal::System { why },
            19 => Refusal::Moving,
            _ => return None,
        })
    }
}

impl Request {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let writer = |kind: u8| Writer(Vec::with_capacity(64)).number(kind, 1).number(number, 4);
        match self {
            Request::Register { job, process, key, started } => {
                let [low, high] = key.halves();
                writer(1)
                    .text(job)
                    .number(*process, 4)
                    .number(low, 8)
                    .number(high, 8)
                    .number(started.0, 8)
            }
            Request::OpenPort { port } => writer(2).number(*port, 2),
            Request::LookUp { address, wait } => writer(3).address(address).number(*wait, 1),
            Request::OpenConnection { port, name, class, dedicated } => writer(4)
                .number(*port, 2)
                .number(name.number(), 2)
                .number(*class as u8, 1)
                .number(*dedicated, 1),
            Request::CloseConnection { connection, dropped } => {
                writer(5).number(*connection, 4).number(*dropped as u8, 1)
            }
            Request::Accept { port, filter } => {
                let (kind, source) = match filter {
                    SourceFilter::All => (0u8, 0),
                    SourceFilter::Nothing => (1, 0),
                    SourceFilter::Add(source) => (2, source.number()),
                    SourceFilter::Remove(source) => (3, source.number()),
                };
                writer(6).number(*port, 2).number(kind, 1).number(source, 2)
            }
            Request::HandOver { connection, position } => {
                writer(7).number(*connection, 4).number(*position, 8)
            }
        }
        .0
    }

    /// Decodes the number and the request, if they are valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Request)> {
        let mut reader = Reader(bytes);
        let kind = reader.number(1)?;
        let number = reader.number_u32()?;
        let request = match kind {
            1 => {
                let job = reader.text()?;
                let process = reader.number_u32()?;
                let key = JobKey::from_halves([reader.number(8)?, reader.number(8)?]);
                Request::Register { job, process, key, started: StartTime(reader.number(8)?) }
            }
            2 => Request::OpenPort { port: reader.number_u16()? },
            3 => Request::LookUp { address: reader.address()?, wait: reader.number(1)? != 0 },
            4 => {
                let port = reader.number_u16()?;
                let name = reader.name()?;
                let class = reader.class()?;
                Request::OpenConnection { port, name, class, dedicated: reader.number(1)? != 0 }
            }
            5 => {
                let connection = reader.number_u32()?;
                let dropped = reader.number(1)? as usize;
                let ends = [DroppedEnd::Receiver, DroppedEnd::Sender, DroppedEnd::SenderGoesOn];
                Request::CloseConnection { connection, dropped: *ends.get(dropped)? }
            }
            6 => {
                let (port, kind, source) =
                    (reader.number_u16()?, reader.number(1)?, reader.source()?);
                let filter = match kind {
                    0 => SourceFilter::All,
                    1 => SourceFilter::Nothing,
                    2 => SourceFilter::Add(source),
                    3 => SourceFilter::Remove(source),
                    _ => return None,
                };
                Request::Accept { port, filter }
            }
            7 => {
                Request::HandOver { connection: reader.number_u32()?, position: reader.number(8)? }
            }
            _ => return None,
        };
        reader.end((number, request))
    }
}

/// Any message of the name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    Response(u32, Response),
    Notification(Notification),
}

impl Response {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let writer = |kind: u8| Writer(Vec::with_capacity(64)).number(kind, 1).number(number, 4);
        match self {
            Response::Refused(refusal) => {
                let (code, number, text) = refusal.parts();
                writer(0).number(code, 1).number(number, 4).text(text)
            }
            Response::Registered { ports, resident } => {
                writer(1).number(*ports, 2).number(*resident, 2)
            }
            Response::PortOpened { name, queue } => {
                writer(2).number(name.number(), 2).number(queue.number(), 4)
            }
            Response::Named { name } => writer(3).number(name.number(), 2),
            Response::Connection(offer) => writer(4).offer(offer),
            Response::Done => writer(5),
        }
        .0
    }
}

impl Notification {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = |kind: u8| Writer(Vec::with_capacity(64)).number(kind, 1);
        match self {
            Notification::ConnectionOpened { port, position, after, offer } => {
                writer(128).number(*port, 2).number(*position, 8).number(*after, 4).offer(offer)
            }
            Notification::ConnectionClosed { connection, why } => {
                writer(129).number(*connection, 4).number(*why as u8, 1)
            }
            Notification::MoveConnection { connection } => writer(130).number(*connection, 4),
        }
        .0
    }
}

impl ServerMessage {
    pub(crate) fn decode(bytes: &[u8]) -> Option<ServerMessage> {
        let mut reader = Reader(bytes);
        let kind = reader.number(1)?;
        if kind >= 128 {
            let notice = match kind {
                128 => {
                    let (port, position, after) =
                        (reader.number_u16()?, reader.number(8)?, reader.number_u32()?);
                    Notification::ConnectionOpened { port, position, after, offer: reader.offer()? }
                }
                129 => {
                    let connection = reader.number_u32()?;
                    let why = reader.number(1)?;
                    let reasons = [
                        CloseReason::Gone,
                        CloseReason::Revoked,
                        CloseReason::Refused,
                        CloseReason::Left,
                        CloseReason::Replaced,
                    ];
                    Notification::ConnectionClosed { connection, why: *reasons.get(why as usize)? }
                }
                130 => Notification::MoveConnection { connection: reader.number_u32()? },
                _ => return None,
            };
            return reader.end(ServerMessage::Notification(notice));
        }
        let number = reader.number_u32()?;
        let answer = match kind {
            0 => {
                let (code, number, text) =
                    (reader.number(1)?, reader.number_u32()?, reader.text()?);
                Response::Refused(Refusal::from_parts(code as u8, number, text)?)
            }
            1 => {
                Response::Registered { ports: reader.number_u16()?, resident: reader.number_u16()? }
            }
            2 => {
                let name = reader.name()?;
                Response::PortOpened { name, queue: QueueIndex::new(reader.number_u32()?)? }
            }
            3 => Response::Named { name: reader.name()? },
            4 => Response::Connection(reader.offer()?),
            5 => Response::Done,
            _ => return None,
        };
        reader.end(ServerMessage::Response(number, answer))
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
        let key = JobKey::from_halves([u64::MAX - 3, 5]);
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
        ];
        all.extend(filter.into_iter().map(|filter| match filter {
            // Changes without a source carry a zero.
            SourceFilter::All | SourceFilter::Nothing => Request::Accept { port: 0, filter },
            _ => Request::Accept { port: 7, filter },
        }));
        all
    }

    #[test]
    fn what_is_said_is_understood() {
        for request in requests() {
            let bytes = request.encode(77);
            assert!(bytes.len() <= MAX_BYTES, "{request:?}");
            assert_eq!(Request::decode(&bytes), Some((77, request)));
        }
        let name = QueueName::new(3).expect("small");
        let refusals =
            (0..=u8::MAX).filter_map(|code| Refusal::from_parts(code, 9, "why".repeat(200)));
        let mut answers: Vec<Response> = refusals.map(Response::Refused).collect();
        assert!(answers.len() > 10, "all reasons");
        answers.push(Response::Registered { ports: 4, resident: 16 });
        answers.push(Response::PortOpened { name, queue: QueueIndex::new(99).expect("small") });
        answers.extend([Response::Named { name }, Response::Done]);
        answers.extend(offers().map(Response::Connection));
        for answer in answers {
            let bytes = answer.encode(u32::MAX);
            assert!(bytes.len() <= MAX_BYTES, "{answer:?}");
            let decoded = ServerMessage::decode(&bytes);
            match (&answer, &decoded) {
                // A long text is truncated.
                (
                    Response::Refused(Refusal::System { .. }),
                    Some(ServerMessage::Response(_, Response::Refused(cut))),
                ) => {
                    assert!(cut.parts().2.starts_with("whywhy"));
                }
                _ => assert_eq!(decoded, Some(ServerMessage::Response(u32::MAX, answer))),
            }
        }
        let reasons = [
            CloseReason::Gone,
            CloseReason::Revoked,
            CloseReason::Refused,
            CloseReason::Left,
            CloseReason::Replaced,
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
            let bytes = notice.encode();
            assert!(bytes.len() <= MAX_BYTES, "{notice:?}");
            assert_eq!(ServerMessage::decode(&bytes), Some(ServerMessage::Notification(notice)));
        }
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_not_understood() {
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
        fn noise_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..MAX_BYTES)) {
            let _ = (Request::decode(&bytes), ServerMessage::decode(&bytes));
        }
    }
}
