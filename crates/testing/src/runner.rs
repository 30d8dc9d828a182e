//! Runner of integration tests, with the command line of libtest.

use crate::entry::Test;
use crate::need::{Missing, Need};
use crate::part::{name, run_part, test_as_part};
use libtest_mimic::{Arguments, Completion, Failed, FormatSetting, Trial};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::PanicHookInfo;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Variable that turns missing tools into failures.
const REQUIRE_TOOLS: &str = "TRADEWIND_REQUIRE_TOOLS";

/// Time after which a test counts as hanging. The slowest takes a tenth of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

/// Number of ignored tests by reason.
type Ignored = Arc<Mutex<BTreeMap<String, usize>>>;

/// Runs the registered tests that the command line selects, or a [`part`](crate::part).
pub fn run() -> ExitCode {
    run_on_threads(1)
}

/// Runs each test in a process of its own. For tests that map and unmap memory all the time, as Loom
/// does for the stacks of its threads: threads of one process would wait for each other's mapping.
pub fn run_in_processes() -> ExitCode {
    run_with(1, run_in_process)
}

/// Runs the tests on several threads a core, unless an option or RUST_TEST_THREADS says otherwise.
/// For tests that wait for processes, nodes and time-outs as much as they compute.
pub fn run_on_threads(threads_per_core: usize) -> ExitCode {
    run_with(threads_per_core, run_on_thread)
}

/// Function that runs a test: on a thread or in a process.
type RunTest = fn(&'static Test) -> Result<(), Failed>;

fn run_with(threads_per_core: usize, run_test: RunTest) -> ExitCode {
    if let Some(code) = run_part() {
        return code;
    }
    accept_interrupts();
    let mut arguments = Arguments::from_args();
    if arguments.test_threads.is_none() {
        let threads = std::env::var("RUST_TEST_THREADS").ok();
        arguments.test_threads =
            threads.and_then(|text| text.parse().ok()).or_else(|| Some(threads_per_core * cores()));
    }
    if !arguments.nocapture {
        record_panics();
    }
    let ignored = Ignored::default();
    let mut tests: Vec<&Test> = inventory::iter::<Test>.into_iter().collect();
    // Tests on virtual nodes wait more than they compute. First, they do not end the run alone.
    tests.sort_unstable_by_key(|test| (test.needs.is_empty(), name(test.path)));
    let trials: Vec<Trial> = tests.iter().map(|test| trial(test, run_test, &ignored)).collect();
    for (test, trial) in tests.iter().zip(&trials) {
        if let [reason] = test.slow
            && arguments.is_ignored(trial)
            && !arguments.is_filtered_out(trial)
        {
            count(&ignored, format!("run only with --ignored: {reason}"));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && arguments.format != Some(FormatSetting::Json) {
        print_ignored(&ignored);
    }
    conclusion.exit_code()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Restores the default actions of SIGINT and SIGQUIT. A shell without job control starts
/// background commands with these signals ignored, and programs that tests start and interrupt
/// would inherit it.
fn accept_interrupts() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is installed, so no code of this program runs on a signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn trial(test: &'static Test, run_test: RunTest, ignored: &Ignored) -> Trial {
    let ignored = Arc::clone(ignored);
    Trial::ignorable_test(name(test.path), move || match first_missing(test.needs) {
        Some(missing) if tools_are_required() => {
            Err(Failed::from(format!("{REQUIRE_TOOLS} is set, and this test needs {missing}")))
        }
        Some(missing) => {
            let reason = missing.to_string();
            count(&ignored, format!("need {reason}"));
            Ok(Completion::ignored_with(format!("needs {reason}")))
        }
        None => run_test(test).map(|()| Completion::Completed),
    })
    .with_ignored_flag(!test.slow.is_empty())
}

fn first_missing(needs: &[Need]) -> Option<&'static Missing> {
    needs.iter().find_map(|need| need.missing())
}

fn tools_are_required() -> bool {
    std::env::var(REQUIRE_TOOLS).is_ok_and(|value| !value.is_empty() && value != "0")
}

fn count(ignored: &Ignored, reason: String) {
    *ignored.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
}

fn print_ignored(ignored: &Ignored) {
    let ignored = ignored.lock().unwrap_or_else(PoisonError::into_inner);
    for (reason, tests) in ignored.iter() {
        // "1 test needs", "2 tests need"; "1 test runs", "2 tests run".
        let (noun, ending) = if *tests == 1 { ("test", "s") } else { ("tests", "") };
        let (verb, rest) = reason.split_once(' ').unwrap_or((reason, ""));
        println!("ignored: {tests} {noun} {verb}{ending} {rest}");
    }
    if !ignored.is_empty() {
        println!();
    }
}

thread_local! {
    /// Messages of panics on the thread of a test.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs a test on a new thread with its name, as libtest does. A test that hangs ends the run.
fn run_on_thread(test: &'static Test) -> Result<(), Failed> {
    let (ended, end) = mpsc::channel();
    let body = move || {
        PANICS.set(Some(Vec::new()));
        let result = std::panic::catch_unwind(test.run);
        // Fails only if the run is about to end.
        let _ = ended.send((result, PANICS.take().unwrap_or_default()));
    };
    let spawned = thread::Builder::new().name(name(test.path).to_owned()).spawn(body);
    let thread = spawned.map_err(|error| format!("no thread for the test: {error}"))?;
    let limit = if test.slow.is_empty() { LIMIT } else { Duration::MAX };
    let result = match end.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => end_hanging_run(test),
        received => received,
    };
    // The destructors of its thread are part of the test.
    match (thread.join(), result) {
        (Ok(()), Ok((Ok(()), _))) => Ok(()),
        (Ok(()), Ok((Err(_), messages))) => Err(messages.join("\n").into()),
        _ => Err("the thread of the test panicked while it ended".into()),
    }
}

/// Ends the run because of a test that does not end. Prints the stacks of all threads if gdb is there.
fn end_hanging_run(test: &Test) -> ! {
    eprintln!("test {} has not ended; the stacks of all threads:", name(test.path));
    let process = std::process::id().to_string();
    // A reader of a long log sees its end: the newest threads, which are those of the test.
    let stacks = "thread apply all -ascending backtrace 25";
    let commands = ["--batch", "--nx", "-ex", stacks, "-p", &process];
    if let Err(error) = Command::new("gdb").args(commands).status() {
        eprintln!("none without gdb: {error}");
    }
    eprintln!("test {} has not ended after {LIMIT:?}", name(test.path));
    std::process::exit(1)
}

/// Runs a test as a process. If it fails, its output is the reason.
fn run_in_process(test: &'static Test) -> Result<(), Failed> {
    let output = test_as_part(test).output();
    let output = output.map_err(|error| format!("no process for the test: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{text}", output.status).into())
}

/// Records the messages of panics on threads of tests instead of printing them.
fn record_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_recorded = PANICS
            .try_with(|messages| {
                let Ok(mut messages) = messages.try_borrow_mut() else { return false };
                let Some(messages) = messages.as_mut() else { return false };
                messages.push(describe(panic));
                true
            })
            .unwrap_or(false);
        if !is_recorded {
            print(panic);
        }
    }));
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("a value that is no text");
    let place = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("panicked{place}:\n{text}\n{trace}"),
        _ => format!("panicked{place}:\n{text}"),
    }
}
