//! Codes that bind every frame to its connection, its direction and its place.
//!
//! The handshake alone proves that an end has the secret at the time of the connect. Another user
//! of a node could forward the handshake of two ends, and then send frames of its own. So both ends
//! derive keys of the connection from the secret and the random bytes of both, and append to every
//! frame the SipHash-2-4 (Aumasson and Bernstein, 2012) of the number of the frame and its bytes. A
//! process that forwards bytes without the secret can read them and end the connection, no more.

use super::frame::Frame;
use crate::job_nodes::Key;
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;

/// Bytes behind each frame.
pub const CODE_BYTES: usize = 8;

/// Keys of a connection, one for each direction: no frame is valid in the other one.
#[derive(Clone, Copy)]
pub struct SessionKeys {
    /// For what this end sends.
    pub send: Key,
    /// For what this end receives.
    pub receive: Key,
}

impl SessionKeys {
    /// Returns the keys of the other end.
    #[must_use]
    pub fn swapped(self) -> SessionKeys {
        SessionKeys { send: self.receive, receive: self.send }
    }
}

/// Omits the bytes: secrets do not belong into logs.
impl fmt::Debug for SessionKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionKeys").finish_non_exhaustive()
    }
}

/// The codes of one direction.
pub struct Seal {
    key: Key,
    /// Number of frames before the next one.
    frames: u64,
}

/// Omits the key.
impl fmt::Debug for Seal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Seal").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl Seal {
    /// Returns the codes of a new connection in the direction of this key.
    pub fn new(key: Key) -> Seal {
        Seal { key, frames: 0 }
    }

    /// Returns the code of the next frame. The number is part of it, so a frame is not valid again,
    /// or before one that was sent earlier.
    pub(super) fn code(&mut self, frame: &[u8]) -> [u8; CODE_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&self.frames.to_le_bytes());
        hasher.write(frame);
        self.frames += 1;
        hasher.finish().to_le_bytes()
    }

    /// Appends the next frame and its code.
    pub fn encode(&mut self, frame: &Frame<'_>, into: &mut Vec<u8>) {
        let start = into.len();
        frame.encode(into);
        let code = self.code(&into[start..]);
        into.extend_from_slice(&code);
    }
}
