//! Basic rings with a sender on another node.

use super::ends::{MAX_BASIC_LINES, Sink, SinkError, Source};
use crate::basic::{HeaderWord, Receiver, Sender};
use crate::error::{CreateError, RecvError, SendError};
use crate::one_poll::PollSet;
use crate::request::Requested;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Opens the receiving end of the outgoing ring at an offset, as the member of a poll set.
///
/// # Errors
/// [`CreateError::Size`] for more than [`MAX_BASIC_LINES`] lines, [`CreateError::Segment`],
/// [`CreateError::NoIndex`].
pub fn outgoing_basic(
    segment: &Arc<Segment>,
    at: Offset,
    lines: u64,
    (set, index): (&PollSet, usize),
) -> Result<Box<dyn Source>, CreateError> {
    check_lines(lines)?;
    let receiver = Receiver::connect(segment, at, lines)?.in_set(set, index)?;
    let longest = (lines / 4 * 64) as usize;
    Ok(Box::new(BasicSource { receiver: Some(receiver), longest }))
}

/// Opens the sending end of the ring at an offset.
///
/// # Errors
/// [`CreateError::Size`] for more than [`MAX_BASIC_LINES`] lines, [`CreateError::Segment`].
pub fn incoming_basic(
    segment: &Arc<Segment>,
    at: Offset,
    lines: u64,
) -> Result<Box<dyn Sink>, CreateError> {
    check_lines(lines)?;
    Ok(Box::new(BasicSink { sender: Some(Sender::connect(segment, at, lines)?) }))
}

fn check_lines(lines: u64) -> Result<(), CreateError> {
    if lines <= MAX_BASIC_LINES {
        return Ok(());
    }
    Err(CreateError::Size {
        object: "Basic ring between nodes",
        requested: lines,
        unit: "lines",
        limits: "a power of two from 4 to 2048",
    })
}

#[derive(Debug)]
struct BasicSource {
    /// `None` once one of the ends has closed it.
    receiver: Option<Receiver>,
    longest: usize,
}

impl Source for BasicSource {
    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        match receiver.take_encoded(limit, into) {
            // Its sender has sent everything.
            Err(RecvError::Closed) => {
                self.receiver = None;
                Ok(())
            }
            taken => taken,
        }
    }

    fn is_ready(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_ready)
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn close(&mut self) {
        self.receiver = None;
    }
}

#[derive(Debug)]
struct BasicSink {
    /// `None` once nothing follows.
    sender: Option<Sender>,
}

impl Sink for BasicSink {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        // Nothing follows its end, and what a receiver that has closed the ring would get is lost.
        let Some(sender) = &mut self.sender else { return Ok(bytes.len()) };
        let mut sent = 0;
        let outcome = put_messages(sender, bytes, &mut sent);
        // Also what precedes damaged bytes: nothing else may follow that publishes it.
        sender.publish();
        outcome?;
        if sent == bytes.len() {
            // Otherwise a request for space stays: this may be the last attempt before a sleep.
            sender.stir();
        }
        Ok(sent)
    }

    fn request(&mut self) -> Requested {
        self.sender.iter().for_each(Sender::request_space);
        Requested::Renewed
    }

    fn end(&mut self) {
        // Writes the end behind the last message.
        self.sender = None;
    }
}

/// Writes messages as far as there is space, and counts their bytes.
fn put_messages(sender: &mut Sender, bytes: &[u8], sent: &mut usize) -> Result<(), SinkError> {
    while let Some(rest) = bytes.get(*sent..).filter(|rest| !rest.is_empty()) {
        let invalid = SinkError::Invalid;
        let (word, rest) = rest.split_first_chunk().ok_or(invalid)?;
        let decoded = HeaderWord::decode(u64::from_le_bytes(*word), 0);
        let Ok(Some(HeaderWord::Message { header, bytes: length })) = decoded else {
            return Err(invalid);
        };
        let message = rest.get(..length).ok_or(invalid)?;
        match sender.try_reserve(header, length) {
            Ok(Some(buffer)) => buffer.finish_with(message),
            Ok(None) => break,
            // The sender's ring is as long and would have refused it: the record is damaged.
            Err(SendError::TooLong { .. }) => return Err(invalid),
            // The receiver has closed the ring and takes nothing.
            Err(_) => {
                *sent = bytes.len();
                break;
            }
        }
        *sent += 8 + length.next_multiple_of(8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basic::{BasicHeader, bytes_for};
    use crate::remote_waits::NoWaits;
    use shm::event::Event;
    use shm::segment::Backing;

    const LINES: u64 = 16;

    /// A receiver, the event of its node service, and the sink to it.
    fn ring() -> (Receiver, Event, Box<dyn Sink>) {
        let segment = Segment::create(1 << 16, Backing::Memory).expect("memory");
        let segment = Arc::new(segment);
        let arena = shm::arena::Arena::new(Arc::clone(&segment), 64..1 << 16).expect("inside");
        let bytes = bytes_for(LINES).expect("a power of two");
        let at = arena.allocate_zeroed(bytes, 128).expect("memory");
        let event = Event::new().expect("a descriptor");
        let receiver = Receiver::connect(&segment, at, LINES).expect("a ring");
        let receiver = receiver.with_remote_sender(event.clone(), Arc::new(NoWaits));
        (receiver, event, incoming_basic(&segment, at, LINES).expect("a ring"))
    }

    /// A message without bytes.
    fn message() -> [u8; 8] {
        HeaderWord::Message { header: BasicHeader::default(), bytes: 0 }.encode(0).to_le_bytes()
    }

    #[test]
    fn messages_before_damaged_bytes_arrive() {
        let (mut receiver, _event, mut service) = ring();
        let bytes = [message(), [0xff; 8]].concat();
        assert_eq!(service.put(&bytes), Err(SinkError::Invalid));
        assert!(receiver.try_recv().expect("open").is_some());
        assert!(receiver.try_recv().expect("open").is_none());
    }

    #[test]
    fn a_request_for_space_outlives_the_last_attempt_before_a_sleep() {
        let (mut receiver, event, mut service) = ring();
        let message = message();
        for _ in 0..3 {
            while service.put(&message) == Ok(8) {}
            service.request();
            shm::fence::heavy();
            assert_eq!(service.put(&message), Ok(0), "it is full");
            let mut taken = 0;
            while !event.clear() {
                assert!(
                    receiver.try_recv().expect("open").is_some(),
                    "notified before it is empty"
                );
                taken += 1;
            }
            assert_eq!(taken, LINES / 4, "when lines are released");
            assert_eq!(service.put(&message), Ok(8));
        }
    }
}
