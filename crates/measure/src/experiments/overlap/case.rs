//! The requested case.

use super::collective::Collective;
use crate::harness::Error;
use crate::harness::timer::MOST_COMPUTATION_US;
use collectives::UnknownName;
use std::fmt;
use std::str::FromStr;

/// The most repetitions: all their times are kept.
pub const MOST_REPETITIONS: u32 = 1_000_000;

/// One collective to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// Its size in bytes, as [`Collective`] counts them.
    pub bytes: u64,
    /// Length of the computation, in microseconds; `None`: all ranks of a core together
    /// ten times as long as the collective takes alone, each at least 20 µs.
    pub computation_us: Option<f64>,
    /// Repetitions; `None`: as many as take about a second, between 5 and 4000.
    pub repetitions: Option<u32>,
}

impl fmt::Display for Case {
    /// "allreduce:8", or the name of a collective that has no size.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(formatter, "{}", self.collective),
            bytes => write!(formatter, "{}:{bytes}", self.collective),
        }
    }
}

impl FromStr for Case {
    type Err = String;

    /// A case that leaves open what can be; without a size, of 0 bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = text.split_once(':').unwrap_or((text, "0"));
        let collective = name.parse().map_err(|error: UnknownName| error.to_string())?;
        let bytes = bytes.parse().map_err(|_| format!("{bytes} is no number of bytes"))?;
        let case = Case::new(collective, bytes);
        if text.contains(':') {
            case.check().map_err(|error| error.to_string())?;
        }
        Ok(case)
    }
}

impl Case {
    /// A case that leaves open what can be.
    pub fn new(collective: Collective, bytes: u64) -> Self {
        Case { collective, bytes, computation_us: None, repetitions: None }
    }

    /// Returns true if it can be measured.
    ///
    /// ```
    /// use measure::experiments::overlap::{Case, Collective};
    /// let never = Case { repetitions: Some(0), ..Case::new(Collective::Barrier, 0) };
    /// assert!(never.check().is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::Argument`].
    pub fn check(&self) -> Result<(), Error> {
        self.collective.check_bytes(self.bytes)?;
        if let Some(repetitions) =
            self.repetitions.filter(|number| !(1..=MOST_REPETITIONS).contains(number))
        {
            let expected = "from 1 to 1000000";
            return Err(Error::Argument {
                what: "the number of repetitions",
                found: repetitions.to_string(),
                expected,
            });
        }
        if let Some(time) =
            self.computation_us.filter(|time| !(*time > 0.0 && *time <= MOST_COMPUTATION_US))
        {
            let expected = "more than 0 and at most 10000000 µs";
            return Err(Error::Argument {
                what: "the computation",
                found: format!("{time} µs"),
                expected,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_named() {
        let usual = Case::new(Collective::Allreduce, 8);
        assert!(usual.check().is_ok());
        for repetitions in [0, MOST_REPETITIONS + 1] {
            let error =
                Case { repetitions: Some(repetitions), ..usual }.check().expect_err("out of range");
            assert!(error.to_string().contains(&repetitions.to_string()), "{error}");
        }
        for time in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e7] {
            let error =
                Case { computation_us: Some(time), ..usual }.check().expect_err("out of range");
            assert!(error.to_string().contains("computation"), "{error}");
        }
    }
}
