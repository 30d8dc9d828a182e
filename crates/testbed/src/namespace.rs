//! Network namespaces without a name: they last as long as somebody holds a descriptor or lives in
//! them.

use crate::error::Error;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

/// A network namespace. When the last clone is dropped, or the process dies of whatever, it ends
/// with all its interfaces, unless a process that was started in it still lives.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    descriptor: Arc<OwnedFd>,
}

const ADMIN: &str = "CAP_SYS_ADMIN";

impl Namespace {
    /// Makes one, with nothing in it but a loopback interface that is down.
    pub(crate) fn new() -> Result<Self, Error> {
        let what = "making a network namespace";
        // On a thread of its own: the namespace of a thread cannot be put back without rights to
        // the old one.
        let descriptor = on_thread(move || {
            // SAFETY: of the flags that unshare takes, NEWNET separates nothing but the network
            // namespace of this thread; it closes and copies no descriptors, on which other code
            // could rely.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Error::of(what, ADMIN))?;
            File::open("/proc/thread-self/ns/net").map_err(Error::system(what))
        })?;
        Ok(Namespace { descriptor: Arc::new(descriptor.into()) })
    }

    /// Runs a closure on a thread in the namespace and waits for it. Sockets made there stay there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_thread(|| {
            // Who has made it, has entered it once.
            self.enter().expect("a namespace of this process can be entered");
            work()
        })
    }

    fn enter(&self) -> rustix::io::Result<()> {
        move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::Network))
    }

    /// A command whose process is in the namespace, whichever thread starts it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        // SAFETY: between fork and exec the closure makes one system call, with a descriptor that
        // the closure itself keeps open, and allocates nothing: making an io::Error from a system
        // error number does not, either.
        unsafe { command.pre_exec(move || Ok(namespace.enter()?)) };
        command
    }

    /// A path that names the namespace for other processes, as long as this one lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }

    /// Has `ip` carry out orders, one a line.
    pub(crate) fn configure(&self, place: &str, orders: &str) -> Result<(), Error> {
        let what = "running ip";
        let mut command = self.command("ip");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Feature {
                what: "setting up links",
                way_out: "install iproute2, whose ip is not in PATH",
            },
            _ => Error::System { what, source },
        })?;
        let mut input = child.stdin.take().expect("it was asked for");
        // It stops reading at the first order that fails; then its output says more than the broken
        // pipe.
        let _ = input.write_all(orders.as_bytes());
        drop(input);
        let output = child.wait_with_output().map_err(Error::system(what))?;
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.contains("Operation not permitted") {
            return Err(Error::Right { what: "setting up links", right: "CAP_NET_ADMIN" });
        }
        Err(Error::Setup { place: place.to_owned(), output })
    }

    /// The directory `/sys` as it looks from the namespace. What is mounted at `/sys` shows the
    /// namespace of whoever mounted it, so this mounts one of its own, at no place.
    pub(crate) fn sysfs(&self) -> Result<OwnedFd, Error> {
        let what = "mounting /sys for a network namespace";
        self.run(|| {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        })
        .map_err(Error::of(what, ADMIN))
    }

    /// Writes to a file below `/proc/sys/net`, which shows the namespace of the thread that looks.
    pub(crate) fn tune(&self, setting: &str, value: &str) -> Result<(), Error> {
        self.run(|| std::fs::write(format!("/proc/sys/net/{setting}"), value))
            .map_err(Error::system("tuning a network namespace"))
    }

    /// As [`tune`](Self::tune), of a setting that not every kernel has.
    pub(crate) fn tune_if_known(&self, setting: &str, value: &str) -> Result<(), Error> {
        let is_known =
            self.run(|| std::path::Path::new(&format!("/proc/sys/net/{setting}")).exists());
        if is_known { self.tune(setting, value) } else { Ok(()) }
    }
}

/// Runs a closure on a thread of its own; its panic goes on here.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic)))
}
