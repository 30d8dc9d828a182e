//! Numbering and extents of grids.

use collectives::neighbor::{balanced_dimensions, cartesian};

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

#[test]
fn neighbours_differ_by_one_in_one_coordinate() {
    for dimensions in [vec![1], vec![5], vec![2, 3], vec![4, 1, 3], vec![2, 2, 2, 2]] {
        let ranks: u32 = dimensions.iter().product();
        for periodic in [true, false] {
            for rank in 0..ranks {
                let neighbors =
                    cartesian(&dimensions, &vec![periodic; dimensions.len()], rank).unwrap();
                let here = coordinates(&dimensions, rank);
                for (dimension, extent) in dimensions.iter().enumerate() {
                    for (side, step) in [(0, -1i64), (1, 1)] {
                        let moved = i64::from(here[dimension]) + step;
                        let inside = (0..i64::from(*extent)).contains(&moved);
                        let mut expected = here.clone();
                        expected[dimension] = moved.rem_euclid(i64::from(*extent)) as u32;
                        let found = neighbors[2 * dimension + side]
                            .map(|rank| coordinates(&dimensions, rank));
                        assert_eq!(
                            found,
                            (periodic || inside).then_some(expected),
                            "{rank} in {dimensions:?}"
                        );
                    }
                }
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
