//! `tradewind top` beside jobs that wait, compute, die and end.

use crate::jobs::harness::{Job, Line, TRADEWIND, send};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

testing::tests![
    waits_collectives_and_queues_of_a_job_are_shown,
    a_job_that_dies_meanwhile_is_shown_as_it_is,
    views_follow_each_other_until_a_signal,
    a_terminal_shows_one_view_in_place_of_the_other,
];

/// Time that no correct test needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `tradewind top --once` with these arguments.
fn once(arguments: &[&str]) -> String {
    let mut command = Command::new(TRADEWIND);
    let output = command.args(["top", "--once", "--interval", "0.05"]).args(arguments).output();
    let output = output.expect("cargo has built the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the job of this launcher in the view of this moment. Other tests run jobs, too.
fn view_of(job: &Job) -> Option<Value> {
    let view: Value = serde_json::from_str(&once(&["--format", "json"])).expect("JSON");
    let jobs = view["jobs"].as_array().expect("a list").clone();
    jobs.into_iter().find(|other| other["service"] == job.pid())
}

/// Views the job until the condition holds.
fn view_until(job: &Job, what: &str, is_so: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let view = view_of(job);
        if is_so(view.as_ref()) {
            return view;
        }
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}: {view:?}");
    }
}

fn states(view: Option<&Value>) -> Vec<&str> {
    let ranks = view.and_then(|view| view["ranks"].as_array());
    ranks.into_iter().flatten().filter_map(|rank| rank["state"].as_str()).collect()
}

/// Starts the three ranks of the program `watched`. Returns the job, the processes of the ranks,
/// and the directory of the file that lets them go on.
fn watched() -> (Job, Vec<u32>, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let go_on = directory.path().join("go-on").display().to_string();
    let mut job = Line::run(3, &[]).program("watched").variable("GO_ON", &go_on).start();
    let said = job.listen_for("process", 3);
    (job, said.iter().map(|said| said.number() as u32).collect(), directory)
}

fn let_go_on(directory: &tempfile::TempDir) {
    std::fs::write(directory.path().join("go-on"), "").expect("the directory is there");
}

fn waits_collectives_and_queues_of_a_job_are_shown() {
    let (job, processes, directory) = watched();
    let is_asleep = |view: Option<&Value>| states(view) == ["waiting", "waiting", "computing"];
    let view = view_until(&job, "two ranks wait", is_asleep).expect("a job");
    for (rank, process) in (0..).zip(&processes) {
        assert_eq!(view["ranks"][rank]["rank"], rank);
        assert_eq!(view["ranks"][rank]["process"], *process);
        assert!(view["ranks"][rank]["core"].is_u64());
    }
    // Numbers 0 and 1 exchanged the locations of the queues and the outcome, number 2 was the first
    // barrier.
    let waits = |rank: usize| view["ranks"][rank]["waits"][0]["subject"].as_str().expect("a wait");
    assert_eq!(waits(0), "barrier #3, without ranks 1, 2");
    assert_eq!(waits(1), "a message from rank 2 with tag 7");
    let collective = &view["collectives"][0];
    assert_eq!(collective["call"], "barrier #3");
    assert_eq!(collective["communicator"], "all ranks");
    assert_eq!(collective["started"], serde_json::json!([0]));
    assert_eq!(collective["missing"], serde_json::json!([1, 2]));
    let queues = view["queues"].as_array().expect("a list");
    let fills: Vec<_> =
        queues.iter().map(|queue| (&queue["rank"], &queue["kind"], &queue["waiting"])).collect();
    let express = Value::from("Express");
    let [zero, one, two, five] = [0, 1, 2, 5].map(Value::from);
    assert_eq!(fills, [(&zero, &express, &five), (&one, &express, &zero), (&two, &express, &zero)]);

    let text = once(&[]);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).expect(&text);
    assert!(line("core  busy").contains("processes of ranks"), "{text}");
    assert!(text.contains(" s for barrier #3, without ranks 1, 2\n"), "{text}");
    assert!(text.contains(" s for a message from rank 2 with tag 7\n"), "{text}");
    assert!(text.contains("barrier #3 of all ranks: started by rank 0; ranks 1, 2 missing"));
    assert!(text.contains(&format!("engine peers, node service {}\n", job.pid())), "{text}");

    let_go_on(&directory);
    assert_eq!(job.finish().status, 0);
}

fn a_job_that_dies_meanwhile_is_shown_as_it_is() {
    let (job, processes, _directory) = watched();
    view_until(&job, "rank 1 waits", |view| states(view).get(1) == Some(&"waiting"));
    send(processes[1], Signal::KILL);
    let view = view_until(&job, "rank 1 is reported", |view| {
        view.is_some_and(|view| view["ranks"][1]["exit"].is_string())
    });
    let view = view.expect("a job");
    assert_eq!(view["ranks"][1]["exit"], "its process was ended by signal 9");
    assert_eq!(
        (&view["ranks"][1]["state"], &view["ranks"][1]["waits"]),
        (&"ended".into(), &serde_json::json!([]))
    );
    // The descriptor of an observer outlives the job.
    let mut top = Command::new(TRADEWIND);
    let top = top.args(["top", "--interval", "0.05"]).stdout(Stdio::piped()).spawn();
    let mut top = top.expect("cargo has built the command");
    let mut lines = BufReader::new(top.stdout.take().expect("it was asked for")).lines();
    let service = format!("node service {}", job.pid());
    let mut next_view_has = |service: &str| {
        let lines = lines.by_ref().map(|line| line.expect("a pipe"));
        let mut view = lines.skip_while(|line| !line.starts_with("core  busy"));
        view.next().expect("another view");
        view.take_while(|line| !line.starts_with("core  busy")).any(|line| line.ends_with(service))
    };
    while !next_view_has(&service) {}
    // The launcher, which is the node service, ends the ranks.
    send(job.pid(), Signal::KILL);
    while next_view_has(&service) {}
    send(top.id(), Signal::TERM);
    assert_eq!(top.wait().expect("it is a child").code(), Some(0));
    processes.iter().filter(|process| **process != processes[1]).for_each(|process| {
        // The computing rank looks for nothing, so no report ends it.
        let process = rustix::process::Pid::from_raw(process.cast_signed()).expect("not 0");
        let _ = rustix::process::kill_process(process, Signal::KILL);
    });
    job.finish();
}

fn views_follow_each_other_until_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut top = Command::new(TRADEWIND);
        let top = top.args(["top", "--interval", "0.05"]).stdout(Stdio::piped()).spawn();
        let mut top = top.expect("cargo has built the command");
        let output = BufReader::new(top.stdout.take().expect("it was asked for"));
        let mut lines = output.lines().map(|line| line.expect("a pipe"));
        let views = lines.by_ref().filter(|line| line.starts_with("core  busy"));
        assert_eq!(views.take(3).count(), 3);
        send(top.id(), signal);
        assert_eq!(top.wait().expect("it is a child").code(), Some(0));
    }
}

fn a_terminal_shows_one_view_in_place_of_the_other() {
    for signal in ["INT", "QUIT", "HUP"] {
        // `script` runs the command with a terminal of its own.
        let command =
            format!("timeout --preserve-status -s {signal} 1 {TRADEWIND} top --interval 0.1");
        let mut script = Command::new("script");
        let output = script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output();
        let output = output.expect("script(1) is part of Linux");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.matches("\x1b[Hcore  busy").count() > 1, "{text:?}");
        assert!(text.starts_with("\x1b[?25l") && text.ends_with("\x1b[?25h"), "{text:?}");
    }
}
