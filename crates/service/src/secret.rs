//! What is derived from a job's secret.
//!
//! Some of it is seen by strangers: every packet of the kernel engine says the number of its job,
//! and the name of a node service stands in its command line and in the list of all sockets. So
//! everything is the SipHash-2-4 (Aumasson and Bernstein, 2012) under the secret of what it is for:
//! whoever learns any number of such words learns nothing of the others, nor of the secret.

use network::job_nodes::Key;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// What a derived word is for. Each word has one purpose, or it would tell of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The number that tells the packets of jobs apart: strangers see it.
    JobNumber,
    /// The halves of the key that packets of the kernel engine are sealed with.
    PacketKey(Half),
    /// The halves of what names the job's node services: strangers see it.
    ServiceName(Half),
}

/// Of what takes two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    First,
    Second,
}

/// A word that nobody can tell who does not have the secret.
pub(crate) fn derive(secret: &Key, purpose: Purpose) -> u64 {
    let number = match purpose {
        Purpose::JobNumber => 0,
        Purpose::PacketKey(Half::First) => 1,
        Purpose::PacketKey(Half::Second) => 2,
        Purpose::ServiceName(Half::First) => 3,
        Purpose::ServiceName(Half::Second) => 4,
    };
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write_u64(number);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_has_a_word_of_its_own() {
        let purposes = [
            Purpose::JobNumber,
            Purpose::PacketKey(Half::First),
            Purpose::PacketKey(Half::Second),
            Purpose::ServiceName(Half::First),
            Purpose::ServiceName(Half::Second),
        ];
        let mut words: Vec<u64> =
            purposes.iter().map(|purpose| derive(&[9; 16], *purpose)).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), purposes.len());
    }
}
