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
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let invalid = SinkError::Invalid;
            let (word, rest) = rest.split_first_chunk().ok_or(invalid)?;
            let decoded = HeaderWord::decode(u64::from_le_bytes(*word), 0);
            let Ok(Some(HeaderWord::Message { header, bytes: length })) = decoded else {
                return Err(invalid);
            };
            let message = rest.get(..length).ok_or(invalid)?;
            let buffer = match sender.try_reserve(header, length) {
                Ok(Some(buffer)) => buffer,
                Ok(None) => break,
                // The sender's ring is as long and would have refused it: the record is damaged.
                Err(SendError::TooLong { .. }) => return Err(invalid),
                Err(_) => return Ok(bytes.len()),
            };
            buffer.finish_with(message);
            sent += 8 + length.next_multiple_of(8);
        }
        sender.publish();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basic::{BasicHeader, bytes_for};
    use crate::remote_waits::NoWaits;
    use shm::event::Event;
    use shm::segment::Backing;

    #[test]
    fn a_request_for_space_outlives_the_last_attempt_before_a_sleep() {
        const LINES: u64 = 16;
        let segment = Segment::create(1 << 16, Backing::Memory).expect("memory");
        let segment = Arc::new(segment);
        let arena = shm::arena::Arena::new(Arc::clone(&segment), 64..1 << 16).expect("inside");
        let bytes = bytes_for(LINES).expect("a power of two");
        let at = arena.allocate_zeroed(bytes, 128).expect("memory");
        let event = Event::new().expect("a descriptor");
        let receiver = Receiver::connect(&segment, at, LINES).expect("a ring");
        let mut receiver = receiver.with_remote_sender(event.clone(), Arc::new(NoWaits));
        let mut service = incoming_basic(&segment, at, LINES).expect("a ring");
        let header_word = HeaderWord::Message { header: BasicHeader::default(), bytes: 0 };
        let message = header_word.encode(0).to_le_bytes();
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
