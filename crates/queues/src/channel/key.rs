//! Keys that make equal values of consecutive laps differ in their slots, so that a repeated value
//! is seen as a new one.

/// Returns the key that is combined with every value of one lap around the ring. Consecutive laps
/// have unrelated keys, so that a new value looks like the old word with a probability of 2⁻⁶⁴.
/// (The key is not secret: a program that knows it can construct that case, and the protocol
/// handles it.)
pub(crate) fn of_lap(lap: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    // Generators, 2014, figure 17): a bijection, so that two laps never share a key.
    let mut bits = lap.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
