//! The secret of a job, and the keys that are derived from it.
//!
//! Strangers see some of the derived words: every packet of the kernel engine contains the number
//! of its job, and the name of a node service is in its command line and in the list of all
//! sockets. So each word is the SipHash-2-4 (Aumasson and Bernstein, 2012), under the secret, of
//! its purpose. Any number of such words reveals nothing about the others or about the secret.

use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;

/// Bytes of a secret.
const BYTES: usize = 16;

/// The secret of one job, which only its ranks and node services have.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

/// The purpose of a derived word. Each word has one purpose; otherwise one use of it would reveal
/// the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The number that distinguishes the packets of jobs: strangers see it.
    JobNumber,
    /// The key that authenticates packets of the kernel engine.
    PacketKey(Half),
    /// The name of the job's node services: strangers see it.
    ServiceName(Half),
    /// The key of the handshake between the node services.
    HandshakeKey(Half),
    /// The key of the handshake between the ranks.
    RankHandshakeKey(Half),
    /// The key of messages through libfabric.
    FabricKey(Half),
}

/// Half of a value of two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The first word.
    First,
    /// The second word.
    Second,
}

impl Secret {
    /// Makes a secret of random bytes.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn random() -> std::io::Result<Self> {
        shm::random::bytes().map(Secret)
    }

    /// The secret of these bytes.
    pub fn new(bytes: [u8; BYTES]) -> Self {
        Secret(bytes)
    }

    /// Its bytes, to be passed to another process of the job.
    pub fn bytes(&self) -> [u8; BYTES] {
        self.0
    }

    /// Derives a word.
    ///
    /// ```
    /// use launch::secret::{Half, Purpose, Secret};
    ///
    /// let secret = Secret::new([9; 16]);
    /// let word = secret.derive(Purpose::JobNumber);
    /// assert_eq!(word, secret.derive(Purpose::JobNumber));
    /// assert_ne!(word, secret.derive(Purpose::PacketKey(Half::First)));
    /// ```
    pub fn derive(&self, purpose: Purpose) -> u64 {
        let number = match purpose {
            Purpose::JobNumber => 0,
            Purpose::PacketKey(Half::First) => 1,
            Purpose::PacketKey(Half::Second) => 2,
            Purpose::ServiceName(Half::First) => 3,
            Purpose::ServiceName(Half::Second) => 4,
            Purpose::HandshakeKey(Half::First) => 5,
            Purpose::HandshakeKey(Half::Second) => 6,
            Purpose::RankHandshakeKey(Half::First) => 7,
            Purpose::RankHandshakeKey(Half::Second) => 8,
            Purpose::FabricKey(Half::First) => 9,
            Purpose::FabricKey(Half::Second) => 10,
        };
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u64(number);
        hasher.finish()
    }

    /// Derives the two words of a purpose.
    pub fn derive_both(&self, purpose: impl Fn(Half) -> Purpose) -> [u64; 2] {
        [Half::First, Half::Second].map(|half| self.derive(purpose(half)))
    }

    /// Derives the key of the handshake between the node services.
    pub fn handshake_key(&self) -> [u8; BYTES] {
        self.key(Purpose::HandshakeKey)
    }

    /// Derives the key of the handshake between the ranks.
    pub fn rank_handshake_key(&self) -> [u8; BYTES] {
        self.key(Purpose::RankHandshakeKey)
    }

    /// Derives the key of messages through libfabric.
    pub fn fabric_key(&self) -> [u8; BYTES] {
        self.key(Purpose::FabricKey)
    }

    fn key(&self, purpose: impl Fn(Half) -> Purpose) -> [u8; BYTES] {
        let [first, second] = self.derive_both(purpose);
        let mut key = [0; BYTES];
        key[..8].copy_from_slice(&first.to_le_bytes());
        key[8..].copy_from_slice(&second.to_le_bytes());
        key
    }

    /// Formats it for the key-value space of a process manager.
    pub(crate) fn to_hexadecimal(&self) -> String {
        hexadecimal(&self.0)
    }

    /// Parses what [`to_hexadecimal`](Self::to_hexadecimal) has formatted.
    pub(crate) fn from_hexadecimal(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> = text
            .bytes()
            .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
            .collect();
        let bytes: Vec<u8> = digits?
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        (text.len() == 2 * BYTES).then_some(())?;
        bytes.try_into().ok().map(Secret)
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Omits the bytes: secrets do not belong into logs.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secret").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_has_a_word_of_its_own() {
        let both = [
            Purpose::PacketKey,
            Purpose::ServiceName,
            Purpose::HandshakeKey,
            Purpose::RankHandshakeKey,
            Purpose::FabricKey,
        ];
        let halves = both.into_iter().flat_map(|purpose| [Half::First, Half::Second].map(purpose));
        let purposes: Vec<Purpose> = halves.chain([Purpose::JobNumber]).collect();
        let mut words: Vec<u64> =
            purposes.iter().map(|purpose| Secret::new([9; BYTES]).derive(*purpose)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), purposes.len());
    }

    #[test]
    fn secrets_are_parsed_as_they_are_formatted_and_not_shown() {
        let secret = Secret::new([0xab; BYTES]);
        assert_eq!(Secret::from_hexadecimal(&secret.to_hexadecimal()), Some(secret.clone()));
        assert_eq!(Secret::from_hexadecimal("00"), None);
        assert!(!format!("{secret:?}").contains("171"));
    }
}
