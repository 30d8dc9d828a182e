//! Processes without a parent, started by processes with odd settings of their signals.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::process::Command;
use std::time::Duration;

testing::tests![
    ignored_signals_are_not_inherited,
    a_reaper_of_orphans_gets_no_child,
    nothing_is_left_when_the_output_closes,
];
testing::parts![child_starts_a_process, child_is_a_reaper];

const LIMIT: Duration = Duration::from_secs(60);

fn start(script: &str) -> shm::detached::Detached {
    let mut command = Command::new("sh");
    shm::detached::start(command.args(["-c", script]), false, LIMIT).expect("a shell")
}

/// Prints the masks of the signals of a process that it has started.
fn child_starts_a_process() {
    println!("{}", start("grep -E 'Sig(Blk|Ign)' /proc/$$/status | tr -s '\\n\\t' ' '; echo").line);
}

fn ignored_signals_are_not_inherited() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' CHLD PIPE TERM HUP; exec \"$@\"", "sh"]);
    let child = testing::part("detached::child_starts_a_process");
    let output = command.arg(child.get_program()).args(child.get_args()).output();
    let text = String::from_utf8(output.expect("a shell").stdout).expect("text");
    let none = "0000000000000000";
    assert_eq!(text.trim(), format!("SigBlk: {none} SigIgn: {none}"));
}

/// Becomes the reaper of its orphans, and fails if one is its child.
fn child_is_a_reaper() {
    // SAFETY: the calls change or return an attribute of this process, or wait for a child.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1), 0);
        // Threads that start processes at once do not restore each other's setting.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        assert_eq!(start("echo started; exec sleep 0").line, "started");
                    }
                });
            }
        });
        assert_eq!(libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL), -1);
        let mut is_reaper = 0;
        assert_eq!(libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_reaper), 0);
        assert_eq!(is_reaper, 1, "as before");
    }
}

fn a_reaper_of_orphans_gets_no_child() {
    let status = testing::part("detached::child_is_a_reaper").status().expect("this program");
    assert!(status.success());
}

/// The process sees the end of the one that has started it, and that one sees its end.
fn nothing_is_left_when_the_output_closes() {
    let started = start("echo $$; exec cat /dev/zero");
    let pid = started.line.parse().expect("a number");
    let process = shm::process::ProcessHandle::open(pid).expect("it runs");
    drop(started.output);
    let limit = Timespec::try_from(LIMIT).expect("a minute");
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("a process");
    assert!(process.has_exited());
}
