//! Processes that are no children of the process that starts them.
//!
//! A library in a program of others may not give that program a child: its `wait` would return a
//! number that it does not know, its handler of SIGCHLD would be called, and, if it reaps all
//! children or ignores their ends, the library could not wait for its own. So the process is the
//! child of a second one, which ends at once and which no `wait` of the program sees: its end
//! sends no signal (clone(2), `__WCLONE`). The system then makes the process a child of init: of the
//! process 1 of the namespace, so a program that is this one itself does get a child, and reaps it
//! as the other orphans.
//!
//! Both steps share the memory of this process until the program is executed, as posix_spawn(3)
//! does: nothing is copied, however large the process is. Nothing depends on that: a tool that
//! emulates such a step by a fork, as valgrind does, copies the memory.

use crate::inherited::above_standard;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long, c_void};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First word of the line that a service prints when it can be connected to.
pub const READY: &str = "ready";
/// Line that it prints if another service has its name.
pub const TAKEN: &str = "taken";

/// Prints one line for the process that has [started](start) this one.
pub fn report(line: &str) {
    // Fails if that process has ended, which needs no line.
    let _ = writeln!(std::io::stdout(), "{}", line.replace('\n', " "));
}

/// Raises this process's limits on open files, and on the sizes of files and of memory, as far as the
/// system permits: a service of others does not know how many they are, and a user who limits a
/// program means what the program does.
pub fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize, Resource::As] {
        let limit = getrlimit(resource);
        // Without the right the limit stays, and what is beyond it waits or is refused.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}

/// A process that [`start`] has started.
#[derive(Debug)]
pub struct Detached {
    /// The first line that it has printed, without its end. Empty if it has ended without one.
    pub line: String,
    /// The end of the pipe that is its standard output. It sees the pipe close with this value, or
    /// with the end of the process that holds it.
    pub output: OwnedFd,
}

/// Starts a command as a process without a parent here, in a session of its own, and returns when it
/// has printed a line. Its standard input and error are empty, its signals have their default
/// actions. Of the other descriptors it inherits none, or with `keeps_descriptors` those that a
/// child would inherit.
///
/// Of `command` the program, the arguments and the variables count.
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
///
/// let mut command = Command::new("sh");
/// command.args(["-c", "echo $$; sleep 1000"]);
/// let started = shm::detached::start(&command, false, Duration::from_secs(60))?;
/// let pid: u32 = started.line.parse().expect("a process number");
/// shm::process::ProcessHandle::open(pid).and_then(|process| process.kill()).expect("it runs");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// If the program cannot be executed, the system refuses a process, or no line comes within the
/// limit. In the last case the processes of its session's first group are killed.
pub fn start(command: &Command, keeps_descriptors: bool, limit: Duration) -> Result<Detached> {
    let (output, writing) = pipe_with(PipeFlags::CLOEXEC)?;
    let (output, writing) = (above_standard(output)?, above_standard(writing)?);
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = above_standard(null.map_err(|error| named("/dev/null", error.into()))?)?;
    let program = Program::of(command, [&null, &writing, &null], keeps_descriptors)?;
    program.start()?;
    drop(writing);
    let line = line_of(&program, &output, limit)?;
    Ok(Detached { line, output })
}

/// Reads the first line of a program that was started, without its end. Kills the program if none
/// comes within the limit.
fn line_of(program: &Program, output: &OwnedFd, limit: Duration) -> Result<String> {
    match first_line(output, limit).inspect_err(|_| program.end())? {
        // The program was not executed; the process has written the reason.
        line if line.first() == Some(&0) => {
            let number = line.get(1..5).and_then(|bytes| bytes.try_into().ok());
            Err(Error::from_raw_os_error(number.map_or(libc::EIO, i32::from_ne_bytes)))
        }
        line => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
    }
}

fn named(path: &str, error: Error) -> Error {
    Error::new(error.kind(), format!("{path}: {error}"))
}

/// Reads up to the end of the first line, or of the pipe.
fn first_line(output: &OwnedFd, limit: Duration) -> Result<Vec<u8>> {
    let deadline = Instant::now() + limit;
    let mut line = Vec::new();
    // The reason of a failure has no end of a line but has the end of the pipe.
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(output, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => {
                let text = format!("it has printed nothing for {limit:?}");
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut byte = [0];
        match rustix::io::read(output, &mut byte) {
            Ok(0) => break,
            Ok(_) => line.extend(byte),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(line)
}

/// This process as the reaper of the orphans below it, which it is no longer for a moment: otherwise
/// the process would become its child.
struct Reaper {
    was_one: bool,
    /// Two threads that start processes would restore each other's setting.
    _turn: MutexGuard<'static, ()>,
}

impl Reaper {
    fn suspend() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_one: c_int = 0;
        // SAFETY: the first call writes one integer to a variable of that type, the second changes
        // an attribute of this process.
        let was_one = unsafe {
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_one) == 0
                && is_one != 0
                && libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0) == 0
        };
        Reaper { was_one, _turn: turn }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if self.was_one {
            // SAFETY: the call changes an attribute of this process.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        }
    }
}

/// A program with all that its execution needs: after the start of a process in shared memory
/// nothing may be allocated.
struct Program {
    /// Where the program may be, in the order of the search.
    paths: Vec<CString>,
    _words: Vec<CString>,
    arguments: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    /// Standard input, output and error.
    standard: [RawFd; 3],
    keeps_descriptors: bool,
    /// The process that executes the program, written in the process between. 0 while it is not
    /// known, which it remains where memory is copied.
    process: AtomicI32,
}

/// Stack of a process that shares this process's memory. Two are in use at a time.
const STACK_BYTES: usize = 64 << 10;

/// Returns a number of libc as the argument of a system call.
fn word(value: impl TryInto<c_long>) -> c_long {
    value.try_into().unwrap_or(0)
}

impl Program {
    fn of(command: &Command, standard: [&OwnedFd; 3], keeps_descriptors: bool) -> Result<Self> {
        let paths = paths(command)?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let mut words: Vec<CString> =
            words.map(|word| terminated(word.as_bytes())).collect::<Result<_>>()?;
        let count = words.len();
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => variables.insert(name.to_owned(), value.to_owned()),
                None => variables.remove(name),
            };
        }
        for (name, value) in &variables {
            words.push(terminated(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let list = |words: &[CString]| {
            words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        };
        let (arguments, variables) = (list(&words[..count]), list(&words[count..]));
        Ok(Program {
            paths,
            _words: words,
            arguments,
            variables,
            standard: standard.map(|descriptor| descriptor.as_raw_fd()),
            keeps_descriptors,
            process: AtomicI32::new(0),
        })
    }

    /// Starts the process between this one and the program, and waits for its end. Returns when the
    /// program is executed or has failed, or, where memory is copied, at any time.
    fn start(&self) -> Result<()> {
        // Until the process between has ended: its end gives its child to a reaper.
        let _reaper = Reaper::suspend();
        let mut stack = vec![0u128; 2 * STACK_BYTES / size_of::<u128>()];
        let mask = block_signals();
        // SAFETY: the stack is that of no other thread, and lives until the process between has ended,
        // and the program is executed on one of its own. `between` allocates nothing and unwinds nowhere; signals are
        // blocked in it. Without a signal at its end, number 0, no `wait` of the program sees it.
        let pid = unsafe {
            libc::clone(
                between,
                stack.as_mut_ptr_range().end.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK,
                ptr::from_ref(self).cast_mut().cast(),
            )
        };
        let outcome = if pid < 0 { Err(Error::last_os_error()) } else { Ok(pid) };
        set_mask(mask);
        wait_for_end(outcome?);
        Ok(())
    }

    /// Kills the process that executes the program, and what it has started in its process group.
    fn end(&self) {
        // Relaxed: the wait for the end of the process between has published the number.
        let process = self.process.load(Ordering::Relaxed);
        if process > 0 {
            // SAFETY: the call sends a signal to a process group: that of the session which the
            // process has begun before the program. As long as a process of it holds the pipe, its
            // number is given to no other.
            unsafe { libc::kill(-process, libc::SIGKILL) };
        }
    }

    /// Executes the program, or writes why that fails.
    fn execute(&self) {
        // SAFETY: the calls take numbers, and pointers to memory of `self` or of this function,
        // whose lists end with null. They change this process alone, of which only the memory is
        // shared.
        unsafe {
            /// More than the bytes of an action of the kernel, of which zero is the default.
            static DEFAULT: [u64; 8] = [0; 8];
            for signal in 1..=64 {
                let none = ptr::null::<c_void>();
                let size = size_of::<u64>();
                libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), none, size);
            }
            libc::syscall(libc::SYS_setsid);
            for (number, descriptor) in (0..).zip(self.standard) {
                libc::syscall(libc::SYS_dup3, descriptor, number, 0);
            }
            if !self.keeps_descriptors {
                close_others_at_execution();
            }
            set_mask(0);
            let mut error = libc::ENOENT;
            for path in &self.paths {
                let (arguments, variables) = (self.arguments.as_ptr(), self.variables.as_ptr());
                libc::syscall(libc::SYS_execve, path.as_ptr(), arguments, variables);
                match *libc::__errno_location() {
                    libc::ENOENT | libc::ENOTDIR => {}
                    other => error = other,
                }
            }
            let [a, b, c, d] = error.to_ne_bytes();
            let reason = [0, a, b, c, d];
            libc::syscall(libc::SYS_write, 1, reason.as_ptr(), reason.len());
        }
    }
}

/// Lets the execution of a program close all descriptors but standard input, output and error.
fn close_others_at_execution() {
    /// From linux/close_range.h.
    const CLOSE_RANGE_CLOEXEC: c_long = 4;
    /// More than a process has before Linux 5.11, as a rule.
    const MOST: c_long = 1 << 16;
    // SAFETY: the calls change the descriptors of this process, which is about to execute a program.
    unsafe {
        let last = c_long::from(u32::MAX);
        if libc::syscall(libc::SYS_close_range, 3 as c_long, last, CLOSE_RANGE_CLOEXEC) == 0 {
            return;
        }
        let mut limit = [0u64; 2];
        libc::syscall(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        for number in 3..MOST.min(word(limit[0])) {
            let (set, flag) = (word(libc::F_SETFD), word(libc::FD_CLOEXEC));
            libc::syscall(libc::SYS_fcntl, number, set, flag);
        }
    }
}

/// What the process between this one and the program does, in the memory of this one.
extern "C" fn between(program: *mut c_void) -> c_int {
    // SAFETY: `start` has passed the program, which outlives this process.
    let program = unsafe { &*program.cast::<Program>() };
    // SAFETY: as in `start`; this process is on the upper half of the stack, so the lower one is
    // free. The frame of this function is in the upper half.
    let pid = unsafe {
        let here = (&raw const program).addr() & !0xf;
        let below = ptr::with_exposed_provenance_mut::<c_void>(here - STACK_BYTES);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(execute, below, flags, ptr::from_ref(program).cast_mut().cast())
    };
    program.process.store(pid, Ordering::Relaxed);
    // SAFETY: the descriptors are those of this process, whose table is its own.
    unsafe {
        if pid < 0 {
            let [a, b, c, d] = (*libc::__errno_location()).to_ne_bytes();
            let reason = [0, a, b, c, d];
            libc::syscall(libc::SYS_write, program.standard[1], reason.as_ptr(), reason.len());
        }
        libc::syscall(libc::SYS_close, program.standard[1]);
    }
    0
}

extern "C" fn execute(program: *mut c_void) -> c_int {
    // SAFETY: as in `between`.
    let program = unsafe { &*program.cast::<Program>() };
    program.execute();
    // SAFETY: the call ends this process.
    unsafe { libc::syscall(libc::SYS_exit_group, 127) as c_int }
}

/// Waits for the end of a process without a signal at its end, which is near.
fn wait_for_end(pid: libc::pid_t) {
    loop {
        // SAFETY: the call waits for this process and writes nothing.
        let outcome = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WCLONE) };
        let is_interrupted = Error::last_os_error().kind() == ErrorKind::Interrupted;
        if outcome >= 0 || !is_interrupted {
            return;
        }
    }
}

