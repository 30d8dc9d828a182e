//! Reads and writes of another process's private memory by one system call, without its
//! participation: process_vm_readv(2), process_vm_writev(2). The kernel requires the permission to
//! trace the process.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

/// Reason why bytes were not copied, or not all.
#[derive(Debug)]
pub enum AccessFailure {
    /// The kernel, or a filter in front of it, forbids it.
    Forbidden(io::Error),
    /// No process has this number.
    NoProcess,
    /// One of the processes has not mapped the next address.
    NotMapped {
        /// Number of bytes copied before.
        after: usize,
    },
    /// Any other reason, such as a lack of memory.
    Failed(io::Error),
}

/// Fills `local` from `address` of the process.
///
/// # Errors
/// [`AccessFailure`]; some bytes of `local` may have been filled.
pub fn read(process: u32, address: u64, local: &mut [u8]) -> Result<(), AccessFailure> {
    let first = local.as_mut_ptr();
    // SAFETY: the call writes only into the rest of `local`, which is borrowed exclusively. The
    // kernel checks the remote address and reports one that is not mapped.
    piecewise(local.len(), |done, left| unsafe {
        let here = piece(first.add(done).cast(), left);
        libc::process_vm_readv(process.cast_signed(), &here, 1, &there(address, done, left), 1, 0)
    })
}

/// A word of a process's private memory that states whether its other private memory still holds
/// what the process has offered. A [`read_guarded`] of another process reads both in one call.
///
/// The word also identifies the process: its first value is random, so a process that has received
/// the same number later does not have it at this address.
#[derive(Debug)]
pub struct Guard {
    generation: Box<AtomicU64>,
}

impl Guard {
    /// Returns a guard with a random generation.
    pub fn new() -> Self {
        // The standard library seeds its hash keys randomly.
        let first = RandomState::new().build_hasher().finish();
        Guard { generation: Box::new(AtomicU64::new(first)) }
    }

    /// Returns the address and the generation, for the process that reads.
    pub fn published(&self) -> GuardValue {
        // Relaxed: only this process changes the word.
        let generation = self.generation.load(Ordering::Relaxed);
        GuardValue { address: &raw const *self.generation as u64, generation }
    }

    /// Withdraws all offers: a read that ends later than this call fails.
    pub fn withdraw(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        // Release: the process's next writes to the memory that it had offered become visible after
        // the new generation. Pairs with the kernel's copies in `read_guarded`: it unpins the pages
        // of the bytes before it pins and reads that of the guard, and both steps are atomic
        // operations with acquire and release semantics.
        fence(Ordering::Release);
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

/// A guard as another process finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardValue {
    /// Address of the word in its process.
    pub address: u64,
    /// The word's value while the offer stands.
    pub generation: u64,
}

/// Fills `local` from `address` of the process, if the process still offers these bytes.
///
/// Returns false if the guard had changed: `local` may then hold any bytes.
///
/// # Errors
/// As [`read`].
pub fn read_guarded(
    process: u32,
    address: u64,
    local: &mut [u8],
    guard: GuardValue,
) -> Result<bool, AccessFailure> {
    let mut found = [0; size_of::<u64>()];
    let first = local.as_mut_ptr();
    let total = local.len() + found.len();
    // The kernel copies the ranges in their order, and returns after it has copied part of them
    // only at an address that is not mapped or at its own limit.
    // SAFETY: the call writes only into the rest of `local`, which is borrowed exclusively, and
    // into `found`. The kernel checks the remote addresses and reports those that are not mapped.
    piecewise(total, |done, left| unsafe {
        if done >= local.len() {
            let behind = done - local.len();
            let here = piece(found.as_mut_ptr().add(behind).cast(), left);
            let there = there(guard.address, behind, left);
            return libc::process_vm_readv(process.cast_signed(), &here, 1, &there, 1, 0);
        }
        let rest = local.len() - done;
        let here = [
            piece(first.add(done).cast(), rest),
            piece(found.as_mut_ptr().cast(), size_of::<u64>()),
        ];
        let there = [there(address, done, rest), there(guard.address, 0, size_of::<u64>())];
        libc::process_vm_readv(process.cast_signed(), here.as_ptr(), 2, there.as_ptr(), 2, 0)
    })?;
    Ok(u64::from_ne_bytes(found) == guard.generation)
}

/// Number of bytes of the copies that [`is_fast`] compares.
const PROBE_BYTES: usize = 64 << 10;

/// Returns whether the kernel's copy between processes is fast here: whether it takes at most three
/// times as long as a copy by this thread. Measured with this process's own memory, in about 0.2
/// ms; false where the kernel or a filter forbids the call altogether.
///
/// The kernel looks up every page of the other process. On an Intel Xeon its copy takes twice as
/// long as one by the thread, and one copy between two cores is then faster than two through shared
/// memory, each of which waits for lines from the other core. On an AMD EPYC it takes six times as
/// long, and two copies are faster.
pub fn is_fast() -> bool {
    const ROUNDS: usize = 9;
    const LONGEST: u32 = 3;
    let guard = Guard::new();
    let from = vec![1_u8; PROBE_BYTES];
    let mut to = vec![2_u8; PROBE_BYTES];
    let mut fastest = |copy: &mut dyn FnMut(&mut [u8]) -> bool| {
        let mut round = || {
            let start = Instant::now();
            let copied = copy(&mut to);
            std::hint::black_box(&mut to);
            copied.then(|| start.elapsed())
        };
        (0..ROUNDS).map(|_| round()).collect::<Option<Vec<_>>>()?.into_iter().min()
    };
    let private = fastest(&mut |to| {
        to.copy_from_slice(std::hint::black_box(&from));
        true
    });
    let address = from.as_ptr() as u64;
    let kernel = fastest(&mut |to| {
        read_guarded(std::process::id(), address, to, guard.published()).unwrap_or(false)
    });
    kernel.zip(private).is_some_and(|(kernel, private)| kernel < private * LONGEST)
}

/// Copies `local` to `address` of the process.
///
/// # Errors
/// [`AccessFailure`]; some bytes may have been copied.
///
/// # Safety
/// `process` must be the intended process, and it must have permitted that these bytes are
/// overwritten at this moment.
pub unsafe fn write(process: u32, address: u64, local: &[u8]) -> Result<(), AccessFailure> {
    let first = local.as_ptr().cast_mut();
    // SAFETY: on this side the call only reads the rest of `local`; for the other side the caller
    // guarantees that the target bytes may be overwritten.
    piecewise(local.len(), |done, left| unsafe {
        let here = piece(first.add(done).cast(), left);
        libc::process_vm_writev(process.cast_signed(), &here, 1, &there(address, done, left), 1, 0)
    })
}

fn piece(base: *mut libc::c_void, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: base, iov_len: bytes }
}

