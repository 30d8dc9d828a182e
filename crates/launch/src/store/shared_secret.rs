//! The secret that the ranks have before they have exchanged anything, and the proofs of it.

use super::error::Error;
use crate::secret::Secret;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::hash::Hasher;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

/// Least number of characters of a secret: 64 bits in hexadecimal digits.
const LEAST_CHARACTERS: usize = 16;

/// Random bytes of one end of a connection.
pub type Nonce = [u8; 16];
/// Proof that an end has the secret.
pub type Proof = [u8; 16];

/// A secret from a variable or a file, the same for all ranks of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(Secret);

/// The end of a connection that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// The values that both ends of a connection prove. Each end contributes random bytes, so an
/// overheard proof is invalid in any other connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) of_client: Nonce,
    pub(super) of_server: Nonce,
    /// Random bytes of the server, the same in all connections.
    pub(super) of_job: Nonce,
}

impl SharedSecret {
    /// Returns the secret of these characters; spaces and line ends around it do not count.
    ///
    /// # Errors
    /// If it is too short. `place` names its origin.
    pub fn new(text: &str, place: &str) -> Result<Self, Error> {
        let text = text.trim();
        let length = text.chars().count();
        if length < LEAST_CHARACTERS {
            return Err(Error::ShortSecret {
                place: place.into(),
                length,
                least: LEAST_CHARACTERS,
            });
        }
        // The key is public: the hash only brings a text of any length into 16 bytes.
        let mut hasher = SipHasher24::new_with_key(b"tradewind-secret");
        hasher.write(text.as_bytes());
        Ok(SharedSecret(Secret::new(hasher.finish128().as_bytes())))
    }

    /// Reads the secret from a file.
    ///
    /// # Errors
    /// If the file cannot be read, other users may access it, or the secret is too short.
    pub fn read(path: &OsStr) -> Result<Self, Error> {
        let shown = path.to_string_lossy().into_owned();
        let failed = |source| Error::SecretFile { path: shown.clone(), source };
        let mut file = File::open(path).map_err(failed)?;
        // Of the open file, which cannot be another one when it is read. A pipe has no other readers.
        let metadata = file.metadata().map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_file() && mode & 0o077 != 0 {
            return Err(Error::OpenSecretFile { path: shown, mode });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        Self::new(&text, &shown)
    }

    /// Returns the secret of the job with a server that has chosen these random bytes.
    pub(super) fn of_job(&self, of_job: &Nonce) -> Secret {
        Secret::new(self.code(b'j', &[of_job]))
    }

    /// Returns the key with which name servers of different nodes prove that they have the secret.
    pub fn names_key(&self) -> [u8; 16] {
        self.code(b'n', &[])
    }

    pub(super) fn proof(&self, handshake: &Handshake, side: Side) -> Proof {
        // The letter makes the two proofs of a connection differ, so neither end can return the
        // proof that it has received.
        let letter = if side == Side::Server { b's' } else { b'c' };
        let Handshake { rank, ranks, of_client, of_server, of_job } = handshake;
        let numbers = [rank.to_le_bytes(), ranks.to_le_bytes()].concat();
        self.code(letter, &[&numbers, of_client, of_server, of_job])
    }

    /// SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012) of parts of fixed lengths.
    fn code(&self, letter: u8, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0.bytes());
        hasher.write(&[letter]);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish128().as_bytes()
    }
}

/// Omits the bytes: secrets do not belong into logs.
impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedSecret").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef";

    #[test]
    fn a_secret_is_read_from_a_file() {
        let file = std::env::temp_dir().join(format!("tradewind-secret-{}", std::process::id()));
        let path = file.to_str().expect("text");
        let read = || SharedSecret::read(file.as_os_str());
        std::fs::write(&file, format!("{TEXT}\n")).expect("there is space");
        let permit = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, permissions).expect("it is ours");
        };
        for mode in [0o640, 0o604, 0o620] {
            permit(mode);
            let error = read().expect_err("others may access it").to_string();
            assert!(error.contains(&format!("{mode:o}")), "{error}");
            assert!(error.contains(&format!("chmod 600 {path}")), "{error}");
        }
        permit(0o600);
        let secret = read().expect("long enough");
        assert_eq!(SharedSecret::new(TEXT, "here").expect("long enough"), secret);
        std::fs::write(&file, "short").expect("there is space");
        let error = read().expect_err("too short").to_string();
        assert!(error.contains("5 characters") && error.contains(path), "{error}");
        std::fs::remove_file(&file).expect("it is ours");
        let error = read().expect_err("no file").to_string();
        assert!(error.contains(path) && error.contains("TRADEWIND_SECRET_FILE"), "{error}");
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn a_proof_is_valid_for_one_end_of_one_connection() {
        let secret = SharedSecret::new(TEXT, "here").expect("long enough");
        let other = SharedSecret::new("another secret of 16", "here").expect("long enough");
        let handshake = Handshake {
            rank: 1,
            ranks: 4,
            of_client: [1; 16],
            of_server: [2; 16],
            of_job: [3; 16],
        };
        let proof = secret.proof(&handshake, Side::Client);
        assert_eq!(proof, secret.proof(&handshake, Side::Client));
        assert_ne!(proof, secret.proof(&handshake, Side::Server));
        assert_ne!(proof, other.proof(&handshake, Side::Client));
        for changed in [
            Handshake { rank: 2, ..handshake },
            Handshake { ranks: 5, ..handshake },
            Handshake { of_client: [4; 16], ..handshake },
            Handshake { of_server: [4; 16], ..handshake },
            Handshake { of_job: [4; 16], ..handshake },
        ] {
            assert_ne!(proof, secret.proof(&changed, Side::Client), "{changed:?}");
        }
        assert_ne!(secret.of_job(&[1; 16]), secret.of_job(&[2; 16]));
    }
}
