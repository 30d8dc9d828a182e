//! Memory in a rank's own arena for the private buffers of large collectives. A buffer is reused
//! after every rank has consumed the run that used it.
//!
//! Nonblocking calls stage private inputs of every length, so a long message is copied twice. One
//! copy by the reader in its wait took 0.9 to 1.1 times as long from 64 KiB to 1 MiB: the kernel's
//! copy of lines from another core takes as long as both copies, and the rank that finished first
//! waited for the reader or made the second copy after all.

use crate::error::Error;
use shm::arena::Arena;
use shm::segment::Offset;
use std::sync::Arc;

/// A staging buffer.
#[derive(Debug)]
struct StagingBuffer {
    at: Offset,
    bytes: u64,
    /// The last run that used it. Other ranks may read the buffer until they have consumed that
    /// run.
    run: u64,
    /// Number of runs that have used it.
    uses: u64,
}

impl StagingBuffer {
    fn reuse(&mut self, run: u64) -> Offset {
        self.run = run;
        self.uses += 1;
        self.at
    }
}

/// Size of the smallest buffer. Sizes are powers of two, so that messages of many lengths share
/// buffers.
const LEAST_BYTES: u64 = 4096;

/// Largest number of buffers of one size in rotation. Bounds the search.
const MOST_BUFFERS: u64 = 64;

/// Uses of a size after which it gets one more buffer, up to those in rotation.
///
/// The first touch of a page costs as much as a copy of it to another core, or many times as much in a
/// virtual machine that has to get it from its host. A program with few calls of a length would pay
/// that in each of them, and never gain by the rotation.
const USES_BEFORE_GROWTH: u64 = 16;

/// Usual size of a core's second-level cache, in bytes.
const CACHE_BYTES: u64 = 1 << 20;

/// Returns the total bytes of a rank's buffers of one size from which they are used in rotation.
///
/// With a core for each rank, twice the size of the second-level cache. A write to a line in a
/// reader's cache must first invalidate the copy, which costs four times as much as a write to a
/// line that the reader has evicted. Ranks that share a core share its cache: the buffers of all of
/// them should stay in it. As measured, a quarter is best with two ranks a core, and a sixteenth
/// with four.
fn rotation_bytes(ranks: u32, cores: u32) -> u64 {
    let ranks_a_core = u64::from(ranks.div_ceil(cores.max(1)).max(1));
    2 * CACHE_BYTES / (ranks_a_core * ranks_a_core)
}

/// The staging buffers of a rank. Other ranks may read them, so a drop frees none.
#[derive(Debug)]
pub(crate) struct Staging {
    arena: Arc<Arena>,
    buffers: Vec<StagingBuffer>,
    rotation_bytes: u64,
}

/// Checks that an empty arena could hold a staging buffer of `bytes` bytes. Otherwise returns the arena's own error.
pub(crate) fn check(arena: &Arena, bytes: u64) -> Result<(), Error> {
    check_capacity(arena, class_of(bytes))
}

/// Checks that an empty arena has space for `bytes` bytes. Otherwise returns the arena's own error.
pub(crate) fn check_capacity(arena: &Arena, bytes: u64) -> Result<(), Error> {
    if bytes <= arena.capacity() {
        return Ok(());
    }
    Ok(arena.allocate(bytes, 64).and_then(|at| arena.free(at))?)
}

/// Returns the length of a buffer for `bytes` bytes.
pub(crate) fn class_of(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(LEAST_BYTES)
}

impl Staging {
    /// Creates the staging of a rank in a job of `ranks` ranks that share `cores` cores.
    pub(crate) fn new(arena: Arc<Arena>, (ranks, cores): (u32, u32)) -> Self {
        Staging { arena, buffers: Vec::new(), rotation_bytes: rotation_bytes(ranks, cores) }
    }

    /// Returns a buffer of `bytes` bytes for `run`. Every rank has consumed all runs below
    /// `consumed`.
    pub(crate) fn take(&mut self, bytes: u64, run: u64, consumed: u64) -> Result<Offset, Error> {
        // Only buffers of this size: a longer one would be missing for the messages that need it,
        // and lengths in a program tend to repeat.
        let class = class_of(bytes);
        let of_class = self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.bytes == class);
        let mut count = 0;
        let mut uses = 0;
        let mut oldest = None::<(usize, u64)>;
        for (index, buffer) in of_class {
            count += 1;
            uses += buffer.uses;
            // The least recently used buffer: its lines have most likely left the readers' caches.
            // Every rank has consumed runs below `consumed`, so none reads this buffer any more.
            if buffer.run < consumed && oldest.is_none_or(|(_, run)| buffer.run < run) {
                oldest = Some((index, buffer.run));
            }
        }
        let oldest = oldest.map(|(index, _)| index);
        let grown = 1 + uses / USES_BEFORE_GROWTH;
        let most = grown.min(MOST_BUFFERS).min(self.rotation_bytes.div_ceil(class));
        if let Some(index) = oldest.filter(|_| count >= most) {
            return Ok(self.buffers[index].reuse(run));
        }
        // Below this number a new buffer is preferred: its lines are in no reader's cache.
        match (self.allocate(class, run), oldest) {
            (Ok(at), _) => Ok(at),
            (Err(_), Some(index)) => Ok(self.buffers[index].reuse(run)),
            (Err(error), None) => {
                // The arena is full: free the idle buffers of all sizes and try once more.
                self.free_idle(consumed);
                self.allocate(class, run).map_err(|_| error)
            }
        }
    }

    /// Frees the buffers of runs below `consumed`, which every rank has consumed.
    pub(crate) fn free_idle(&mut self, consumed: u64) {
        // A buffer that the arena refuses to free stays in the list, so it is used again.
        let arena = &self.arena;
        self.buffers.retain(|buffer| buffer.run >= consumed || arena.free(buffer.at).is_err());
    }

    /// Returns whether there are no buffers.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Frees the buffers of a run that has not begun.
    pub(crate) fn release(&mut self, run: u64) {
        // No rank has seen the run: its arrival would have published the locations.
        let arena = &self.arena;
        self.buffers.retain(|buffer| buffer.run != run || arena.free(buffer.at).is_err());
    }

    fn allocate(&mut self, bytes: u64, run: u64) -> Result<Offset, Error> {
        let at = self.arena.allocate(bytes, 64)?;
        self.buffers.push(StagingBuffer { at, bytes, run, uses: 1 });
        Ok(at)
    }
}
