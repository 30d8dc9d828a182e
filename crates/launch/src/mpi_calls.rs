//! Lists of the calls of MPI that run on tradewind: the value of
//! [`MPI_ONLY`](crate::environment::MPI_ONLY) and of `tradewind mpi --only`.

use crate::edit_distance::distance;

/// Stands for all collectives.
pub const ALL: &str = "all";

/// Stands for all nonblocking and persistent ones.
pub const NONBLOCKING: &str = "nonblocking";

/// Names of the collectives of MPI, in lower case and without `MPI_`.
const COLLECTIVES: [&str; 22] = [
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "neighbor_allgather",
    "neighbor_allgatherv",
    "neighbor_alltoall",
    "neighbor_alltoallv",
    "neighbor_alltoallw",
];

/// A word of a list that is no name of a call.
#[derive(Debug, thiserror::Error)]
#[error("there is no collective {name:?}; {}", .nearest.as_deref().map_or_else(
    || "the names are those of MPI: iallreduce, allreduce_init, allreduce".to_owned(),
    |nearest| format!("the nearest name is {nearest}")
))]
pub struct UnknownCall {
    name: String,
    nearest: Option<String>,
}

/// The names in a list, as [`names`] has them, or [`UnknownCall`] for a word that is none.
///
/// ```
/// let words: Vec<_> = launch::mpi_calls::read("MPI_Ibcast, all, iallreduec").collect();
/// assert_eq!(words[0].as_ref().ok(), Some(&"ibcast".to_owned()));
/// assert_eq!(words[1].as_ref().ok(), Some(&"all".to_owned()));
/// let error = words[2].as_ref().unwrap_err().to_string();
/// assert!(error.ends_with("the nearest name is iallreduce"), "{error}");
/// ```
pub fn read(list: &str) -> impl Iterator<Item = Result<String, UnknownCall>> + '_ {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(|word| {
        let lower = word.to_ascii_lowercase();
        let name = lower.strip_prefix("mpi_").unwrap_or(&lower).to_owned();
        if names().any(|known| known == name) {
            return Ok(name);
        }
        let distances = names().map(|known| (distance(&known, &name), known));
        // With more differences two names have nothing in common.
        let nearest = distances.min().filter(|(least, _)| 2 * least <= name.len());
        Err(UnknownCall { name: word.to_owned(), nearest: nearest.map(|(_, known)| known) })
    })
}

/// The names of all calls, nonblocking, persistent and blocking ones, and of the groups.
///
/// ```
/// assert!(launch::mpi_calls::names().any(|name| name == "barrier_init"));
/// ```
pub fn names() -> impl Iterator<Item = String> {
    let forms = |name: &str| [format!("i{name}"), format!("{name}_init"), name.to_owned()];
    COLLECTIVES.into_iter().flat_map(forms).chain([ALL, NONBLOCKING].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_a_near_name_get_examples() {
        let error = |list| read(list).find_map(Result::err).map(|error| error.to_string());
        assert_eq!(error("ibarrier,, ALL"), None);
        let far = error("all,xyz").expect("there is no such call");
        assert!(far.starts_with("there is no collective \"xyz\"; the names are"), "{far}");
    }
}
