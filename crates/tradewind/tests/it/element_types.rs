//! Reductions of elements of every size, on one node and between nodes, against sums by hand.

use tradewind::{Communicator, Complex, F64At, Op, Result, bf16, f16, local, local_nodes};

testing::tests![every_size_of_elements_is_reduced_whole];

/// Lengths from one element to many pieces, with rests.
const LENGTHS: [usize; 4] = [1, 513, 8195, 70_001];

/// Reduces elements that all ranks can compute: `of(rank, index)`, and the result for all ranks.
fn check<T: tradewind::Element + PartialEq + std::fmt::Debug>(
    world: &Communicator,
    op: Op,
    of: impl Fn(u32, usize) -> T,
    expected: impl Fn(usize) -> T,
) -> Result<()> {
    let size = world.size() as usize;
    for length in LENGTHS {
        let mine: Vec<T> = (0..length).map(|index| of(world.rank(), index)).collect();
        let all: Vec<T> = (0..length).map(&expected).collect();
        let mut found = vec![T::zeroed(); length];
        world.allreduce(&mine, &mut found, op)?;
        assert!(found == all, "allreduce of {length} {}", T::DATA_TYPE);
        world.iallreduce(&mine, &mut found[..], op)?.wait()?;
        assert!(found == all, "iallreduce of {length} {}", T::DATA_TYPE);
        let block = length / size;
        let mut part = vec![T::zeroed(); block];
        world.reduce_scatter_block(&mine[..block * size], &mut part, op)?;
        let begin = block * world.rank() as usize;
        assert!(
            part == all[begin..begin + block],
            "reduce_scatter_block of {block} {}",
            T::DATA_TYPE
        );
    }
    Ok(())
}

fn every_type(world: Communicator) -> Result<()> {
    let size = world.size();
    let ranks = size * (size - 1) / 2;
    let small = |index: usize| (index % 5) as f32;
    let sum = |index| ranks as f32 + size as f32 * small(index);
    check(
        &world,
        Op::Sum,
        |rank, index| f16::from_f32(rank as f32 + small(index)),
        |index| f16::from_f32(sum(index)),
    )?;
    check(
        &world,
        Op::Sum,
        |rank, index| bf16::from_f32(rank as f32 + small(index)),
        |index| bf16::from_f32(sum(index)),
    )?;
    check(
        &world,
        Op::Sum,
        |rank, index| Complex::new(f64::from(rank), index as f64),
        |index| Complex::new(f64::from(ranks), f64::from(size) * index as f64),
    )?;
    check(
        &world,
        Op::Xor,
        |rank, index| (index as u128) << 90 ^ 1 << rank,
        |index| if size % 2 == 1 { (index as u128) << 90 } else { 0 } ^ ((1 << size) - 1),
    )?;
    // The minimum is on the rank that the index chooses; the others have larger and equal values.
    check(
        &world,
        Op::Minimum,
        |rank, index| {
            let distance = (rank + size - index as u32 % size) % size;
            F64At { value: f64::from(distance.min(1)), index: rank.into() }
        },
        |index| F64At { value: 0.0, index: (index as u32 % size).into() },
    )
}

fn every_size_of_elements_is_reduced_whole() {
    for ranks in 1..=4 {
        local(ranks, every_type).unwrap_or_else(|error| panic!("{ranks} ranks: {error}"));
    }
    for nodes in [&[1, 1][..], &[2, 1], &[1, 1, 1]] {
        local_nodes(nodes, every_type).unwrap_or_else(|error| panic!("{nodes:?}: {error}"));
    }
}
