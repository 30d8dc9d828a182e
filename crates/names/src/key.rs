//! Key of a program.

use crate::codec::encoded_as;
use crate::error::NameError;
use std::fmt;
use std::str::FromStr;

/// Key that admits a process to a name that its launcher has reserved. It is passed as text.
///
/// ```
/// use names::wire::ProgramKey;
/// let key: ProgramKey = "00000000000000000000000000000abc".parse()?;
/// assert_eq!(key.to_string(), "00000000000000000000000000000abc");
/// # Ok::<(), names::wire::NameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProgramKey(u128);

impl ProgramKey {
    /// Returns the key with these bytes.
    pub fn new(bytes: [u8; 16]) -> ProgramKey {
        ProgramKey(u128::from_le_bytes(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Returns a key of 128 random bits.
    ///
    /// # Errors
    ///
    /// [`NameError::System`] if the system provides no random bytes.
    pub fn random() -> Result<ProgramKey, NameError> {
        let random = shm::random::bytes().map_err(|source| NameError::System {
            action: "get random bytes from the system",
            source,
        })?;
        Ok(ProgramKey(u128::from_ne_bytes(random)))
    }
}

encoded_as! {
    ProgramKey as u128: |key: &ProgramKey| key.0, |number| Some(ProgramKey(number));
}

impl fmt::Display for ProgramKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for ProgramKey {
    /// Omits the key, so that it does not appear in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProgramKey(..)")
    }
}

impl FromStr for ProgramKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ProgramKey, NameError> {
        u128::from_str_radix(text, 16).map(ProgramKey).map_err(|_| NameError::Key)
    }
}
