//! Descriptors that a process keeps for long, beside a program that does not know of them.

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Numbers from here on are left alone by programs that close or replace a few low ones.
const FIRST: RawFd = 256;

/// A descriptor that the program around may close with all others, as daemons do, and whose number
/// it may then give to a file of its own.
#[derive(Debug)]
pub(crate) struct LastingDescriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    /// Device and number of the file.
    file: Option<(u64, u64)>,
}

impl LastingDescriptor {
    /// Keeps a descriptor, under a high number if the limit on open files permits one.
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        let descriptor = fcntl_dupfd_cloexec(&descriptor, FIRST).unwrap_or(descriptor);
        let file = file_of(&descriptor);
        LastingDescriptor { descriptor: ManuallyDrop::new(descriptor), file }
    }

    /// Returns whether the number still belongs to the file.
    pub(crate) fn is_intact(&self) -> bool {
        self.file.is_some() && file_of(&self.descriptor) == self.file
    }
}

fn file_of(descriptor: &OwnedFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|file| (file.st_dev, file.st_ino))
}

impl AsFd for LastingDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for LastingDescriptor {
    fn drop(&mut self) {
        // Otherwise the number is none of ours any more.
        if self.is_intact() {
            // SAFETY: nothing uses the descriptor after this.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::os::fd::{AsRawFd, FromRawFd};

    #[test]
    fn a_replaced_descriptor_is_left_to_its_new_owner() {
        let (reading, writing) = pipe().expect("two descriptors");
        let lasting = LastingDescriptor::new(reading);
        assert!(lasting.is_intact());
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        let number = lasting.as_fd().as_raw_fd();
        // SAFETY: the number is that of `lasting`, which a program replaces like this.
        let mut replaced = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&file, &mut replaced).expect("both are open");
        assert!(!lasting.is_intact());
        drop(lasting);
        let is_open = file_of(&replaced).is_some();
        // SAFETY: the new owner closes its descriptor, once.
        unsafe { ManuallyDrop::drop(&mut replaced) };
        assert!(is_open);
        drop(writing);
    }
}
