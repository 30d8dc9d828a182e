//! What a join gives each rank, for owners that have all contributions at hand.

use goal::arithmetic::{ArithmeticError, apply_in_place_left};
use goal::graph::JoinMode;

/// One rank's result of a join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The first element that was divided by zero, if one was.
    pub divided_by_zero: Option<u64>,
}

/// Why contributions cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A contribution is not as long as that of rank 0, or its length does not fit the mode.
    #[error(
        "rank {rank} contributes {found} bytes to a join in which {expected} are expected from every rank"
    )]
    Length {
        /// The rank that contributes.
        rank: u32,
        /// Length the others have.
        expected: usize,
        /// Length it has.
        found: usize,
    },
    /// A rank, or the root, that is not among the contributions.
    #[error("rank {rank} has contributed nothing to a join of {ranks} ranks")]
    Absent {
        /// The rank that is missing.
        rank: u32,
        /// How many have contributed.
        ranks: usize,
    },
    /// The bytes cannot be computed on.
    #[error("the contributions to a join cannot be combined: {0}")]
    Arithmetic(#[from] ArithmeticError),
}

/// The result of `rank`, when every rank has contributed. In a broadcast, only the root's
/// contribution is looked at; it is every rank's result, the root's too should it want one.
///
/// # Errors
/// Contributions that do not fit each other or the mode.
///
/// ```
/// use goal::arithmetic::{Arithmetic, DataType};
/// use goal::graph::JoinMode;
///
/// let mode = JoinMode::Reduce { operation: Arithmetic::Subtract, data_type: DataType::U8 };
/// assert_eq!(interpreter::join::combine(mode, 1, &[&[9], &[2], &[3]])?.bytes, [4]);
/// # Ok::<(), interpreter::join::JoinError>(())
/// ```
pub fn combine(mode: JoinMode, rank: u32, contributions: &[&[u8]]) -> Result<Joined, JoinError> {
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
    let only_bytes = |bytes| Joined { bytes, divided_by_zero: None };
    match mode {
        JoinMode::Barrier => Ok(Joined::default()),
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
