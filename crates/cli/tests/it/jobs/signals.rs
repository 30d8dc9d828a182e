//! Signals that the launcher gets are the ranks' signals.

use crate::jobs::harness::Line;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use shm::process::{ProcessHandle, ProcessState};

testing::tests![
    signals_are_passed_on,
    a_signal_that_ends_the_ranks_ends_the_job_with_its_number,
    a_second_request_to_end_is_not_refused,
    a_job_can_be_stopped_and_continued,
    ignored_signals_stay_ignored,
];

fn signals_are_passed_on() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        if is_ignored(signal) {
            println!(
                "not tested: {name} is ignored here, as under nohup, and a shell cannot trap what it inherits so"
            );
            continue;
        }
        let script = format!(
            "sleep 1000 & trap 'echo \"> $TRADEWIND_RANK got\"; kill $!; exit 0' {name}; echo \"> $TRADEWIND_RANK ready\"; wait"
        );
        let mut job = Line::run(3, &[]).arguments(&["sh", "-c", &script]).start();
        job.listen_for("ready", 3);
        job.signal(signal);
        let job = job.finish();
        assert_eq!(job.who_said("got"), [0, 1, 2], "{name}: {job:?}");
        assert_eq!(job.status, 0, "{name}: {job:?}");
    }
}

/// Returns true if this process, and with it every rank, was started with the signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .expect("a mask of ignored signals");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a hexadecimal mask");
    mask & (1 << (signal.as_raw() - 1)) != 0
}

fn a_signal_that_ends_the_ranks_ends_the_job_with_its_number() {
    let mut job = Line::run(4, &[]).program("endless").start();
    job.listen_for("round", 4);
    job.signal(Signal::TERM);
    let job = job.finish();
    assert_eq!(job.status, 128 + 15, "{job:?}");
}

fn a_second_request_to_end_is_not_refused() {
    let script = "trap 'echo \"> $TRADEWIND_RANK asked\"' INT; echo \"> $TRADEWIND_RANK ready\"; while :; do sleep 1; done";
    let mut job = Line::run(2, &[]).arguments(&["sh", "-c", script]).start();
    job.listen_for("ready", 2);
    job.signal(Signal::INT);
    job.listen_for("asked", 2);
    job.signal(Signal::INT);
    let job = job.finish();
    assert_eq!(job.status, 128 + 15, "{job:?}");
}

fn a_job_can_be_stopped_and_continued() {
    let mut job = Line::run(4, &[]).program("endless").start();
    let said = job.listen_for("process", 4);
    let ranks: Vec<_> = said
        .iter()
        .map(|said| ProcessHandle::open(said.number() as u32).expect("it lives"))
        .collect();
    job.signal(Signal::TSTP);
    let launcher = Pid::from_raw(job.pid().cast_signed());
    let (_, status) =
        waitpid(launcher, WaitOptions::UNTRACED).expect("a child").expect("it has stopped");
    assert!(status.stopped());
    for rank in &ranks {
        while rank.state().expect("/proc is mounted") != ProcessState::Stopped {
            std::thread::yield_now();
        }
    }
    job.signal(Signal::CONT);
    for rank in &ranks {
        while rank.state().expect("/proc is mounted") == ProcessState::Stopped {
            std::thread::yield_now();
        }
    }
    job.signal(Signal::TERM);
    assert_eq!(job.finish().status, 128 + 15);
}

fn ignored_signals_stay_ignored() {
    // As `nohup` starts it.
    let script = format!(
        "trap '' HUP; exec {} run -n 2 -- sh -c 'echo \"> $TRADEWIND_RANK ready\"; sleep 1000'",
        crate::jobs::harness::TRADEWIND
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]);
    let mut job = Line::command(shell).start();
    job.listen_for("ready", 2);
    job.signal(Signal::HUP);
    job.signal(Signal::TERM);
    assert_eq!(job.finish().status, 128 + 15);
}
