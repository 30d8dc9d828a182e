//! Marker for code that relies on the order of sequentially consistent accesses.

/// Marks the point between a sequentially consistent read-modify-write and a sequentially
/// consistent load of another word.
///
/// The function does nothing: in the total order of such accesses the read-modify-write comes
/// first, and no processor that Rust supports lets the load overtake it. It exists because loom
/// treats sequentially consistent accesses as acquire and release; its tests place a fence here.
#[inline(always)]
pub(crate) fn settle() {}
