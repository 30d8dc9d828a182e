//! Messages between pairs of ranks, as the subject of a row.

use serde::{Deserialize, Serialize};

/// Messages that all pairs of ranks exchange at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The pairs.
    pub pairs: Pairs,
    /// Messages of a pair.
    pub pattern: Pattern,
    /// Moment of the receives.
    pub receive: Receive,
}

/// Rule by which ranks have partners.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairs {
    /// Rank i of n and rank n − 1 − i. A rank in the middle has no partner.
    Chain,
    /// Rank j of 2^d and rank j xor 2^i, for i from 0 to d − 1 one after the other.
    Hypercube,
    /// The partner of each rank, in the order of the ranks.
    Matching(Vec<u32>),
}

/// Messages of a pair in a run: one in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Both ranks send, then both receive.
    Exchange,
    /// The rank of the lower number sends, and the other sends back.
    RoundTrip,
    /// Two schedules, one for each direction: the first is complete before the second starts.
    InTurn,
    /// The same two schedules, both started before the first wait.
    AtOnce,
}

/// Moment at which a receive is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// Before its message comes ("forced"): the bytes go where they are wanted.
    Posted,
    /// When something else is done ("unforced"): short messages wait in a mailbox, long ones wait
    /// for the receive.
    Late,
}

impl Exchange {
    /// Receives that are posted, in this pattern.
    pub fn posted(pairs: Pairs, pattern: Pattern) -> Self {
        Exchange { pairs, pattern, receive: Receive::Posted }
    }
}

impl Pairs {
    /// Partners of a rank in the order in which it meets them; `None` where it stands by.
    ///
    /// ```
    /// use measure::rows::Pairs;
    /// assert_eq!(Pairs::Chain.partners(0, 3), [Some(2)]);
    /// assert_eq!(Pairs::Chain.partners(1, 3), [None]);
    /// assert_eq!(Pairs::Hypercube.partners(2, 4), [Some(3), Some(0)]);
    /// ```
    pub fn partners(&self, rank: u32, ranks: u32) -> Vec<Option<u32>> {
        let other = |partner: u32| (partner != rank && partner < ranks).then_some(partner);
        match self {
            Pairs::Chain => vec![other(ranks.saturating_sub(1 + rank))],
            Pairs::Hypercube => {
                (0..ranks.max(1).ilog2()).map(|dimension| other(rank ^ 1 << dimension)).collect()
            }
            Pairs::Matching(partners) => {
                vec![partners.get(rank as usize).copied().and_then(other)]
            }
        }
    }

    /// Checks that so many ranks can have these partners.
    pub(super) fn check(&self, ranks: u32) -> Result<(), String> {
        match self {
            Pairs::Hypercube if !ranks.is_power_of_two() => {
                Err(format!("{ranks} ranks are no hypercube, which has a power of two"))
            }
            Pairs::Matching(partners) => {
                let is_mutual = |(rank, partner): (usize, &u32)| {
                    partners.get(*partner as usize).is_some_and(|back| *back as usize == rank)
                };
                let all = partners.len() == ranks as usize;
                match partners.iter().enumerate().all(is_mutual) {
                    true if all => Ok(()),
                    _ => Err(format!(
                        "`matching` is {partners:?}, and each of {ranks} ranks is the partner of \
                         its partner"
                    )),
                }
            }
            Pairs::Chain | Pairs::Hypercube => Ok(()),
        }
    }
}