/// Blocks all signals of this thread and returns the former mask.
fn block_signals() -> u64 {
    let mut former = 0;
    let all = u64::MAX;
    // SAFETY: the call reads and writes one word each. The mask of the kernel has 64 bits.
    unsafe {
        let size = size_of::<u64>();
        let (from, to) = (&raw const all, &raw mut former);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, from, to, size);
    }
    former
}

fn set_mask(mask: u64) {
    // SAFETY: the call reads one word.
    unsafe {
        let (size, none) = (size_of::<u64>(), ptr::null_mut::<u64>());
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, none, size);
    }
}

/// Returns the paths at which the program of a command may be.
fn paths(command: &Command) -> Result<Vec<CString>> {
    let program = command.get_program();
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![terminated(program.as_bytes())?]);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let in_directory = |directory: &OsStr| terminated(directory.as_bytes());
    std::env::split_paths(&path)
        .map(|directory| in_directory(directory.join(program).as_os_str()))
        .collect()
}

fn terminated(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|error| Error::new(ErrorKind::InvalidInput, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessHandle;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_process_is_no_child_and_has_no_descriptor() {
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("it is open");
        let script = "echo $$ $(ls /proc/self/fd | wc -l); read line <&1; exec sleep 1000";
        let started = start(&shell(script), false, LIMIT).expect("a shell");
        let mut words = started.line.split(' ').map(|word| word.parse::<u32>().expect("a number"));
        let process = ProcessHandle::open(words.next().expect("two")).expect("it runs");
        // Standard input, output and error, and the directory itself.
        assert_eq!(words.next(), Some(4), "{started:?}");
        let pid = libc::pid_t::try_from(process.pid()).expect("a process number");
        // SAFETY: the call writes nothing.
        assert_eq!(unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) }, -1, "no child");
        process.kill().expect("it runs");
    }

    #[test]
    fn errors_of_the_execution_are_returned() {
        let outcome = |program: &str| start(&Command::new(program), false, LIMIT);
        let missing = outcome("/no/such/program").expect_err("there is none");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let missing = outcome("no-such-program").expect_err("there is none");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let refused = outcome("/dev/null").expect_err("no program");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert_eq!(outcome("true").expect("every system has it").line, "");
    }

    #[test]
    fn a_process_that_prints_no_line_is_killed_with_those_that_it_has_started() {
        let (reading, writing) = pipe_with(PipeFlags::empty()).expect("two descriptors");
        let number = writing.as_raw_fd();
        let script = format!("exec 3>&{number}; sleep 1000 & echo started >&3; exec sleep 1000");
        let (output, printed) = pipe_with(PipeFlags::CLOEXEC).expect("two descriptors");
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = null.expect("every system has it");
        let program = Program::of(&shell(&script), [&null, &printed, &null], true);
        let program = program.expect("a shell");
        program.start().expect("a process");
        // Without these ends in this process, the pipes end with the processes.
        drop((writing, printed));
        assert_eq!(first_line(&reading, LIMIT).expect("both run"), b"started\n");
        let silent = line_of(&program, &output, Duration::ZERO);
        assert_eq!(silent.expect_err("no line").kind(), ErrorKind::TimedOut);
        assert_eq!(first_line(&reading, LIMIT).expect("its end"), b"");
    }
}
