//! A job's decisions: the table that selects algorithms. The engine treats them as bytes.
//!
//! Ranks with different decisions wait for each other for ever. Therefore the process that creates
//! the job reads the file once and publishes the outcome in the segment, the same for every rank.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Largest length of a table of decisions, in bytes.
const LONGEST: u64 = 16 << 20;

/// The outcome of reading the file of decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// Path of the file.
    pub path: PathBuf,
    /// The contents, or the reason why the file cannot be read.
    pub content: Result<Vec<u8>, String>,
}

/// Flag in the encoded form: contents follow, not a reason.
const READABLE: u8 = 1;

impl Decisions {
    /// Reads the file. Returns `None` if there is no file at `path` and `must_exist` is false.
    pub fn read(path: PathBuf, must_exist: bool) -> Option<Self> {
        let content = match read(&path) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound && !must_exist => return None,
            Err(error) => Err(error.to_string()),
        };
        Some(Decisions { path, content })
    }

    /// Encodes the length of the path, the path, a flag, and the contents or the reason.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        let (readable, rest) = match &self.content {
            Ok(bytes) => (READABLE, bytes.as_slice()),
            Err(why) => (0, why.as_bytes()),
        };
        let length = (path.len() as u64).to_le_bytes();
        [length.as_slice(), path, &[readable], rest].concat()
    }

    /// Decodes the bytes of [`encode`](Self::encode). Damaged bytes become an unreadable file.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Decisions::try_decode(bytes).unwrap_or_else(|| Decisions {
            path: PathBuf::new(),
            content: Err(
                "the job's memory does not hold what its first process put there".to_owned()
            ),
        })
    }

    fn try_decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (path, rest) =
            rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let (set, rest) = rest.split_first()?;
        let why = || String::from_utf8_lossy(rest).into_owned();
        let content = if *set == READABLE { Ok(rest.to_vec()) } else { Err(why()) };
        Some(Decisions { path: OsString::from_vec(path.to_vec()).into(), content })
    }
}

fn read(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("it is longer than {LONGEST} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    proptest! {
        #[test]
        fn what_is_put_down_is_found(path in proptest::collection::vec(1u8.., 0..40), bytes: Vec<u8>, why: String) {
            let path = PathBuf::from(OsStr::from_bytes(&path));
            for content in [Ok(bytes.clone()), Err(why.clone())] {
                let decisions = Decisions { path: path.clone(), content };
                prop_assert_eq!(Decisions::decode(&decisions.encode()), decisions);
            }
        }

        #[test]
        fn damage_is_no_panic(bytes: Vec<u8>) {
            Decisions::decode(&bytes);
        }
    }
}
