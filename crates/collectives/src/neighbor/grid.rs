//! Cartesian grids: ranks and coordinates, neighbours, and the number of ranks in each dimension.

use crate::CollectiveError;
use crate::member::Member;

/// A Cartesian grid of ranks.
///
/// Ranks are numbered row by row: the last coordinate changes fastest. Numbering and order of the
/// neighbours are those of the MPI standard, version 4.1, sections 8.5 and 8.6.
///
/// ```
/// use collectives::neighbor::Grid;
///
/// // 0 1 2
/// // 3 4 5, the second dimension periodic
/// let grid = Grid::new(&[2, 3], &[false, true])?;
/// assert_eq!(grid.coordinates(5), Some(vec![1, 2]));
/// assert_eq!(grid.rank(&[1, 3]), Some(3));
/// assert_eq!(grid.rank(&[2, 0]), None);
/// assert_eq!(grid.shifted(5, 1, 2), Some(4));
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    dimensions: Vec<Dimension>,
    ranks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Dimension {
    extent: u32,
    is_periodic: bool,
    /// Distance of the numbers of two ranks that are next to each other in this dimension.
    stride: u32,
}

impl Grid {
    /// A grid of these extents; a periodic dimension is a ring.
    ///
    /// # Errors
    /// [`CollectiveError::PeriodicFlagsDoNotFit`], [`CollectiveError::GridSize`].
    pub fn new(dimensions: &[u32], periodic: &[bool]) -> Result<Self, CollectiveError> {
        if dimensions.len() != periodic.len() {
            let dimensions = dimensions.len();
            let periodic = periodic.len();
            return Err(CollectiveError::PeriodicFlagsDoNotFit { dimensions, periodic });
        }
        let ranks = places(dimensions)?;
        let mut stride = ranks;
        let with_stride = |(extent, is_periodic): (&u32, &bool)| {
            stride /= extent;
            Dimension { extent: *extent, is_periodic: *is_periodic, stride }
        };
        let dimensions = dimensions.iter().zip(periodic).map(with_stride).collect();
        Ok(Grid { dimensions, ranks })
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The coordinates of a rank; `None` if the grid has no such rank. As `MPI_Cart_coords`.
    pub fn coordinates(&self, rank: u32) -> Option<Vec<i64>> {
        let of_rank = |dimension: &Dimension| i64::from(dimension.coordinate(rank));
        (rank < self.ranks).then(|| self.dimensions.iter().map(of_rank).collect())
    }

    /// The rank at these coordinates, one for each dimension. In a periodic dimension they may be
    /// any numbers; beyond the edge of another one there is no rank. As `MPI_Cart_rank`.
    pub fn rank(&self, coordinates: &[i64]) -> Option<u32> {
        if coordinates.len() != self.dimensions.len() {
            return None;
        }
        let places = self.dimensions.iter().zip(coordinates);
        places.map(|(dimension, coordinate)| dimension.place((*coordinate).into())).sum()
    }

    /// The rank that is `displacement` steps in a dimension from a rank; `None` beyond the edge of a
    /// dimension that is not periodic, or if the grid has no such rank or dimension.
    ///
    /// `MPI_Cart_shift` has it as the destination; its source is that of the opposite displacement.
    pub fn shifted(&self, rank: u32, dimension: usize, displacement: i64) -> Option<u32> {
        let dimension = self.dimensions.get(dimension).filter(|_| rank < self.ranks)?;
        let coordinate = dimension.coordinate(rank);
        let place = dimension.place(i128::from(coordinate) + i128::from(displacement))?;
        Some(rank - coordinate * dimension.stride + place)
    }

    /// The neighbours of a rank: dimension by dimension, the one in the negative direction, then the
    /// one in the positive direction; `None` beyond the edge of a dimension that is not periodic.
    ///
    /// # Errors
    /// [`CollectiveError::RankOutOfRange`].
    ///
    /// ```
    /// use collectives::neighbor::Grid;
    ///
    /// let grid = Grid::new(&[2, 3], &[false, true])?;
    /// assert_eq!(grid.neighbors(4)?, [Some(1), None, Some(3), Some(5)]);
    /// # Ok::<(), collectives::CollectiveError>(())
    /// ```
    pub fn neighbors(&self, rank: u32) -> Result<Vec<Option<u32>>, CollectiveError> {
        Member::new(rank, self.ranks)?;
        let both = |dimension| [-1, 1].map(|step| self.shifted(rank, dimension, step));
        Ok((0..self.dimensions.len()).flat_map(both).collect())
    }
}

impl Dimension {
    fn coordinate(self, rank: u32) -> u32 {
        rank / self.stride % self.extent
    }

    /// Summand of a coordinate in the number of a rank.
    fn place(self, coordinate: i128) -> Option<u32> {
        let extent = i128::from(self.extent);
        let is_inside = self.is_periodic || (0..extent).contains(&coordinate);
        is_inside.then(|| coordinate.rem_euclid(extent) as u32 * self.stride)
    }
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
