//! Guarantees across processes, tested with several processes.

use crate::child_process::{argument, child, open, path_of, until};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, Signal, kill_process};
use shm::completion::Completion;
use shm::process::{ProcessError, ProcessHandle, ProcessState};
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

testing::tests![
    an_addition_wakes_sleepers_in_all_processes,
    a_handle_reports_every_state_of_a_process,
    a_handle_with_a_replaced_descriptor_reports_the_end,
    unused_process_numbers_are_errors,
    a_process_name_that_resembles_a_status_is_parsed,
    a_process_outlives_its_main_thread,
    cpu_time_of_another_process_grows,
    binding_affects_one_thread,
    a_reserved_table_has_room_for_lasting_descriptors,
];
testing::parts![
    child_sleeps_on_the_word,
    child_with_an_odd_name,
    child_ends_its_main_thread,
    child_computes,
    child_without_descriptors,
    child_reserves_descriptors,
];

/// The number of descriptors for which the table of this process has room.
fn table_size() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.and_then(|size| size.trim().parse().ok()).expect("a number")
}

/// In a process of its own: other tests keep descriptors. A child takes over the length of the table,
/// and gives its own child only what its open descriptors need.
fn a_reserved_table_has_room_for_lasting_descriptors() {
    let status = testing::part("processes::child_without_descriptors").status();
    assert!(status.expect("this program").success());
}

fn child_without_descriptors() {
    let status = testing::part("processes::child_reserves_descriptors").status();
    assert!(status.expect("this program").success());
}

fn child_reserves_descriptors() {
    let before = table_size();
    shm::descriptor::reserve();
    let after = table_size();
    assert!(before <= 256 && after > 256, "{before}, {after}");
}

const DONE: Offset = Offset(64);
const READY: Offset = Offset(128);
const VALUE: Offset = Offset(192);

fn small_segment() -> Segment {
    Segment::create(4096, Backing::Memory).expect("one page")
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a living child");
}

/// Starts a process that is idle until its input ends.
fn idle_process() -> (Child, ProcessHandle) {
    let child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
    let handle = ProcessHandle::open(child.id()).expect("a living child");
    (child, handle)
}

fn an_addition_wakes_sleepers_in_all_processes() {
    let segment = small_segment();
    let done = segment.at::<Completion>(DONE).expect("inside");
    let ready = segment.at::<Completion>(READY).expect("inside");
    let mut children: Vec<Child> = (0..3)
        .map(|_| {
            child("processes::child_sleeps_on_the_word", &path_of(&segment))
                .spawn()
                .expect("this program")
        })
        .collect();
    ready.wait(3);
    until("all sleep on the word", || {
        done.is_marked()
            && children.iter().all(|child| {
                shm::process::state(child.id()).expect("/proc") == ProcessState::Sleeping
            })
    });
    segment.at::<AtomicU64>(VALUE).expect("inside").store(42, Ordering::Relaxed);
    assert!(done.add(1), "it had sleepers");
    assert!(children.iter_mut().all(|child| child.wait().expect("a child").success()));
    assert_eq!(ready.count(), 6, "each answered from its own process");
}

/// Child process of `an_addition_wakes_sleepers_in_all_processes`.
fn child_sleeps_on_the_word() {
    let path = argument();
    let segment = open(&path);
    let ready = segment.at::<Completion>(READY).expect("inside");
    ready.add(1);
    segment.at::<Completion>(DONE).expect("inside").wait(1);
    assert_eq!(segment.at::<AtomicU64>(VALUE).expect("inside").load(Ordering::Relaxed), 42);
    ready.add(1);
}

fn a_handle_reports_every_state_of_a_process() {
    let (mut child, handle) = idle_process();
    assert_eq!(handle.start_time(), shm::process::start_time(child.id()).expect("it lives"));
    until("it waits for input", || handle.state().expect("/proc") == ProcessState::Sleeping);
    signal(&child, Signal::STOP);
    until("it is stopped", || handle.state().expect("/proc") == ProcessState::Stopped);
    assert!(!handle.has_exited(), "a stopped process has not ended");
    signal(&child, Signal::CONT);
    until("it goes on", || handle.state().expect("/proc") == ProcessState::Sleeping);
    handle.kill().expect("it lives");
    until("it has ended", || handle.has_exited());
    assert_eq!(handle.state().expect("/proc"), ProcessState::Zombie);
    child.wait().expect("a child");
    assert!(handle.has_exited());
    assert_eq!(handle.state().expect("/proc"), ProcessState::Gone);
    assert_eq!(shm::process::state(handle.pid()).expect("/proc"), ProcessState::Gone);
    assert!(matches!(handle.kill(), Err(ProcessError::NoSuchProcess { .. })));
    assert!(matches!(handle.cpu_time(), Err(ProcessError::NoSuchProcess { .. })));
    assert!(matches!(ProcessHandle::open(handle.pid()), Err(ProcessError::NoSuchProcess { .. })));
}

