//! Ends of all queues for the suite `testing::mechanism`.

use super::names::{
    AppendReceiver, AppendSender, BasicHeader, BasicReceiver, BasicSender, CacheLineHeader,
    CacheLineMessage, CacheLineReceiver, CacheLineSender, ChannelReceiver, ChannelSender,
    ExpressMessage, ExpressReceiver, ExpressSender, RecvError, SendError, SourceName,
};
use std::ops::DerefMut;
use testing::mechanism::{End, Receiver, Sender, Wait, content};

/// Outcome of a send for the suite.
pub(crate) fn sent(outcome: Result<(), SendError>) -> Result<bool, End> {
    match outcome {
        Ok(()) => Ok(true),
        Err(SendError::Full | SendError::Timeout) => Ok(false),
        Err(SendError::Closed) => Err(End::Closed),
        Err(SendError::RankExited { rank }) => Err(End::Exited(rank)),
        Err(other) => panic!("{other}"),
    }
}

/// Outcome of a failed receive for the suite.
pub(crate) fn ended<T>(error: RecvError) -> Result<Option<T>, End> {
    match error {
        RecvError::Empty | RecvError::Timeout => Ok(None),
        RecvError::Closed => Err(End::Closed),
        RecvError::RankExited { rank } => Err(End::Exited(rank)),
        other => panic!("{other}"),
    }
}

fn name(rank: u32) -> SourceName {
    SourceName::new(rank as u16).expect("few ranks")
}

fn word(from: u32, number: u64) -> ExpressMessage {
    ExpressMessage::of_number(name(from), 3, number).expect("five bytes")
}

pub(crate) fn express<'a>(from: u32, sender: ExpressSender) -> Sender<'a> {
    Box::new(move |number, wait| {
        sent(match wait {
            Wait::No => sender.try_send(&word(from, number)),
            Wait::For(time) => sender.send_timeout(&word(from, number), time),
            Wait::Forever => sender.send(&word(from, number)),
        })
    })
}

pub(crate) fn of_express<'a>(mut receiver: ExpressReceiver) -> Receiver<'a> {
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(),
            Wait::For(time) => receiver.recv_timeout(time),
            Wait::Forever => receiver.recv().map(Some),
        };
        let read = |word: ExpressMessage| (word.source().number().into(), word.number());
        received.map_or_else(ended, |word| Ok(word.map(read)))
    })
}

/// Line whose header has the low bits of the number, and whose length and words depend on it.
pub(crate) fn line(from: u32, number: u64) -> CacheLineMessage {
    let header = CacheLineHeader { source: name(from), handler: 3, tag: !number as u16 };
    let words = [0, 8, 16, 24, 32, 40].map(|bits| number.rotate_left(bits).to_le_bytes());
    let length = 8 + (number % 41) as usize;
    CacheLineMessage::new(header, &words.concat()[..length]).expect("at most 48 bytes")
}

/// Sender and number of a line, of which every byte is checked.
pub(crate) fn of_line(got: &CacheLineMessage) -> (u32, u64) {
    let from = got.header().source.number().into();
    let number = u64::from_le_bytes(*got.data().first_chunk().expect("at least 8 bytes"));
    assert_eq!(*got, line(from, number), "whole and of one piece");
    (from, number)
}

pub(crate) fn cache_line<'a>(from: u32, sender: CacheLineSender) -> Sender<'a> {
    Box::new(move |number, wait| {
        sent(match wait {
            Wait::No => sender.try_send(&line(from, number)),
            Wait::For(time) => sender.send_timeout(&line(from, number), time),
            Wait::Forever => sender.send(&line(from, number)),
        })
    })
}

pub(crate) fn of_cache_line<'a>(mut receiver: CacheLineReceiver) -> Receiver<'a> {
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(),
            Wait::For(time) => receiver.recv_timeout(time),
            Wait::Forever => receiver.recv().map(Some),
        };
        received.map_or_else(ended, |line| Ok(line.as_ref().map(of_line)))
    })
}

fn header(from: u32, number: u64) -> BasicHeader {
    BasicHeader { source: name(from), handler: number as u8 }
}

/// Messages of all lengths that the ring has.
pub(crate) fn basic<'a>(from: u32, mut sender: BasicSender) -> Sender<'a> {
    let longest = sender.longest_message();
    Box::new(move |number, wait| {
        let (header, bytes) = (header(from, number), content(from, number, 0, longest));
        match wait {
            Wait::No => match sender.try_send(header, &bytes) {
                Ok(is_sent) => Ok(is_sent),
                Err(error) => sent(Err(error)),
            },
            Wait::For(time) => sent(sender.send_timeout(header, &bytes, time)),
            Wait::Forever => sent(sender.send(header, &bytes)),
        }
    })
}

pub(crate) fn of_basic<'a>(from: u32, lines: u64, mut receiver: BasicReceiver) -> Receiver<'a> {
    let longest = lines as usize / 4 * 64 - 8;
    let mut number = 0;
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(),
            Wait::For(time) => receiver.recv_timeout(time).map(Some),
            Wait::Forever => receiver.recv().map(Some),
        };
        let message = match received {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => message,
            Err(error) => return ended(error),
        };
        assert_eq!(message.header(), header(from, number));
        assert!(message.as_slice() == content(from, number, 0, longest), "message {number}");
        number += 1;
        Ok(Some((from, number - 1)))
    })
}

/// Records of all lengths that have room for sender and number.
pub(crate) fn append<'a>(from: u32, sender: AppendSender) -> Sender<'a> {
    let longest = sender.record_bytes() as usize;
    Box::new(move |number, wait| {
        let mut record = content(from, number, 12, longest);
        record[..4].copy_from_slice(&from.to_le_bytes());
        record[4..12].copy_from_slice(&number.to_le_bytes());
        sent(match wait {
            Wait::No => sender.try_send(&record),
            Wait::For(time) => sender.send_timeout(&record, time),
            Wait::Forever => sender.send(&record),
        })
    })
}

pub(crate) fn of_append<'a>(mut receiver: AppendReceiver) -> Receiver<'a> {
    let longest = receiver.record_bytes() as usize;
    let mut record = Vec::new();
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(&mut record),
            Wait::For(time) => receiver.recv_timeout(&mut record, time),
            Wait::Forever => receiver.recv(&mut record).map(|()| true),
        };
        match received {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return ended(error),
        }
        let from = u32::from_le_bytes(record[..4].try_into().expect("4 bytes"));
        let number = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
        assert!(record[12..] == content(from, number, 12, longest)[12..], "record {number}");
        Ok(Some((from, number)))
    })
}

/// Value of a channel: any bits, of which some are the same as before.
fn value(number: u64) -> u64 {
    (number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn channel<'a>(mut sender: ChannelSender<u64>) -> Sender<'a> {
    Box::new(move |number, wait| {
        sent(match wait {
            Wait::No => sender.try_send(value(number)),
            Wait::For(time) => sender.send_timeout(value(number), time),
            Wait::Forever => sender.send(value(number)),
        })
    })
}

pub(crate) fn of_channel<'a, R>(from: u32, mut receiver: R) -> Receiver<'a>
where
    R: DerefMut<Target = ChannelReceiver> + Send + 'a,
{
    let mut number = 0;
    Box::new(move |wait| {
        let received = match wait {
            Wait::No => receiver.try_recv(),
            Wait::For(time) => receiver.recv_timeout(time),
            Wait::Forever => receiver.recv(),
        };
        match received {
            Ok(found) => assert_eq!(found, value(number), "value {number}"),
            Err(error) => return ended(error),
        }
        number += 1;
        Ok(Some((from, number - 1)))
    })
}