fn there(address: u64, done: usize, left: usize) -> libc::iovec {
    piece(std::ptr::without_provenance_mut((address as usize).wrapping_add(done)), left)
}

/// Repeats the call until all bytes are copied. The kernel stops early at its own limit, at a
/// signal, and before an address that is not mapped; the next call distinguishes these cases.
fn piecewise(
    bytes: usize,
    mut call: impl FnMut(usize, usize) -> libc::ssize_t,
) -> Result<(), AccessFailure> {
    let mut done = 0;
    while done < bytes {
        match usize::try_from(call(done, bytes - done)) {
            Ok(0) => return Err(AccessFailure::NotMapped { after: done }),
            Ok(moved) => done += moved,
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
                        return Err(AccessFailure::Forbidden(error));
                    }
                    Some(libc::ESRCH) => return Err(AccessFailure::NoProcess),
                    Some(libc::EFAULT) => return Err(AccessFailure::NotMapped { after: done }),
                    _ => return Err(AccessFailure::Failed(error)),
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Starts a process that waits for the end of its input. Returns it with the address of the
    /// first gap in its memory and the number of bytes mapped before it.
    fn process_with_a_gap() -> (Child, u64, usize) {
        let child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        // Before its exec the child's memory is a copy of this process's; both have gaps.
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).expect("/proc");
        let range = |line: &str| {
            let (ends, rights) = line.split_once(' ').expect("a range and rights");
            let (from, to) = ends.split_once('-').expect("a range");
            let number = |digits| u64::from_str_radix(digits, 16).expect("a number");
            (number(from), number(to), rights.starts_with('r'))
        };
        let ranges: Vec<_> = maps.lines().map(range).collect();
        let before_gap =
            ranges.windows(2).find(|pair| pair[0].2 && pair[0].1 < pair[1].0).expect("a gap");
        let (from, to, _) = before_gap[0];
        (child, to, (to - from).min(1 << 16) as usize)
    }

    #[test]
    fn a_range_is_copied_up_to_the_first_unmapped_address() {
        let (mut child, gap, before) = process_with_a_gap();
        let mut bytes = vec![0; before + 100];
        match read(child.id(), gap - before as u64, &mut bytes) {
            Err(AccessFailure::NotMapped { after }) => assert_eq!(after, before),
            // A sandbox may forbid the call.
            Err(AccessFailure::Forbidden(_)) => {}
            other => panic!("{other:?}"),
        }
        drop(child.stdin.take());
        child.wait().expect("a child");
        assert!(matches!(
            read(child.id(), gap, &mut bytes),
            Err(AccessFailure::NoProcess | AccessFailure::Forbidden(_))
        ));
    }

    #[test]
    fn own_memory_is_copied_both_ways() {
        let source = [7_u8; 100_000];
        let mut target = [0_u8; 100_000];
        match read(std::process::id(), source.as_ptr() as u64, &mut target) {
            Ok(()) => assert_eq!(source, target),
            Err(AccessFailure::Forbidden(_)) => return,
            other => panic!("{other:?}"),
        }
        let guard = Guard::new();
        let published = guard.published();
        target = [0; 100_000];
        let address = source.as_ptr() as u64;
        let found = read_guarded(std::process::id(), address, &mut target, published);
        assert!(found.expect("permitted before"), "the offer stands");
        assert_eq!(source, target);
        guard.withdraw();
        let found = read_guarded(std::process::id(), address, &mut target, published);
        assert!(!found.expect("permitted before"), "the offer has been withdrawn");
        let nowhere = GuardValue { address: 8, ..guard.published() };
        let found = read_guarded(std::process::id(), address, &mut target, nowhere);
        assert!(matches!(found, Err(AccessFailure::NotMapped { .. })), "{found:?}");
        let other = [9_u8; 100_000];
        let address = target.as_mut_ptr() as u64;
        // SAFETY: the process is this one, and the target is a local variable that is not accessed
        // during the call.
        unsafe { write(std::process::id(), address, &other) }.expect("readable memory is writable");
        assert_eq!(std::hint::black_box(target), other);
        assert!(matches!(
            read(std::process::id(), 8, &mut target),
            Err(AccessFailure::NotMapped { after: 0 })
        ));
    }
}
