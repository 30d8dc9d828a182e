//! What a process and the post office say to each other, in messages of [`shm::broker`].
//!
//! A process asks (a number, so that an answer is not taken for that to an earlier question, and a
//! [`Request`]); the post office answers (the number, and an [`Answer`]) and gives notice of what
//! happens ([`Notice`]). All numbers are little-endian; a text is its length in one byte and UTF-8.
//! Descriptors go with a message in the order given here.

use super::{Address, Class, JobKey, Refusal};
use crate::lane::Partner;
use crate::name::{QueueIndex, QueueName, SourceName};
use shm::process::StartTime;

/// The longest name of a job in bytes: two of them fit a message.
pub(crate) const MAX_JOB_NAME: usize = 64;

/// What a process asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// To be let in as this process of this job. Answered by [`Answer::Welcome`].
    Register { job: String, process: u32, key: JobKey, started: StartTime },
    /// A port of its own. Answered by [`Answer::PortOpened`].
    OpenPort { port: u16 },
    /// The name of a port in the asker's job. Answered by [`Answer::Named`], if `wait` when the
    /// port is open.
    LookUp { address: Address, wait: bool },
    /// A lane from a port to a name; `alone` if it is to have a ring of its own. Answered by
    /// [`Answer::Lane`].
    OpenLane { port: u16, name: QueueName, class: Class, alone: bool },
    /// An end of a lane has been dropped. Not answered.
    CloseLane { lane: u32, dropped: Dropped },
    /// The sources that a port accepts. Answered by [`Answer::Done`].
    Accept { port: u16, whom: Whom },
    /// The receiving end of a lane, as [`Notice::MoveLane`] has asked; with the ring's memory and
    /// the bell. Not answered.
    HandOver { lane: u32, position: u64 },
}

/// Which end of a lane has been dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    Receiver,
    Sender,
    /// The sending end, and the sender goes on by another lane.
    SenderGoesOn,
}

impl Dropped {
    pub(crate) fn is_receiver(self) -> bool {
        self == Dropped::Receiver
    }
}

/// Whose messages a port accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    Everyone,
    Nobody,
    This(SourceName),
    NotThis(SourceName),
}

/// What the post office answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Refused(Refusal),
    /// With the job's segment, the memory of the process's hall and its event, if the job has a
    /// segment. The job has so many ports a process, and so many of them are resident.
    Welcome {
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
    /// With what the [`Carrier`] says.
    Lane(LaneOffer),
    Done,
}

/// What happens without having been asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Somebody has opened a lane to this port; with the ring's memory and the bell if it has a
    /// ring. What comes over the lane `after`, if that is not 0, comes first.
    LaneOpened { port: u16, position: u64, after: u32, offer: LaneOffer },
    /// A lane is no more.
    LaneClosed { lane: u32, why: Closing },
    /// The receiving end of a lane is to go to another process.
    MoveLane { lane: u32 },
}

/// An end of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneOffer {
    pub(crate) lane: u32,
    pub(crate) carrier: Carrier,
    pub(crate) class: Class,
    /// What the receiver calls the sender.
    pub(crate) source: SourceName,
    /// Who is at the other end.
    pub(crate) partner: Partner,
}

/// What the messages of a lane travel through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A ring of so many lines. With its memory and the bell.
    Ring { lines: u32 },
    /// A queue of the receiving process's hall, which has this number; and the receive queue's
    /// number on the node. For the sender with the hall's memory and its event.
    Hall { hall: u32, port: u16, queue: QueueIndex },
}

/// Why a lane is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The process at the other end has gone.
    Gone,
    /// The right has been taken away.
    Revoked,
    /// The receiver does not accept the source.
    Refused,
    /// The other end has been dropped.
    Left,
    /// So has it, and the sender goes on by another lane.
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

    fn address(self, address: &Address) -> Self {
        self.text(&address.job).number(address.process, 4).number(address.port, 2)
    }

    fn offer(self, offer: &LaneOffer) -> Self {
        let this = self.number(offer.lane, 4).number(offer.class as u8, 1);
        let this = match offer.carrier {
            Carrier::Ring { lines } => this.number(0u8, 1).number(lines, 4),
            Carrier::Hall { hall, port, queue } => {
                this.number(1u8, 1).number(hall, 4).number(port, 2).number(queue.number(), 4)
            }
        };
        this.number(offer.source.number(), 2)
            .text(&offer.partner.job)
            .number(offer.partner.process, 4)
            .number(offer.partner.pid, 4)
    }
}

