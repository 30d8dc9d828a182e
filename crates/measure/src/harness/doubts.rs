//! Signs that a measurement was disturbed.

use crate::rows::{Load, Row};
use models::survey::Signs;
use shm::process::CoreLoad;
use std::fmt;

/// Sign of a disturbance. Each is a share, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Time of the cores that other processes used.
    OtherProcesses,
    /// Time of the cores that the hypervisor gave to other virtual machines.
    StolenTime,
    /// Distance of the quartiles of the rounds that count, over their median.
    Spread,
    /// Gaps g(m) that are far below that of a shorter message, among all sizes.
    FallingGaps,
    /// Times that came out as zero or less, among all sizes.
    Impossible,
    /// Times that changed by half from one visit to the next, among all times.
    ChangedSpeed,
}

impl Sign {
    /// All of them, in the order of [`Doubts`].
    pub const ALL: [Sign; 6] = [
        Sign::OtherProcesses,
        Sign::StolenTime,
        Sign::Spread,
        Sign::FallingGaps,
        Sign::Impossible,
        Sign::ChangedSpeed,
    ];

    /// The share above which a measurement counts as disturbed.
    const fn limit(self) -> f64 {
        match self {
            Sign::OtherProcesses | Sign::StolenTime => CoreLoad::LIMIT,
            Sign::Spread => 0.4,
            Sign::FallingGaps | Sign::ChangedSpeed => 0.25,
            Sign::Impossible => 0.02,
        }
    }

    fn describe(self, share: f64) -> String {
        let percent = 100.0 * share;
        match self {
            Sign::OtherProcesses => format!("other processes used {percent:.0} % of the cores"),
            Sign::StolenTime => format!("other virtual machines used {percent:.0} % of the cores"),
            Sign::Spread => format!("the fastest rounds differ by {percent:.0} %"),
            Sign::FallingGaps => {
                format!("{percent:.0} % of the gaps are below those of shorter messages")
            }
            Sign::Impossible => format!("{percent:.0} % of the times are not above 0"),
            Sign::ChangedSpeed => format!("{percent:.0} % of the times changed by half meanwhile"),
        }
    }
}

/// Signs of disturbances in a measurement. The text of a [disturbed](Self::is_disturbed) one names
/// those above their limits.
///
/// ```
/// use measure::harness::{Doubts, Sign};
/// let doubts = Doubts::of([(Sign::Spread, 0.1), (Sign::OtherProcesses, 0.43)]);
/// assert!(doubts.is_disturbed());
/// assert_eq!(doubts.to_string(), "other processes used 43 % of the cores");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Doubts([f64; Sign::ALL.len()]);

impl Doubts {
    /// These signs; of the same sign the greater share.
    pub fn of(signs: impl IntoIterator<Item = (Sign, f64)>) -> Self {
        let mut doubts = Doubts::default();
        for (sign, share) in signs {
            let known = &mut doubts.0[sign as usize];
            *known = known.max(share);
        }
        doubts
    }

    /// The share of each sign, in the order of [`Sign::ALL`].
    pub(super) fn shares(&self) -> &[f64] {
        &self.0
    }

    /// All of both.
    #[must_use]
    pub fn and(self, other: Doubts) -> Self {
        Doubts(std::array::from_fn(|sign| self.0[sign].max(other.0[sign])))
    }

    /// The load beside any of these rows.
    pub fn beside<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Self {
        let loads = rows.into_iter().filter_map(|row| row.load);
        loads.fold(Doubts::default(), |doubts, Load { others, stolen }| {
            doubts.and(Doubts::of([(Sign::OtherProcesses, others), (Sign::StolenTime, stolen)]))
        })
    }

    /// Returns `true` if a sign is above its limit.
    pub fn is_disturbed(&self) -> bool {
        self.worst() > 1.0
    }

    /// The greatest share, as a multiple of its limit.
    pub(super) fn worst(&self) -> f64 {
        let of_limit = |sign: &Sign| self.0[*sign as usize] / sign.limit();
        Sign::ALL.iter().map(of_limit).fold(0.0, f64::max)
    }
}

impl From<Doubts> for Load {
    /// The load among the signs.
    fn from(doubts: Doubts) -> Self {
        let share = |sign: Sign| doubts.0[sign as usize];
        Load { others: share(Sign::OtherProcesses), stolen: share(Sign::StolenTime) }
    }
}

impl From<Signs> for Doubts {
    fn from(Signs { spread, falling, impossible }: Signs) -> Self {
        Doubts::of([
            (Sign::Spread, spread),
            (Sign::FallingGaps, falling),
            (Sign::Impossible, impossible),
        ])
    }
}

impl fmt::Display for Doubts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_above = |sign: &&Sign| self.0[**sign as usize] > sign.limit();
        let words = |sign: &Sign| sign.describe(self.0[*sign as usize]);
        let all: Vec<String> = Sign::ALL.iter().filter(is_above).map(words).collect();
        formatter.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_is_kept_at_its_place() {
        for (index, sign) in Sign::ALL.into_iter().enumerate() {
            assert_eq!(sign as usize, index);
            let doubts = Doubts::of([(sign, 0.9)]).and(Doubts::default());
            assert!(doubts.is_disturbed() && doubts.to_string() == sign.describe(0.9));
        }
    }
}
