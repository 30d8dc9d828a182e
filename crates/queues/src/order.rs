//! A place where the order of sequentially consistent accesses is relied on.

/// Between a sequentially consistent read-modify-write and a sequentially consistent load of
/// another word.
///
/// Nothing happens here: in the one order of all such accesses the read-modify-write comes first,
/// and no processor that Rust runs on lets the load overtake it. The function exists because loom
/// takes sequentially consistent accesses for acquire and release ones; its tests put a fence here
/// instead.
#[inline(always)]
pub(crate) fn settle() {}