/// A message that came. Every method gives `None` at its end or where something else stands.
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

    fn address(&mut self) -> Option<Address> {
        Some(Address { job: self.text()?, process: self.number_u32()?, port: self.number_u16()? })
    }

    fn offer(&mut self) -> Option<LaneOffer> {
        let (lane, class) = (self.number_u32()?, self.class()?);
        let carrier = match self.number(1)? {
            0 => Carrier::Ring { lines: self.number_u32()? },
            1 => {
                let (hall, port) = (self.number_u32()?, self.number_u16()?);
                Carrier::Hall { hall, port, queue: QueueIndex::new(self.number_u32()?)? }
            }
            _ => return None,
        };
        let source = self.source()?;
        let partner =
            Partner { job: self.text()?, process: self.number_u32()?, pid: self.number_u32()? };
        Some(LaneOffer { lane, carrier, class, source, partner })
    }

    fn class(&mut self) -> Option<Class> {
        match self.number(1)? {
            0 => Some(Class::Request),
            1 => Some(Class::Reply),
            _ => None,
        }
    }

    /// `value` if nothing is left over.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
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
            Request::OpenLane { port, name, class, alone } => writer(4)
                .number(*port, 2)
                .number(name.number(), 2)
                .number(*class as u8, 1)
                .number(*alone, 1),
            Request::CloseLane { lane, dropped } => {
                writer(5).number(*lane, 4).number(*dropped as u8, 1)
            }
            Request::Accept { port, whom } => {
                let (kind, source) = match whom {
                    Whom::Everyone => (0u8, 0),
                    Whom::Nobody => (1, 0),
                    Whom::This(source) => (2, source.number()),
                    Whom::NotThis(source) => (3, source.number()),
                };
                writer(6).number(*port, 2).number(kind, 1).number(source, 2)
            }
            Request::HandOver { lane, position } => writer(7).number(*lane, 4).number(*position, 8),
        }
        .0
    }

    /// The question's number and the question, if it can be understood.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Request)> {
        let mut reader = Reader(bytes);
        let (kind, number) = (reader.number(1)?, reader.number_u32()?);
        let request = match kind {
            1 => {
                let (job, process) = (reader.text()?, reader.number_u32()?);
                let key = JobKey::from_halves([reader.number(8)?, reader.number(8)?]);
                Request::Register { job, process, key, started: StartTime(reader.number(8)?) }
            }
            2 => Request::OpenPort { port: reader.number_u16()? },
            3 => Request::LookUp { address: reader.address()?, wait: reader.number(1)? != 0 },
            4 => {
                let (port, name, class) = (reader.number_u16()?, reader.name()?, reader.class()?);
                Request::OpenLane { port, name, class, alone: reader.number(1)? != 0 }
            }
            5 => {
                let (lane, dropped) = (reader.number_u32()?, reader.number(1)? as usize);
                let ends = [Dropped::Receiver, Dropped::Sender, Dropped::SenderGoesOn];
                Request::CloseLane { lane, dropped: *ends.get(dropped)? }
            }
            6 => {
                let (port, kind, source) =
                    (reader.number_u16()?, reader.number(1)?, reader.source()?);
                let whom = match kind {
                    0 => Whom::Everyone,
                    1 => Whom::Nobody,
                    2 => Whom::This(source),
                    3 => Whom::NotThis(source),
                    _ => return None,
                };
                Request::Accept { port, whom }
            }
            7 => Request::HandOver { lane: reader.number_u32()?, position: reader.number(8)? },
            _ => return None,
        };
        reader.end((number, request))
    }
}

/// Anything that the post office says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Answer(u32, Answer),
    Notice(Notice),
}

impl Answer {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let writer = |kind: u8| Writer(Vec::with_capacity(64)).number(kind, 1).number(number, 4);
        match self {
            Answer::Refused(refusal) => {
                let (code, number, text) = refusal.parts();
                writer(0).number(code, 1).number(number, 4).text(text)
            }
            Answer::Welcome { ports, resident } => writer(1).number(*ports, 2).number(*resident, 2),
            Answer::PortOpened { name, queue } => {
                writer(2).number(name.number(), 2).number(queue.number(), 4)
            }
            Answer::Named { name } => writer(3).number(name.number(), 2),
            Answer::Lane(offer) => writer(4).offer(offer),
            Answer::Done => writer(5),
        }
        .0
    }
}

impl Notice {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = |kind: u8| Writer(Vec::with_capacity(64)).number(kind, 1);
        match self {
            Notice::LaneOpened { port, position, after, offer } => {
                writer(128).number(*port, 2).number(*position, 8).number(*after, 4).offer(offer)
            }
            Notice::LaneClosed { lane, why } => writer(129).number(*lane, 4).number(*why as u8, 1),
            Notice::MoveLane { lane } => writer(130).number(*lane, 4),
        }
        .0
    }
}

