//! Numbering and extents of grids.

use collectives::neighbor::{Grid, balanced_dimensions};

/// A rank's coordinates, last one fastest.
fn coordinates(dimensions: &[u32], mut rank: u32) -> Vec<u32> {
    let mut coordinates: Vec<u32> = dimensions
        .iter()
        .rev()
        .map(|extent| {
            let coordinate = rank % extent;
            rank /= extent;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

const GRIDS: [&[u32]; 6] = [&[], &[1], &[5], &[2, 3], &[4, 1, 3], &[2, 2, 2, 2]];

#[test]
fn ranks_have_coordinates_and_coordinates_ranks() {
    for dimensions in GRIDS {
        let grid = Grid::new(dimensions, &vec![false; dimensions.len()]).unwrap();
        for rank in 0..grid.ranks() {
            let found = grid.coordinates(rank).unwrap();
            let expected = coordinates(dimensions, rank);
            assert!(found.iter().copied().eq(expected.into_iter().map(i64::from)), "{found:?}");
            assert_eq!(grid.rank(&found), Some(rank), "{dimensions:?}");
        }
    }
}

#[test]
fn a_shift_wraps_in_periodic_dimensions_only() {
    let displacements = [0, 1, -1, 2, -2, 3, 7, -9, i64::MAX, i64::MIN];
    for dimensions in GRIDS {
        for is_periodic in [true, false] {
            let grid = Grid::new(dimensions, &vec![is_periodic; dimensions.len()]).unwrap();
            for rank in 0..grid.ranks() {
                let here = coordinates(dimensions, rank);
                let shifted = |dimension: usize, displacement: i64| {
                    let extent = i128::from(dimensions[dimension]);
                    let moved = i128::from(here[dimension]) + i128::from(displacement);
                    let mut expected = here.clone();
                    expected[dimension] = moved.rem_euclid(extent) as u32;
                    (is_periodic || (0..extent).contains(&moved)).then_some(expected)
                };
                let found = |rank: Option<u32>| rank.map(|rank| coordinates(dimensions, rank));
                for dimension in 0..dimensions.len() {
                    for displacement in displacements {
                        assert_eq!(
                            found(grid.shifted(rank, dimension, displacement)),
                            shifted(dimension, displacement),
                            "{rank} in {dimensions:?} by {displacement}"
                        );
                    }
                }
                let neighbors = grid.neighbors(rank).unwrap().into_iter().map(found);
                let expected = (0..dimensions.len())
                    .flat_map(|dimension| [-1, 1].map(|step| shifted(dimension, step)));
                assert!(neighbors.eq(expected), "{rank} in {dimensions:?}");
            }
        }
    }
}

/// All descending lists of this many factors.
fn factorizations(product: u32, count: usize, limit: u32) -> Vec<Vec<u32>> {
    if count == 0 {
        return if product == 1 { vec![Vec::new()] } else { Vec::new() };
    }
    let divisors = (1..=limit.min(product)).filter(|divisor| product.is_multiple_of(*divisor));
    let with = |first: u32| {
        let rest = factorizations(product / first, count - 1, first);
        rest.into_iter().map(move |rest| [vec![first], rest].concat())
    };
    divisors.flat_map(with).collect()
}

#[test]
fn extents_are_the_most_balanced_of_all() {
    for ranks in 1..=300 {
        for count in 1..=4 {
            let best = factorizations(ranks, count, ranks).into_iter().min();
            assert_eq!(
                Some(balanced_dimensions(ranks, count).unwrap()),
                best,
                "{ranks} in {count} dimensions"
            );
        }
    }
}

#[test]
fn extents_of_large_and_odd_grids_are_found() {
    assert_eq!(balanced_dimensions(1, 0), Ok(vec![]));
    assert_eq!(balanced_dimensions(1, 3), Ok(vec![1, 1, 1]));
    assert_eq!(balanced_dimensions(u32::MAX, 2), Ok(vec![65537, 65535]));
    assert_eq!(balanced_dimensions(4_294_967_291, 3), Ok(vec![4_294_967_291, 1, 1]), "a prime");
    assert_eq!(balanced_dimensions(65_521 * 65_521, 2), Ok(vec![65_521, 65_521]), "a square");
    assert_eq!(balanced_dimensions(1 << 31, 31), Ok(vec![2; 31]));
    // The number below 2^32 with the most divisors, 1536 of them.
    for count in 1..=40 {
        let extents = balanced_dimensions(3_491_888_400, count).unwrap();
        assert_eq!(extents.iter().map(|extent| u64::from(*extent)).product::<u64>(), 3_491_888_400);
        assert!(extents.is_sorted_by(|left, right| left >= right) && extents.len() == count);
    }
}
