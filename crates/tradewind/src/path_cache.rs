//! The cached paths of a communicator.

use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use std::collections::HashMap;

/// Paths by their keys. Linked schedules hold memory of the arena, and those between nodes memory of
/// the backends. When they exceed a limit, the least recently used ones are dropped.
///
/// A call that does not find a common path takes a number for a link, so all ranks must drop the same
/// ones. The choice follows from the order of the calls and from the lengths of the blocks, in which
/// ranks agree: a block holds the schedules of all ranks.
#[derive(Debug, Default)]
pub(crate) struct PathCache {
    paths: HashMap<LinkKey, CachedPath>,
    /// Number of lookups.
    lookups: u64,
    /// Bytes and number of the schedules.
    held: Size,
}

#[derive(Debug)]
struct CachedPath {
    path: ExecutionPath,
    /// The lookup that used it last.
    last_use: u64,
}

/// The size of some schedules, in bytes of the arena.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

impl PathCache {
    /// The path with this key.
    pub(crate) fn find(&mut self, key: &LinkKey) -> Option<ExecutionPath> {
        self.lookups += 1;
        let found = self.paths.get_mut(key)?;
        found.last_use = self.lookups;
        Some(found.path.clone())
    }

    /// Adds a path, or replaces it. Returns the paths that leave the cache. The caller drops them after
    /// it has unlocked the cache, because the drop of a schedule takes other locks.
    pub(crate) fn insert(
        &mut self,
        key: LinkKey,
        path: ExecutionPath,
        limit: Size,
    ) -> Vec<ExecutionPath> {
        let mut left = Vec::new();
        left.extend(self.remove(&key));
        // A path with a longer block than the limit permits stays until the next one.
        let bytes = held_bytes(&path);
        while bytes.is_some_and(|bytes| self.held.exceeds(limit, bytes))
            && let Some(oldest) = self.oldest()
        {
            left.extend(self.remove(&oldest));
        }
        if let Some(bytes) = bytes {
            self.held.bytes += bytes;
            self.held.count += 1;
        }
        self.paths.insert(key, CachedPath { path, last_use: self.lookups });
        left
    }

    /// The least recently used path with a schedule.
    fn oldest(&self) -> Option<LinkKey> {
        let held = self.paths.iter().filter(|(_, cached)| held_bytes(&cached.path).is_some());
        held.min_by_key(|(_, cached)| cached.last_use).map(|(key, _)| key.clone())
    }

    fn remove(&mut self, key: &LinkKey) -> Option<ExecutionPath> {
        let CachedPath { path, .. } = self.paths.remove(key)?;
        if let Some(bytes) = held_bytes(&path) {
            self.held.bytes -= bytes;
            self.held.count -= 1;
        }
        Some(path)
    }
}

impl Size {
    /// Returns `true` if these schedules and one more of `bytes` bytes exceed the limit.
    fn exceeds(self, limit: Size, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) > limit.bytes || self.count >= limit.count
    }
}

/// Length of the block in the arena, if the path has a schedule.
fn held_bytes(path: &ExecutionPath) -> Option<u64> {
    match path {
        ExecutionPath::Linked(linked) => Some(linked.block_bytes()),
        ExecutionPath::Internode(_) => Some(0),
        ExecutionPath::Flat(_) => None,
    }
}
