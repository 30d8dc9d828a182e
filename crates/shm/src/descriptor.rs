//! Descriptors that a process keeps for long, beside a program that does not know of them.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FsWord, fstat, fstatfs};
use rustix::io::fcntl_dupfd_cloexec;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Numbers from here on are left alone by programs that close or replace a few low ones.
const FIRST: RawFd = 256;

/// Makes the process's table of descriptors long enough for those that it keeps later.
///
/// In a process with threads the kernel lengthens it only after a grace period, for ten milliseconds
/// and more: call this before the first thread starts. Without effect under a low limit on open files.
pub fn reserve() {
    // Both are closed at once; the table stays long.
    if let Ok(descriptor) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&descriptor, FIRST);
    }
}

/// A descriptor that the program around may close with all others, as daemons do, and whose number
/// it may then give to a file of its own.
#[derive(Debug)]
pub(crate) struct LastingDescriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    /// Device and number of the file.
    file: Option<(u64, u64)>,
    /// Process of a descriptor that had the file of all anonymous ones.
    process: Option<i32>,
}

impl LastingDescriptor {
    /// Keeps a descriptor, under a high number if the limit on open files permits one.
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        let descriptor = fcntl_dupfd_cloexec(&descriptor, FIRST).unwrap_or(descriptor);
        let file = file_of(&descriptor);
        let process = match is_anonymous(&descriptor) {
            true => process_of(&descriptor).ok().flatten(),
            false => None,
        };
        LastingDescriptor { descriptor: ManuallyDrop::new(descriptor), file, process }
    }

    /// Returns whether the number still belongs to the file.
    pub(crate) fn is_intact(&self) -> bool {
        /// What the system shows for a process that has been waited for.
        const GONE: i32 = -1;
        let has_process = |process| match process_of(&self.descriptor) {
            Ok(now) => now.is_some_and(|now| now == process || now == GONE),
            // Nothing more is known without /proc.
            Err(_) => true,
        };
        self.file.is_some()
            && file_of(&self.descriptor) == self.file
            && self.process.is_none_or(has_process)
    }
}

fn file_of(descriptor: &OwnedFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|file| (file.st_dev, file.st_ino))
}

/// Returns whether a descriptor has the one file of most anonymous descriptors, such as those of
/// events. Before Linux 6.9 those of processes have it, too.
fn is_anonymous(descriptor: &OwnedFd) -> bool {
    /// From linux/magic.h.
    const ANON_INODE_FS_MAGIC: FsWord = 0x0904_1934;
    fstatfs(descriptor).is_ok_and(|system| system.f_type == ANON_INODE_FS_MAGIC)
}

/// Returns the number of the process of a descriptor, if it is that of a process.
fn process_of(descriptor: &OwnedFd) -> std::io::Result<Option<i32>> {
    let path = format!("/proc/thread-self/fdinfo/{}", descriptor.as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    Ok(number.and_then(|number| number.trim().parse().ok()))
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
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::os::fd::FromRawFd;

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

    #[test]
    fn a_process_is_told_from_an_event_of_the_same_file() {
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        let own = getpid().as_raw_nonzero().get();
        assert_eq!(process_of(&process).expect("/proc"), Some(own));
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        assert_eq!(process_of(&event).expect("/proc"), None);
        assert!(is_anonymous(&event));
        let mut lasting = LastingDescriptor::new(event);
        assert!(lasting.is_intact());
        // As if a descriptor of a process had been replaced, before Linux 6.9.
        lasting.process = Some(own);
        assert!(!lasting.is_intact());
        lasting.process = None;
    }
}
