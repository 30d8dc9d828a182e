//! Results of a join, for owners that hold the contributions of all ranks.

use crate::arithmetic::{ArithmeticError, apply_in_place_left};
use crate::graph::JoinMode;

/// One rank's result of a join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinResult {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The first element that was divided by zero, if any.
    pub divided_by_zero: Option<u64>,
}

/// Error of combining contributions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The length of a contribution differs from the other ranks' or does not fit the mode.
    #[error(
        "rank {rank} contributes {found} bytes to a join in which {expected} are expected from every rank"
    )]
    Length {
        /// The contributing rank.
        rank: u32,
        /// Length of the other contributions.
        expected: usize,
        /// Length of this contribution.
        found: usize,
    },
    /// A rank, or the root, without a contribution.
    #[error("rank {rank} has contributed nothing to a join of {ranks} ranks")]
    Absent {
        /// The missing rank.
        rank: u32,
        /// Number of contributions.
        ranks: usize,
    },
    /// The reduction cannot be computed on these bytes.
    #[error("the contributions to a join cannot be combined: {0}")]
    Arithmetic(#[from] ArithmeticError),
}

/// Returns the result of `rank` from the contributions of all ranks.
///
/// A broadcast uses the root's contribution only; it is the result of every rank, the root
/// included.
///
/// # Errors
/// Returns an error if the contributions do not fit each other or the mode.
///
/// ```
/// use goal::arithmetic::{Arithmetic, DataType};
/// use goal::graph::JoinMode;
///
/// let mode = JoinMode::Reduce { operation: Arithmetic::Subtract, data_type: DataType::U8 };
/// assert_eq!(goal::join::combine(mode, 1, &[&[9], &[2], &[3]])?.bytes, [4]);
/// # Ok::<(), goal::join::JoinError>(())
/// ```
pub fn combine(
    mode: JoinMode,
    rank: u32,
    contributions: &[&[u8]],
) -> Result<JoinResult, JoinError> {
    let absent = |rank| JoinError::Absent { rank, ranks: contributions.len() };
    let own = contributions.get(rank as usize).ok_or(absent(rank))?;
    let equal =
        || match contributions.iter().enumerate().find(|(_, other)| other.len() != own.len()) {
            Some((rank, other)) => Err(JoinError::Length {
                rank: rank as u32,
                expected: own.len(),
                found: other.len(),
            }),
            None => Ok(()),
        };
    let only_bytes = |bytes| JoinResult { bytes, divided_by_zero: None };
    match mode {
        JoinMode::Barrier => Ok(JoinResult::default()),
        JoinMode::Broadcast { root } => {
            Ok(only_bytes(contributions.get(root as usize).ok_or(absent(root))?.to_vec()))
        }
        JoinMode::Gather => equal().map(|()| only_bytes(contributions.concat())),
        JoinMode::Exchange => {
            equal()?;
            let part = own.len() / contributions.len();
            if part * contributions.len() != own.len() {
                return Err(JoinError::Length {
                    rank,
                    expected: part * contributions.len(),
                    found: own.len(),
                });
            }
            let range = rank as usize * part..(rank as usize + 1) * part;
            Ok(only_bytes(
                contributions.iter().flat_map(|other| &other[range.clone()]).copied().collect(),
            ))
        }
        JoinMode::Reduce { operation, data_type } => {
            equal()?;
            let mut joined = only_bytes(contributions[0].to_vec());
            for other in &contributions[1..] {
                match apply_in_place_left(operation, data_type, &mut joined.bytes, other) {
                    Err(ArithmeticError::DivisionByZero { element }) => {
                        let before = joined.divided_by_zero.unwrap_or(u64::MAX);
                        joined.divided_by_zero = Some(before.min(element as u64));
                    }
                    outcome => outcome?,
                }
            }
            Ok(joined)
        }
    }
}
