//! The bytes that arrive over one connection, cut into frames.

use super::connection_error::ConnectionError;
use crate::transport::frame::{Frame, FrameStart, HEADER_BYTES};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Bytes of a large payload read at once.
const STRIDE: usize = 256 << 10;
/// Bytes read before the other connections have their turn.
const TURN: usize = 4 << 20;

/// A buffer of bytes that are not frames yet.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    buffer: Box<[u8]>,
    /// Start and end of the bytes that have not been cut into frames.
    start: usize,
    end: usize,
    large: Option<LargeFrame>,
    /// A frame that arrives in segments.
    segmented: Option<LargeFrame>,
    /// Number of bytes of the segment under way that have not arrived.
    segment: usize,
}

/// A frame with a payload that does not fit the buffer and is read in place.
#[derive(Debug)]
struct LargeFrame {
    header: [u8; HEADER_BYTES],
    payload: Vec<u8>,
    length: usize,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        ReceiveBuffer {
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            large: None,
            segmented: None,
            segment: 0,
        }
    }
}

impl ReceiveBuffer {
    /// Reads what has arrived, at most a turn of it, and passes on every complete frame.
    pub(super) fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        pass: &mut impl FnMut(Frame),
    ) -> Result<(), ConnectionError> {
        let mut turn = 0;
        while turn < TURN {
            // At most one of these is incomplete, and the bytes that arrive next belong to it. Only
            // between segments do whole frames arrive.
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
            // A complete frame leaves its place before the next header is read, which may announce
            // another large frame.
            for complete in [&mut self.large, &mut self.segmented] {
                if let Some(LargeFrame { header, payload, .. }) =
                    complete.take_if(|large| large.is_complete())
                {
                    pass(Frame::decode(&header, payload)?);
                }
            }
            self.cut(pass)?;
            // Fewer bytes than asked for: the socket is empty.
            if read < wanted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes complete frames from the buffer.
    fn cut(&mut self, pass: &mut impl FnMut(Frame)) -> Result<(), ConnectionError> {
        while self.segment == 0
            && let Some(header) =
                self.buffer[self.start..self.end].first_chunk::<HEADER_BYTES>().copied()
        {
            let rest = &self.buffer[self.start + HEADER_BYTES..self.end];
            match FrameStart::read(&header)? {
                FrameStart::Frame(claimed) => {
                    let length =
                        usize::try_from(claimed).map_err(|_| ConnectionError::Memory(claimed))?;
                    if let Some(payload) = rest.get(..length) {
                        pass(Frame::decode(&header, payload.to_vec())?);
                        self.start += HEADER_BYTES + length;
                    } else if HEADER_BYTES + length > BUFFER / 2 {
                        // A payload of more than half the buffer is read in place, without a second
                        // copy.
                        let mut large = LargeFrame::new(header, claimed)?;
                        large.payload.extend_from_slice(rest);
                        self.start = 0;
                        self.end = 0;
                        self.large = Some(large);
                        return Ok(());
                    } else {
                        break;
                    }
                }
                FrameStart::InSegments(header, claimed) => {
                    // Segments do not name their frame, so a second frame in segments before the
                    // end of the first is a violation.
                    if self.segmented.replace(LargeFrame::new(header, claimed)?).is_some() {
                        return Err(FrameStart::damaged_segment().into());
                    }
                    self.start += HEADER_BYTES;
                }
                FrameStart::Segment(claimed) => self.begin_segment(claimed, pass)?,
            }
        }
        // The rest is shorter than half the buffer, so the next read has space.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }

    /// Reads the segment at the start of the buffer, as far as it has arrived.
    fn begin_segment(
        &mut self,
        claimed: u64,
        pass: &mut impl FnMut(Frame),
    ) -> Result<(), ConnectionError> {
        let damaged = || ConnectionError::from(FrameStart::damaged_segment());
        let segmented = self.segmented.as_mut().ok_or_else(damaged)?;
        let length = usize::try_from(claimed).map_err(|_| damaged())?;
        // The sum of the segments must be the announced length. Empty segments would let a peer
        // keep this side busy without progress.
        if length == 0 || length > segmented.length - segmented.payload.len() {
            return Err(damaged());
        }
        let rest = &self.buffer[self.start + HEADER_BYTES..self.end];
        let arrived = &rest[..length.min(rest.len())];
        segmented.payload.extend_from_slice(arrived);
        self.start += HEADER_BYTES + arrived.len();
        self.segment = length - arrived.len();
        if let Some(LargeFrame { header, payload, .. }) =
            self.segmented.take_if(|large| large.is_complete())
        {
            pass(Frame::decode(&header, payload)?);
        }
        Ok(())
    }
}

impl LargeFrame {
    /// A frame before its payload arrives. Takes address space for it; memory is taken as the
    /// payload arrives, so that a false length takes none.
    fn new(header: [u8; HEADER_BYTES], claimed: u64) -> Result<Self, ConnectionError> {
        let memory = || ConnectionError::Memory(claimed);
        let length = usize::try_from(claimed).map_err(|_| memory())?;
        let mut payload = Vec::new();
        payload.try_reserve_exact(length).map_err(|_| memory())?;
        Ok(LargeFrame { header, payload, length })
    }

    fn is_complete(&self) -> bool {
        self.payload.len() == self.length
    }

    /// Reads some of the rest of the payload. Returns the number of bytes read, and of those that
    /// were asked for.
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        most: usize,
    ) -> Result<(usize, usize), ConnectionError> {
        let before = self.payload.len();
        let wanted = (self.length - before).min(most);
        self.payload.resize(before + wanted, 0);
        let read = receive(socket, &mut self.payload[before..]);
        self.payload.truncate(before + *read.as_ref().unwrap_or(&0));
        Ok((read?, wanted))
    }
}

/// Reads from the socket; 0 if nothing has arrived.
fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, ConnectionError> {
    match rustix::io::read(socket, into) {
        Ok(0) => Err(ConnectionError::Closed),
        Ok(count) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(ConnectionError::System(error)),
    }
}
