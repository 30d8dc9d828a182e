//! What arrives over one connection: bytes, cut into frames.

use super::connection::Lost;
use crate::transport::frame::{Frame, HEAD_BYTES, payload_bytes};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Bytes of a large payload read at once.
const STRIDE: usize = 256 << 10;
/// Bytes read before others get their turn.
const TURN: usize = 4 << 20;

/// A buffer of bytes that are not frames yet.
#[derive(Debug)]
pub(super) struct Incoming {
    buffer: Box<[u8]>,
    /// Where the bytes not looked at begin and end.
    start: usize,
    end: usize,
    large: Option<Large>,
}

/// A payload that does not fit into the buffer and is read in place.
#[derive(Debug)]
struct Large {
    head: [u8; HEAD_BYTES],
    payload: Vec<u8>,
    length: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        Incoming { buffer: vec![0; BUFFER].into(), start: 0, end: 0, large: None }
    }
}

impl Incoming {
    /// Reads what there is, but for a turn at most, and hands on every frame that is complete.
    pub(super) fn read(&mut self, socket: BorrowedFd<'_>, take: &mut impl FnMut(Frame)) -> Result<(), Lost> {
        let mut turn = 0;
        while turn < TURN {
            let (read, wanted) = match &mut self.large {
                Some(large) => large.read(socket)?,
                None => {
                    let read = receive(socket, &mut self.buffer[self.end..])?;
                    let wanted = BUFFER - self.end;
                    self.end += read;
                    (read, wanted)
                }
            };
            turn += read;
            if let Some(Large { head, payload, .. }) = self.large.take_if(|large| large.payload.len() == large.length) {
                take(Frame::decode(&head, payload)?);
            }
            self.cut(take)?;
            // The system gave all it had.
            if read < wanted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes complete frames out of the buffer.
    fn cut(&mut self, take: &mut impl FnMut(Frame)) -> Result<(), Lost> {
        while let Some(head) = self.buffer[self.start..self.end].first_chunk::<HEAD_BYTES>().copied() {
            let announced = payload_bytes(&head)?;
            let length = usize::try_from(announced).map_err(|_| Lost::Memory(announced))?;
            let rest = &self.buffer[self.start + HEAD_BYTES..self.end];
            if let Some(payload) = rest.get(..length) {
                take(Frame::decode(&head, payload.to_vec())?);
                self.start += HEAD_BYTES + length;
            } else if HEAD_BYTES + length > BUFFER / 2 {
                let mut payload = Vec::new();
                payload.try_reserve_exact(length).map_err(|_| Lost::Memory(announced))?;
                payload.extend_from_slice(rest);
                (self.start, self.end) = (0, 0);
                self.large = Some(Large { head, payload, length });
                return Ok(());
            } else {
                break;
            }
        }
        // What is left is less than half the buffer: there is always room to read more.
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        Ok(())
    }
}

impl Large {
    /// Reads some of what is missing; how much, and how much was asked for.
    fn read(&mut self, socket: BorrowedFd<'_>) -> Result<(usize, usize), Lost> {
        let before = self.payload.len();
        let wanted = (self.length - before).min(STRIDE);
        self.payload.resize(before + wanted, 0);
        let read = receive(socket, &mut self.payload[before..]);
        self.payload.truncate(before + *read.as_ref().unwrap_or(&0));
        Ok((read?, wanted))
    }
}

/// How many bytes were there to read: 0 if none is there now.
fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Lost> {
    match rustix::io::read(socket, into) {
        Ok(0) => Err(Lost::Closed),
        Ok(count) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(Lost::System(error)),
    }
}
