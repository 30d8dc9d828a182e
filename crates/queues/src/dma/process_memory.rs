//! Reading and writing another process's private memory by one system call, without its help:
//! process_vm_readv(2), process_vm_writev(2). The kernel allows it to whoever may trace the
//! process.

use std::io;

/// Why bytes were not moved, or not all.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The kernel, or a filter in front of it, forbids it.
    Forbidden(io::Error),
    /// There is no process with this number.
    NoProcess,
    /// After so many bytes comes an address that one of the processes has not mapped.
    NotMapped {
        /// How many bytes were moved.
        after: usize,
    },
    /// Anything else, such as too little memory.
    Failed(io::Error),
}

/// Fills `local` with what the process has at `address`.
pub(super) fn read(process: u32, address: u64, local: &mut [u8]) -> Result<(), Refusal> {
    let first = local.as_mut_ptr();
    // SAFETY: the call writes only into the rest of `local`, which is borrowed exclusively.
    piecewise(local.len(), |done, left| unsafe {
        let here = piece(first.add(done).cast(), left);
        libc::process_vm_readv(process.cast_signed(), &here, 1, &there(address, done, left), 1, 0)
    })
}

/// Puts `local` to `address` of the process.
///
/// # Safety
/// It must be the right process, and its owner must have said that these bytes may be overwritten
/// at this moment.
pub(super) unsafe fn write(process: u32, address: u64, local: &[u8]) -> Result<(), Refusal> {
    let first = local.as_ptr().cast_mut();
    // SAFETY: on this side the call only reads from the rest of `local`; the other side is the
    // caller's promise.
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

/// Calls until all bytes are moved: the kernel stops early at its own limit, at a signal, and
/// before an address that is not mapped; the next call says which it was.
fn piecewise(
    bytes: usize,
    mut call: impl FnMut(usize, usize) -> libc::ssize_t,
) -> Result<(), Refusal> {
    let mut done = 0;
    while done < bytes {
        match usize::try_from(call(done, bytes - done)) {
            Ok(0) => return Err(Refusal::NotMapped { after: done }),
            Ok(moved) => done += moved,
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
                        return Err(Refusal::Forbidden(error));
                    }
                    Some(libc::ESRCH) => return Err(Refusal::NoProcess),
                    Some(libc::EFAULT) => return Err(Refusal::NotMapped { after: done }),
                    _ => return Err(Refusal::Failed(error)),
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

    /// A process that waits for the end of its input, and the first gap in its memory: the bytes
    /// before it and where it begins.
    fn process_with_a_gap() -> (Child, u64, usize) {
        let child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        // Until it has become another program its memory is a copy of this one's; both have gaps.
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
    fn a_range_that_ends_unmapped_is_moved_up_to_there() {
        let (mut child, gap, before) = process_with_a_gap();
        let mut bytes = vec![0; before + 100];
        match read(child.id(), gap - before as u64, &mut bytes) {
            Err(Refusal::NotMapped { after }) => assert_eq!(after, before),
            // A sandbox may forbid it altogether.
            Err(Refusal::Forbidden(_)) => {}
            other => panic!("{other:?}"),
        }
        drop(child.stdin.take());
        child.wait().expect("a child");
        assert!(matches!(
            read(child.id(), gap, &mut bytes),
            Err(Refusal::NoProcess | Refusal::Forbidden(_))
        ));
    }

    #[test]
    fn own_memory_is_moved_both_ways() {
        let source = [7_u8; 100_000];
        let mut target = [0_u8; 100_000];
        match read(std::process::id(), source.as_ptr() as u64, &mut target) {
            Ok(()) => assert_eq!(source, target),
            Err(Refusal::Forbidden(_)) => return,
            other => panic!("{other:?}"),
        }
        let other = [9_u8; 100_000];
        let address = target.as_mut_ptr() as u64;
        // SAFETY: this process, and the target is a variable of this function that nobody looks at
        // meanwhile.
        unsafe { write(std::process::id(), address, &other) }
            .expect("what can be read can be written");
        assert_eq!(std::hint::black_box(target), other);
        assert!(matches!(
            read(std::process::id(), 8, &mut target),
            Err(Refusal::NotMapped { after: 0 })
        ));
    }
}
