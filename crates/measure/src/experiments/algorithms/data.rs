//! Inputs and expected outputs of every collective: a plain reference.

use super::graphs::CollectiveCall;
use collectives::Collective;
use goal::arithmetic::DataType;

/// A rank's buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) input: Vec<u8>,
    /// The expected output; empty where the rank receives nothing.
    pub(super) expected: Vec<u8>,
}

impl Data {
    pub(super) fn of(shape: &CollectiveCall, rank: u32) -> Self {
        use Collective as O;
        let CollectiveCall { operation, ranks, bytes, root, .. } = *shape;
        let everyone = 0..ranks;
        let whole = |first: u32, end: u32| sum(shape, first..end, 0, bytes);
        let at_root = |data: Vec<u8>| if rank == root { data } else { Vec::new() };
        let elsewhere = |data: Vec<u8>| if rank == root { Vec::new() } else { data };
        let own = || block(rank, 0, bytes);
        let (input, expected) = match operation {
            O::Barrier => (Vec::new(), Vec::new()),
            O::Bcast => (at_root(block(root, 0, bytes)), elsewhere(block(root, 0, bytes))),
            O::Scatter => {
                let input = everyone.flat_map(|to| block(root, to, bytes)).collect();
                (at_root(input), block(root, rank, bytes))
            }
            O::Gather => {
                (own(), at_root(everyone.flat_map(|from| block(from, 0, bytes)).collect()))
            }
            O::Allgather => (own(), everyone.flat_map(|from| block(from, 0, bytes)).collect()),
            O::Reduce => (whole(rank, rank + 1), at_root(whole(0, ranks))),
            O::Allreduce => (whole(rank, rank + 1), whole(0, ranks)),
            O::Scan => (whole(rank, rank + 1), whole(0, rank + 1)),
            O::Exscan => (whole(rank, rank + 1), whole(0, rank)),
            O::ReduceScatter => {
                let input = sum(shape, rank..rank + 1, 0, bytes * u64::from(ranks));
                (input, sum(shape, everyone, bytes * u64::from(rank), bytes))
            }
            _ => {
                let input = everyone.clone().flat_map(|to| block(rank, to, bytes)).collect();
                (input, everyone.flat_map(|from| block(from, rank, bytes)).collect())
            }
        };
        Data { input, expected }
    }
}

/// The block from one rank to another.
fn block(from: u32, to: u32, bytes: u64) -> Vec<u8> {
    let salt = u64::from(from) * 31 + u64::from(to) * 17;
    (0..bytes).map(|index| (salt + index * 7 + (index >> 8)) as u8).collect()
}

/// These ranks' contributions combined, from this byte on.
fn sum(shape: &CollectiveCall, ranks: std::ops::Range<u32>, from: u64, bytes: u64) -> Vec<u8> {
    let data_type = shape.data_type();
    let unit = data_type.bytes() as u64;
    let value = |rank: u32, element: u64| (u64::from(rank) * 5 + element * 3) % 7;
    let total = |element| ranks.clone().map(|rank| value(rank, element)).sum::<u64>();
    let elements = from / unit..(from + bytes) / unit;
    match data_type {
        DataType::F64 => {
            elements.flat_map(|element| (total(element) as f64).to_ne_bytes()).collect()
        }
        _ => elements.map(|element| total(element) as u8).collect(),
    }
}