impl Said {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Said> {
        let mut reader = Reader(bytes);
        let kind = reader.number(1)?;
        if kind >= 128 {
            let notice = match kind {
                128 => {
                    let (port, position, after) =
                        (reader.number_u16()?, reader.number(8)?, reader.number_u32()?);
                    Notice::LaneOpened { port, position, after, offer: reader.offer()? }
                }
                129 => {
                    let (lane, why) = (reader.number_u32()?, reader.number(1)?);
                    let reasons = [
                        Closing::Gone,
                        Closing::Revoked,
                        Closing::Refused,
                        Closing::Left,
                        Closing::Replaced,
                    ];
                    Notice::LaneClosed { lane, why: *reasons.get(why as usize)? }
                }
                130 => Notice::MoveLane { lane: reader.number_u32()? },
                _ => return None,
            };
            return reader.end(Said::Notice(notice));
        }
        let number = reader.number_u32()?;
        let answer = match kind {
            0 => {
                let (code, number, text) =
                    (reader.number(1)?, reader.number_u32()?, reader.text()?);
                Answer::Refused(Refusal::from_parts(code as u8, number, text)?)
            }
            1 => Answer::Welcome { ports: reader.number_u16()?, resident: reader.number_u16()? },
            2 => {
                let name = reader.name()?;
                Answer::PortOpened { name, queue: QueueIndex::new(reader.number_u32()?)? }
            }
            3 => Answer::Named { name: reader.name()? },
            4 => Answer::Lane(reader.offer()?),
            5 => Answer::Done,
            _ => return None,
        };
        reader.end(Said::Answer(number, answer))
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

    fn offers() -> [LaneOffer; 2] {
        let partner = Partner { job: longest(), process: u32::MAX, pid: 7 };
        let source = SourceName::new(16_383).expect("the last");
        let queue = QueueIndex::new(1 << 19).expect("small");
        let hall = Carrier::Hall { hall: u32::MAX, port: u16::MAX, queue };
        [(Carrier::Ring { lines: 256 }, Class::Request), (hall, Class::Reply)].map(
            |(carrier, class)| LaneOffer {
                lane: u32::MAX,
                carrier,
                class,
                source,
                partner: partner.clone(),
            },
        )
    }

    fn requests() -> Vec<Request> {
        let name = QueueName::new(16_383).expect("the last");
        let source = SourceName::from(name);
        let key = JobKey::from_halves([u64::MAX - 3, 5]);
        let started = StartTime(u64::MAX);
        let whom = [Whom::Everyone, Whom::Nobody, Whom::This(source), Whom::NotThis(source)];
        let mut all = vec![
            Request::Register { job: longest(), process: 3, key, started },
            Request::OpenPort { port: u16::MAX },
            Request::LookUp {
                address: Address { job: longest(), process: 9, port: 2 },
                wait: true,
            },
            Request::OpenLane { port: 1, name, class: Class::Request, alone: true },
            Request::OpenLane { port: 1, name, class: Class::Reply, alone: false },
            Request::CloseLane { lane: 1 << 31, dropped: Dropped::Receiver },
            Request::CloseLane { lane: 1, dropped: Dropped::Sender },
            Request::CloseLane { lane: 1, dropped: Dropped::SenderGoesOn },
            Request::HandOver { lane: 5, position: u64::MAX },
        ];
        all.extend(whom.into_iter().map(|whom| match whom {
            // Those without a source carry a zero.
            Whom::Everyone | Whom::Nobody => Request::Accept { port: 0, whom },
            _ => Request::Accept { port: 7, whom },
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
        let mut answers: Vec<Answer> = refusals.map(Answer::Refused).collect();
        assert!(answers.len() > 10, "all reasons");
        answers.push(Answer::Welcome { ports: 4, resident: 16 });
        answers.push(Answer::PortOpened { name, queue: QueueIndex::new(99).expect("small") });
        answers.extend([Answer::Named { name }, Answer::Done]);
        answers.extend(offers().map(Answer::Lane));
        for answer in answers {
            let bytes = answer.encode(u32::MAX);
            assert!(bytes.len() <= MAX_BYTES, "{answer:?}");
            let decoded = Said::decode(&bytes);
            match (&answer, &decoded) {
                // A long text is cut.
                (
                    Answer::Refused(Refusal::System { .. }),
                    Some(Said::Answer(_, Answer::Refused(cut))),
                ) => {
                    assert!(cut.parts().2.starts_with("whywhy"));
                }
                _ => assert_eq!(decoded, Some(Said::Answer(u32::MAX, answer))),
            }
        }
        let reasons =
            [Closing::Gone, Closing::Revoked, Closing::Refused, Closing::Left, Closing::Replaced];
        let mut notices = vec![Notice::MoveLane { lane: 8 }];
        notices.extend(offers().map(|offer| Notice::LaneOpened {
            port: 2,
            position: u64::MAX,
            after: 9,
            offer,
        }));
        notices.extend(reasons.map(|why| Notice::LaneClosed { lane: 4, why }));
        for notice in notices {
            let bytes = notice.encode();
            assert!(bytes.len() <= MAX_BYTES, "{notice:?}");
            assert_eq!(Said::decode(&bytes), Some(Said::Notice(notice)));
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
            let _ = (Request::decode(&bytes), Said::decode(&bytes));
        }
    }
}
