//! Cartesian grids: neighbours, and the number of ranks in each dimension.

use crate::CollectiveError;
use crate::member::Member;

/// The neighbours of a rank in a grid of these extents: dimension by dimension, the one in the
/// negative direction, then the one in the positive direction; `None` beyond the edge of a
/// dimension that is not periodic.
///
/// Ranks are numbered row by row: the last coordinate changes fastest. Order and numbering are
/// those of the MPI standard, version 4.1, sections 8.5 and 8.6.
///
/// # Errors
/// [`CollectiveError::PeriodicFlagsDoNotFit`], [`CollectiveError::GridSize`],
/// [`CollectiveError::RankOutOfRange`].
///
/// ```
/// use collectives::neighbor::cartesian;
///
/// // 0 1 2
/// // 3 4 5, the second dimension periodic
/// assert_eq!(cartesian(&[2, 3], &[false, true], 4)?, [Some(1), None, Some(3), Some(5)]);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn cartesian(
    dimensions: &[u32],
    periodic: &[bool],
    rank: u32,
) -> Result<Vec<Option<u32>>, CollectiveError> {
    if dimensions.len() != periodic.len() {
        let dimensions = dimensions.len();
        let periodic = periodic.len();
        return Err(CollectiveError::PeriodicFlagsDoNotFit { dimensions, periodic });
    }
    let mut stride = places(dimensions)?;
    Member::new(rank, stride)?;
    let mut neighbors = Vec::with_capacity(2 * dimensions.len());
    for (extent, periodic) in dimensions.iter().zip(periodic) {
        stride /= extent;
        let line = Member::new(rank / stride % extent, *extent)?;
        let at = |coordinate: u32| rank - line.after(0) * stride + coordinate * stride;
        let negative = line.before(1);
        let positive = line.after(1);
        neighbors.push((*periodic || line.after(0) != 0).then(|| at(negative)));
        neighbors.push((*periodic || positive != 0).then(|| at(positive)));
    }
    Ok(neighbors)
}

/// The number of places in a grid.
fn places(dimensions: &[u32]) -> Result<u32, CollectiveError> {
    let error = |places| CollectiveError::GridSize { dimensions: dimensions.to_vec(), places };
    if dimensions.contains(&0) {
        return Err(error("no rank"));
    }
    let product = dimensions.iter().try_fold(1u32, |product, extent| product.checked_mul(*extent));
    product.ok_or_else(|| error("more places than ranks can be numbered"))
}

/// The extents of a grid that holds exactly `ranks` ranks, as close to each other as possible,
/// largest first.
///
/// Of all ways to write `ranks` as a product of so many factors it is the one with the smallest
/// largest factor, among those the one with the smallest second factor, and so on. Its task is that
/// of `MPI_Dims_create` (MPI standard, version 4.1, section 8.5.2) with nothing fixed beforehand.
///
/// # Errors
/// [`CollectiveError::NoGrid`] for no ranks, or for no dimensions and more than one rank.
///
/// ```
/// use collectives::neighbor::balanced_dimensions;
///
/// assert_eq!(balanced_dimensions(12, 2)?, [4, 3]);
/// assert_eq!(balanced_dimensions(48, 3)?, [4, 4, 3]);
/// assert_eq!(balanced_dimensions(7, 2)?, [7, 1]);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn balanced_dimensions(ranks: u32, dimensions: usize) -> Result<Vec<u32>, CollectiveError> {
    let no_grid = CollectiveError::NoGrid { ranks, dimensions };
    if ranks == 0 {
        return Err(no_grid);
    }
    let divisors = divisors(ranks);
    // The product is below 2^32, so at most 31 factors are above 1.
    let mut factors = factors(ranks, dimensions.min(32) as u32, ranks, &divisors).ok_or(no_grid)?;
    factors.resize(dimensions, 1);
    Ok(factors)
}

/// All divisors, ascending.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> =
        (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large = small
        .iter()
        .rev()
        .map(|divisor| number / divisor)
        .filter(|divisor| Some(divisor) != small.last());
    small.iter().copied().chain(large).collect()
}

/// The first of all descending lists of `count` factors with this product, none above `limit`, in
/// lexicographic order.
fn factors(product: u32, count: u32, limit: u32, divisors: &[u32]) -> Option<Vec<u32>> {
    if count == 0 {
        return (product == 1).then(Vec::new);
    }
    let candidates = divisors.iter().copied().take_while(|factor| *factor <= limit);
    // The largest of the factors is at least their geometric mean.
    let mut candidates = candidates.filter(|factor| {
        product.is_multiple_of(*factor)
            && u64::from(*factor).saturating_pow(count) >= u64::from(product)
    });
    candidates.find_map(|factor| {
        let mut rest = factors(product / factor, count - 1, factor, divisors)?;
        rest.insert(0, factor);
        Some(rest)
    })
}
