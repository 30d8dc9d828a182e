//! Network namespaces without a name, which last while a descriptor or a process refers to them.

use crate::error::Error;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

/// Network namespace. It ends with all its interfaces when the last clone is dropped or this
/// process ends, unless a process that was started in it is still alive.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    descriptor: Arc<OwnedFd>,
}

const ADMIN: &str = "CAP_SYS_ADMIN";
const LIMITING: &str = "limiting the rate of links";

/// Tool of iproute2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Interfaces and addresses.
    Ip,
    /// Queues in front of interfaces.
    Tc,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Ip => "ip",
            Tool::Tc => "tc",
        }
    }

    fn is_missing(self) -> Error {
        let (what, way_out) = match self {
            Tool::Ip => ("setting up links", "install iproute2, whose ip is not in PATH"),
            Tool::Tc => (LIMITING, "install iproute2, whose tc is not in PATH"),
        };
        Error::Feature { what, way_out }
    }
}

impl Namespace {
    /// Creates a namespace that contains only a loopback interface, which is down.
    pub(crate) fn new() -> Result<Self, Error> {
        let what = "making a network namespace";
        // A separate thread: returning a thread to its old namespace needs rights to the old one.
        let descriptor = on_thread(move || {
            // SAFETY: unshare with NEWNET changes only the network namespace of this thread. It
            // neither closes nor copies descriptors on which other code may rely.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(Error::with_right(what, ADMIN))?;
            File::open("/proc/thread-self/ns/net").map_err(Error::system(what))
        })?;
        Ok(Namespace { descriptor: Arc::new(descriptor.into()) })
    }

    /// Runs a closure on a thread in the namespace and waits for it. Sockets that the closure
    /// creates stay in the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_thread(|| {
            // The process created the namespace, so it has the rights to enter it.
            self.enter().expect("a namespace of this process can be entered");
            work()
        })
    }

    fn enter(&self) -> rustix::io::Result<()> {
        move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::Network))
    }

    /// Returns a command for a process in the namespace; any thread may start it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        // SAFETY: between fork and exec the closure makes one system call on a descriptor that it
        // keeps open itself. It allocates nothing: an io::Error from an error number is a number.
        unsafe { command.pre_exec(move || Ok(namespace.enter()?)) };
        command
    }

    /// Returns a path that names the namespace for other processes while this process is alive.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }

    /// Runs commands of a tool in the namespace, one a line.
    pub(crate) fn configure(&self, tool: Tool, subject: &str, commands: &str) -> Result<(), Error> {
        let what = "running a tool of iproute2";
        let mut command = self.command(tool.name());
        command.args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => tool.is_missing(),
            _ => Error::System { what, source },
        })?;
        let mut input = child.stdin.take().expect("standard input is a pipe");
        // The tool stops reading at the first command that fails. Its output then explains more
        // than the error of the broken pipe.
        let _ = input.write_all(commands.as_bytes());
        drop(input);
        let output = child.wait_with_output().map_err(Error::system(what))?;
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.contains("Operation not permitted") {
            return Err(Error::Right { what: "setting up links", right: "CAP_NET_ADMIN" });
        }
        if tool == Tool::Tc && output.contains("qdisc kind is unknown") {
            let way_out = "use a kernel with CONFIG_NET_SCH_TBF, or load sch_tbf";
            return Err(Error::Feature { what: LIMITING, way_out });
        }
        Err(Error::Setup { tool: tool.name(), subject: subject.to_owned(), output })
    }

    /// Returns the directory `/sys` of the namespace. A mount of sysfs shows the namespace of the
    /// thread that mounted it, so this mounts another one, without a mount point.
    pub(crate) fn sysfs(&self) -> Result<OwnedFd, Error> {
        let what = "mounting /sys for a network namespace";
        self.run(|| {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        })
        .map_err(Error::with_right(what, ADMIN))
    }

    /// Writes a file below `/proc/sys/net`, which shows the namespace of the calling thread.
    pub(crate) fn tune(&self, setting: &str, value: &str) -> Result<(), Error> {
        self.run(|| std::fs::write(format!("/proc/sys/net/{setting}"), value))
            .map_err(Error::system("tuning a network namespace"))
    }

    /// Like [`tune`](Self::tune), for a setting that some kernels lack.
    pub(crate) fn tune_if_present(&self, setting: &str, value: &str) -> Result<(), Error> {
        let is_present = self.run(|| Path::new(&format!("/proc/sys/net/{setting}")).exists());
        if is_present { self.tune(setting, value) } else { Ok(()) }
    }
}

/// Runs a closure on a new thread; its panic continues on the calling thread.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic)))
}
