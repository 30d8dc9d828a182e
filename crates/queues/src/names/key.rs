//! Key of a job.

use super::codec::encoded_as;
use super::error::NameError;
use std::fmt;
use std::str::FromStr;

/// Key that admits a process to its job. The launcher passes it to the processes as text.
///
/// ```
/// use queues::names::JobKey;
/// let key: JobKey = "00000000000000000000000000000abc".parse()?;
/// assert_eq!(key.to_string(), "00000000000000000000000000000abc");
/// # Ok::<(), queues::names::NameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobKey(u128);

impl JobKey {
    /// Returns the key with these bytes.
    pub fn new(bytes: [u8; 16]) -> JobKey {
        JobKey(u128::from_le_bytes(bytes))
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
    pub fn random() -> Result<JobKey, NameError> {
        let random = shm::random::bytes().map_err(|source| NameError::System {
            action: "get random bytes from the system",
            source,
        })?;
        Ok(JobKey(u128::from_ne_bytes(random)))
    }
}

encoded_as! {
    JobKey as u128: |key: &JobKey| key.0, |number| Some(JobKey(number));
}

impl fmt::Display for JobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobKey {
    /// Omits the key, so that it does not appear in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobKey(..)")
    }
}

impl FromStr for JobKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<JobKey, NameError> {
        u128::from_str_radix(text, 16).map(JobKey).map_err(|_| NameError::Key)
    }
}