/// A program closes what it does not know and opens files of its own, here ones that are never ready.
fn a_handle_with_a_replaced_descriptor_reports_the_end() {
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let (pipe, _writing) = rustix::pipe::pipe().expect("two descriptors");
    for other in [event, pipe] {
        let (mut child, handle) = idle_process();
        let number = handle.as_fd().as_raw_fd();
        // SAFETY: the number is that of the handle, which a program replaces like this.
        let mut replaced = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&other, &mut replaced).expect("both are open");
        assert!(!handle.has_exited(), "it lives");
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(handle.has_exited());
        drop(handle);
        // The handle has left the number to its new owner, which closes it once.
        drop(ManuallyDrop::into_inner(replaced));
    }
}

fn unused_process_numbers_are_errors() {
    for pid in [0, u32::MAX, i32::MAX.unsigned_abs()] {
        assert!(
            matches!(ProcessHandle::open(pid), Err(ProcessError::NoSuchProcess { .. })),
            "{pid}"
        );
        assert!(
            matches!(shm::process::cpu_time(pid), Err(ProcessError::NoSuchProcess { .. })),
            "{pid}"
        );
    }
}

fn a_process_name_that_resembles_a_status_is_parsed() {
    let mut child =
        child("processes::child_with_an_odd_name", "a) Z (b").spawn().expect("this program");
    let handle = ProcessHandle::open(child.id()).expect("a living child");
    let name = format!("/proc/{}/comm", child.id());
    until("it has its name", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name == "a) Z (b\n")
    });
    until("it waits for input", || handle.state().expect("/proc") == ProcessState::Sleeping);
    signal(&child, Signal::STOP);
    until("it is stopped", || handle.state().expect("/proc") == ProcessState::Stopped);
    signal(&child, Signal::CONT);
    drop(child.stdin.take());
    assert!(child.wait().expect("a child").success());
}

/// Child process of `a_process_name_that_resembles_a_status_is_parsed`.
fn child_with_an_odd_name() {
    let name = argument();
    std::fs::write(format!("/proc/self/task/{}/comm", std::process::id()), name)
        .expect("its own name");
    std::io::read_to_string(std::io::stdin()).expect("until the end");
}

fn a_process_outlives_its_main_thread() {
    let mut child =
        child("processes::child_ends_its_main_thread", "").spawn().expect("this program");
    let handle = ProcessHandle::open(child.id()).expect("a living child");
    until("its first thread has ended", || {
        shm::process::state(child.id()).expect("/proc") == ProcessState::Zombie
    });
    assert_eq!(handle.state().expect("/proc"), ProcessState::Running);
    assert!(!handle.has_exited());
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("a child").code(), Some(7), "its second thread ended it");
}

/// Child process of `a_process_outlives_its_main_thread`.
fn child_ends_its_main_thread() {
    extern "C" fn end_this_thread(_signal: libc::c_int) {
        // SAFETY: ends the thread that handles the signal, which owns nothing that the other one
        // uses.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    std::thread::spawn(|| {
        std::io::read_to_string(std::io::stdin()).expect("until the end");
        std::process::exit(7);
    });
    let first = std::process::id();
    // SAFETY: the handler makes one system call. The part runs on the first thread, which waits below.
    unsafe {
        libc::signal(libc::SIGUSR1, end_this_thread as *const () as libc::sighandler_t);
        libc::syscall(libc::SYS_tgkill, first, first, libc::SIGUSR1);
    }
    loop {
        std::thread::park();
    }
}

fn cpu_time_of_another_process_grows() {
    let segment = small_segment();
    let mut child =
        child("processes::child_computes", &path_of(&segment)).spawn().expect("this program");
    let handle = ProcessHandle::open(child.id()).expect("a living child");
    let first = handle.cpu_time().expect("it lives");
    until("it has computed more", || handle.cpu_time().expect("it lives") > first);
    segment.at::<Completion>(DONE).expect("inside").add(1);
    assert!(child.wait().expect("a child").success());
}

/// Child process of `cpu_time_of_another_process_grows`.
fn child_computes() {
    let path = argument();
    let segment = open(&path);
    let done = segment.at::<Completion>(DONE).expect("inside");
    while !done.reached(1) {
        shm::sync::spin_loop();
    }
}

fn binding_affects_one_thread() {
    let before = shm::process::allowed_cores();
    std::thread::spawn(|| {
        let last = *shm::process::allowed_cores().last().expect("at least one core");
        shm::process::bind_current_thread(last).expect("an allowed core");
        assert_eq!(shm::process::allowed_cores(), [last]);
        assert!(matches!(
            shm::process::bind_current_thread(usize::MAX),
            Err(ProcessError::Bind { core: usize::MAX, .. })
        ));
        assert!(matches!(shm::process::bind_current_thread(1023), Err(ProcessError::Bind { .. })));
    })
    .join()
    .expect("no panic");
    assert_eq!(shm::process::allowed_cores(), before, "other threads keep their cores");
}
