//! Append buffers with senders on another node.

use super::ends::{MAX_RECORD_BYTES, Sink, SinkError, Source};
use crate::append::{Receiver, Sender};
use crate::error::{CreateError, RecvError, SendError};
use crate::request::Requested;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Bytes in front of a record: its length.
const HEAD_BYTES: usize = 8;

/// Opens the receiving end of the outgoing buffer at an offset.
pub(super) fn outgoing(segment: &Arc<Segment>, at: Offset) -> Result<Box<dyn Source>, CreateError> {
    let receiver = Receiver::connect(segment, at)?;
    check_bytes(receiver.record_bytes())?;
    Ok(Box::new(AppendSource { receiver }))
}

/// Opens a sending end of the buffer at an offset.
pub(super) fn incoming(segment: &Arc<Segment>, at: Offset) -> Result<Box<dyn Sink>, CreateError> {
    let sender = Sender::connect(segment, at)?;
    check_bytes(sender.record_bytes())?;
    Ok(Box::new(AppendSink { sender }))
}

fn check_bytes(record_bytes: u64) -> Result<(), CreateError> {
    if record_bytes <= MAX_RECORD_BYTES {
        return Ok(());
    }
    Err(CreateError::Size {
        object: "append buffer between nodes",
        requested: record_bytes,
        unit: "bytes a record",
        limits: "at most 32760",
    })
}

#[derive(Debug)]
struct AppendSource {
    receiver: Receiver,
}

impl Source for AppendSource {
    fn take(&mut self, limit: usize, into: &mut Vec<u8>) -> Result<(), RecvError> {
        let end = into.len() + limit;
        let mut record = Vec::new();
        while end - into.len() >= self.longest() && self.receiver.try_recv(&mut record)? {
            into.extend((record.len() as u64).to_le_bytes());
            into.extend_from_slice(&record);
            into.resize(into.len() + record.len().next_multiple_of(8) - record.len(), 0);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn longest(&self) -> usize {
        HEAD_BYTES + self.receiver.record_bytes().next_multiple_of(8) as usize
    }

    fn close(&mut self) {
        self.receiver.close();
    }
}

#[derive(Debug)]
struct AppendSink {
    sender: Sender,
}

impl Sink for AppendSink {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let (word, rest) = rest.split_first_chunk().ok_or(SinkError::Invalid)?;
            let length = usize::try_from(u64::from_le_bytes(*word)).unwrap_or(usize::MAX);
            let record = rest.get(..length).ok_or(SinkError::Invalid)?;
            match self.sender.try_send(record) {
                Ok(()) => sent += HEAD_BYTES + length.next_multiple_of(8),
                Err(SendError::Full) => break,
                // The sender's buffer has records as long and would have refused it: the bytes are
                // damaged.
                Err(SendError::TooLong { .. }) => return Err(SinkError::Invalid),
                // It takes nothing any more.
                Err(_) => return Ok(bytes.len()),
            }
        }
        Ok(sent)
    }

    fn request(&mut self) -> Requested {
        self.sender.request_space();
        Requested::Renewed
    }
}
