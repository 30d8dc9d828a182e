//! What disguises values on the wire, so that equal values in consecutive laps do not look like
//! "nothing new".

/// The number that is combined with every value of one lap around the ring. Neighbouring laps have
/// unrelated keys, which makes it a matter of one chance in 2⁶⁴ that a new value, whatever it is,
/// looks like the old one. (Not a secret: whoever knows the key can provoke it, and the protocol is
/// prepared.)
pub(crate) fn of_lap(lap: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    // Generators, 2014, figure 17): a bijection, so that two laps never share a key.
    let mut bits = lap.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
