//! What arrives over one connection: bytes, cut into frames.

use super::connection::Lost;
use crate::transport::frame::{Beginning, Frame, HEAD_BYTES};
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
    /// A frame that comes in segments.
    segmented: Option<Large>,
    /// Bytes of the segment under way that have not come.
    segment: usize,
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
        Incoming {
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            large: None,
            segmented: None,
            segment: 0,
        }
    }
}

impl Incoming {
    /// Reads what there is, but for a turn at most, and hands on every frame that is complete.
    pub(super) fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        take: &mut impl FnMut(Frame),
    ) -> Result<(), Lost> {
        let mut turn = 0;
        while turn < TURN {
            let (read, wanted) = match (&mut self.large, &mut self.segmented) {
                (Some(large), _) => large.read(socket, STRIDE)?,
                (None, Some(segmented)) if self.segment > 0 => {
                    let (read, wanted) = segmented.read(socket, STRIDE.min(self.segment))?;
                    self.segment -= read;
                    (read, wanted)
                }
                _ => {
                    let read = receive(socket, &mut self.buffer[self.end..])?;
                    let wanted = BUFFER - self.end;
                    self.end += read;
                    (read, wanted)
                }
            };
            turn += read;
            for complete in [&mut self.large, &mut self.segmented] {
                if let Some(Large { head, payload, .. }) =
                    complete.take_if(|large| large.is_complete())
                {
                    take(Frame::decode(&head, payload)?);
                }
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
        while self.segment == 0
            && let Some(head) =
                self.buffer[self.start..self.end].first_chunk::<HEAD_BYTES>().copied()
        {
            let rest = &self.buffer[self.start + HEAD_BYTES..self.end];
            match Beginning::read(&head)? {
                Beginning::Frame(announced) => {
                    let length = usize::try_from(announced).map_err(|_| Lost::Memory(announced))?;
                    if let Some(payload) = rest.get(..length) {
                        take(Frame::decode(&head, payload.to_vec())?);
                        self.start += HEAD_BYTES + length;
                    } else if HEAD_BYTES + length > BUFFER / 2 {
                        let mut large = Large::new(head, announced)?;
                        large.payload.extend_from_slice(rest);
                        (self.start, self.end) = (0, 0);
                        self.large = Some(large);
                        return Ok(());
                    } else {
                        break;
                    }
                }
                Beginning::InSegments(head, announced) => {
                    if self.segmented.replace(Large::new(head, announced)?).is_some() {
                        return Err(Beginning::damaged_segment().into());
                    }
                    self.start += HEAD_BYTES;
                }
                Beginning::Segment(announced) => self.begin_segment(announced, take)?,
            }
        }
        // What is left is less than half the buffer: there is always room to read more.
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        Ok(())
    }

    /// A segment begins at the start of the buffer: takes what is there of it.
    fn begin_segment(&mut self, announced: u64, take: &mut impl FnMut(Frame)) -> Result<(), Lost> {
        let damaged = || Lost::from(Beginning::damaged_segment());
        let segmented = self.segmented.as_mut().ok_or_else(damaged)?;
        let length = usize::try_from(announced).map_err(|_| damaged())?;
        if length == 0 || length > segmented.length - segmented.payload.len() {
            return Err(damaged());
        }
        let rest = &self.buffer[self.start + HEAD_BYTES..self.end];
        let there = &rest[..length.min(rest.len())];
        segmented.payload.extend_from_slice(there);
        self.start += HEAD_BYTES + there.len();
        self.segment = length - there.len();
        if let Some(Large { head, payload, .. }) =
            self.segmented.take_if(|large| large.is_complete())
        {
            take(Frame::decode(&head, payload)?);
        }
        Ok(())
    }
}

impl Large {
    /// A payload of which nothing is there.
    fn new(head: [u8; HEAD_BYTES], announced: u64) -> Result<Self, Lost> {
        let memory = || Lost::Memory(announced);
        let length = usize::try_from(announced).map_err(|_| memory())?;
        let mut payload = Vec::new();
        payload.try_reserve_exact(length).map_err(|_| memory())?;
        Ok(Large { head, payload, length })
    }

    fn is_complete(&self) -> bool {
        self.payload.len() == self.length
    }

    /// Reads some of what is missing; how much, and how much was asked for.
    fn read(&mut self, socket: BorrowedFd<'_>, most: usize) -> Result<(usize, usize), Lost> {
        let before = self.payload.len();
        let wanted = (self.length - before).min(most);
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
