//! Programs under tools that watch, emulate or instrument them: each has the results of the run
//! without the library, on tradewind or not.

use crate::harness::{Finished, Host, Job};
use testing::mpi::Family;

testing::tests![needs(Mpich): an_auditing_library_changes_no_result];
testing::tests![needs(Mpich, Valgrind):
    valgrind_changes_no_result,
    the_other_tools_of_valgrind_change_no_result,
];
testing::tests![needs(Mpich, IntelMpi, Valgrind): helgrind_is_named_once];
testing::tests![needs(Mpich, IntelMpi, Sanitizers): the_thread_sanitizer_is_named_once];
testing::tests![needs(Mpich, Gdb): a_debugger_stops_in_a_collective];
testing::tests![needs(Mpich, Strace): traced_system_calls_change_no_result];
testing::tests![needs(Mpich, Ltrace): traced_library_calls_change_no_result];
testing::tests![needs(Mpich, Perf): a_profiler_changes_no_result];
testing::tests![needs(Mpich, Heaptrack): a_heap_profiler_changes_no_result];
testing::tests![needs(Mpich, Allocators): other_allocators_change_no_result];
testing::tests![needs(Mpich, Sanitizers):
    the_address_sanitizer_finds_nothing,
    the_sanitizer_of_undefined_behaviour_finds_nothing,
];

/// A short job. The Debian package has debug information that valgrind reads at each start, so any
/// other installation comes first.
fn host() -> Host {
    Host::all(Family::Mpich)[0]
}

fn job() -> Job {
    host().job("settings", 2)
}

fn succeeds(finished: Finished) -> Finished {
    let finished = finished.expect_success();
    assert!(finished.output.contains("2 ranks"), "{finished:?}");
    finished
}

/// On tradewind, or left with one line.
fn is_taken_or_left(finished: Finished) {
    let finished = succeeds(finished);
    let lines = finished.errors.matches("nothing runs on tradewind").count();
    let is_taken = finished.calls("MPI_Iallreduce").0 > 0;
    assert_eq!(lines, usize::from(!is_taken), "{finished:?}");
}

fn is_taken(finished: Finished) -> Finished {
    let finished = succeeds(finished);
    assert!(finished.calls("MPI_Iallreduce").0 > 0, "{finished:?}");
    finished
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is space for a directory")
}

fn valgrind_changes_no_result() {
    is_taken_or_left(job().under(&["valgrind", "--quiet"]).preloaded());
}

fn the_other_tools_of_valgrind_change_no_result() {
    let directory = scratch();
    let file = format!("--massif-out-file={}/%p", directory.path().display());
    for tool in [&["--tool=none"][..], &["--tool=massif", &file]] {
        is_taken_or_left(job().under(&[&["valgrind", "--quiet"], tool].concat()).preloaded());
    }
}

/// Nothing runs on tradewind, and one line names this tool. Programs with MPICH 5 crash under some tools
/// at the end, without tradewind too.
fn is_left_for(tool: &str, finished: Finished) {
    let finished = succeeds(finished);
    assert_eq!(finished.errors.matches("nothing runs on tradewind").count(), 1, "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce").0, 0, "{finished:?}");
    // Ranks that start seconds apart, as they may under such a tool, take each other for missing.
    let takes_for_missing = finished.errors.contains("without `tradewind mpi`");
    let names_tool = finished.errors.contains(&format!("tradewind: {tool} does"));
    assert!(takes_for_missing || names_tool, "{finished:?}");
}

fn helgrind_is_named_once() {
    let job = Host::all(Family::Intel)[0].job("settings", 2);
    // Without the history of accesses, for the races that it describes.
    let tool = ["valgrind", "--quiet", "--tool=helgrind", "--history-level=none"];
    is_left_for("helgrind", job.under(&tool).preloaded());
}

fn the_thread_sanitizer_is_named_once() {
    let options = ["-fsanitize=thread"];
    let job = Host::all(Family::Intel)[0].job_with("settings", &options, 2);
    is_left_for("ThreadSanitizer", job.preloaded());
}

fn a_debugger_stops_in_a_collective() {
    let commands = [
        "set breakpoint pending on",
        "break MPI_Iallreduce",
        "run",
        "backtrace 1",
        "delete",
        "continue",
    ];
    let commands = commands.iter().flat_map(|command| ["-ex", command]);
    let options: Vec<&str> =
        ["gdb", "-q", "-batch"].into_iter().chain(commands).chain(["--args"]).collect();
    let finished = is_taken(job().under(&options).preloaded());
    assert!(finished.output.contains("hit Breakpoint 1"), "{finished:?}");
}

fn traced_system_calls_change_no_result() {
    is_taken(job().under(&["strace", "-f", "-o", "/dev/null"]).preloaded());
}

fn traced_library_calls_change_no_result() {
    is_taken(job().under(&["ltrace", "-o", "/dev/null", "-e", "MPI_*"]).preloaded());
}

fn a_profiler_changes_no_result() {
    let directory = scratch();
    let script = format!("cd {}; exec \"$@\"", directory.path().display());
    let options = ["perf", "record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "--"];
    is_taken(job().started_by(&script).under(&options).preloaded());
}

fn a_heap_profiler_changes_no_result() {
    let directory = scratch();
    let script = format!("cd {}; exec \"$@\"", directory.path().display());
    is_taken(job().started_by(&script).under(&["heaptrack"]).preloaded());
}

fn an_auditing_library_changes_no_result() {
    let audit = host().tool("audit");
    is_taken(job().under(&["env", &format!("LD_AUDIT={}", audit.display())]).preloaded());
}

fn other_allocators_change_no_result() {
    for library in testing::allocators() {
        is_taken(job().preloaded_behind(library));
        is_taken(job().preloaded_before(library));
    }
}

fn sanitized(sanitizer: &str) -> Job {
    let options = [&format!("-fsanitize={sanitizer}")[..], "-fno-omit-frame-pointer"];
    // The first sanitizer's library would be the first of all without the preload library.
    host().job_with("settings", &options, 2).variable("ASAN_OPTIONS", "verify_asan_link_order=0")
}

fn the_address_sanitizer_finds_nothing() {
    let finished =
        is_taken(sanitized("address").variable("LSAN_OPTIONS", "exitcode=0").preloaded());
    assert!(!finished.errors.contains("libtradewind_mpi.so"), "{finished:?}");
}

fn the_sanitizer_of_undefined_behaviour_finds_nothing() {
    let finished = is_taken(sanitized("undefined").preloaded());
    assert!(!finished.errors.contains("runtime error"), "{finished:?}");
}
