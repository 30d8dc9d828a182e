//! The module of Python: programs of `tests/python` and `examples/python` under `tradewind run`, with the
//! library that was built with this test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

testing::tests![needs(Python):
    collectives_of_threads,
    collectives_of_processes,
    calls_are_refused_with_their_reason,
    a_rank_that_was_killed_or_aborts_is_named,
    signals_end_waits,
    exceptions_of_threads_are_raised,
    tasks_await_requests,
    the_examples_run,
    the_stubs_have_every_method,
];
testing::tests![needs(Torch): groups_of_torch, the_example_of_torch_runs];

/// The package as it is installed.
static PACKAGE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is space for a directory");
    let package = folder.path().join("tradewind");
    fs::create_dir(&package).expect("it is empty");
    let files = fs::read_dir(root().join("python/tradewind")).expect("it is there");
    for file in files {
        let path = file.expect("it can be read").path();
        symlink(&path, package.join(path.file_name().expect("it has a name")))
            .expect("no such file");
    }
    let tests = std::env::current_exe().expect("this program has a path");
    let library = tests.with_file_name("libtradewind_python.so");
    symlink(library, package.join("_native.abi3.so")).expect("no such file");
    folder
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Python with this module, which finds the package.
fn python(module: &str) -> PathBuf {
    testing::python(module).expect("a need of the test")
}

/// A command that finds the package and its command.
fn with_package(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "60"]).arg(program.as_ref());
    command.env("PYTHONPATH", PACKAGE.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"));
    // A rank is one thread, also in numpy and in torch.
    command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1").stdin(Stdio::null());
    command
}

/// A program of the tests.
fn program(name: &str) -> PathBuf {
    root().join("crates/cli/tests/python").join(name)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs a program on ranks that are processes, and returns their output.
fn run(ranks: u32, program: &Path, arguments: &[&str]) -> Output {
    let mut job = with_package(env!("CARGO_BIN_EXE_tradewind"));
    job.args(["run", "-n", &ranks.to_string(), "--"])
        .arg(python("numpy"))
        .arg(program)
        .args(arguments);
    job.output().expect("every system has timeout")
}

/// Runs a program on `ranks` ranks. `right` of them print that all is right.
fn check(ranks: u32, name: &str, arguments: &[&str], right: usize) {
    let output = run(ranks, &program(name), arguments);
    let text = text(&output);
    assert_eq!(text.matches("all is right").count(), right, "{ranks} ranks: {text}");
    // Otherwise the launcher reports the rank that ends on purpose.
    assert_eq!(output.status.success(), right == ranks as usize, "{ranks} ranks: {text}");
}

fn collectives_of_threads() {
    let output = with_package(python("numpy")).arg(program("collectives.py")).arg("local").output();
    let output = output.expect("every system has timeout");
    assert!(output.status.success(), "{}", text(&output));
}

fn collectives_of_processes() {
    for ranks in [1, 2, 4] {
        check(ranks, "collectives.py", &[], ranks as usize);
    }
}

fn calls_are_refused_with_their_reason() {
    for ranks in [1, 3] {
        check(ranks, "refusals.py", &[], ranks as usize);
    }
}

fn a_rank_that_was_killed_or_aborts_is_named() {
    check(3, "failures.py", &["died"], 2);
    check(3, "failures.py", &["aborted"], 2);
}

fn signals_end_waits() {
    check(3, "failures.py", &["interrupted"], 3);
}

fn exceptions_of_threads_are_raised() {
    check(1, "failures.py", &["raised"], 1);
}

fn tasks_await_requests() {
    check(1, "tasks.py", &[], 1);
    check(3, "tasks.py", &[], 2);
}

fn the_examples_run() {
    for name in ["heat.py", "tasks.py"] {
        let output = run(3, &root().join("examples/python").join(name), &[]);
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

/// The stubs are written by hand.
fn the_stubs_have_every_method() {
    let output = with_package(python("numpy")).arg(program("stubs.py")).output();
    let output = output.expect("every system has timeout");
    assert!(output.status.success(), "{}", text(&output));
}

/// Runs a program as torchrun does, on ranks that know of each other by the variables of torch.
fn run_torch(ranks: u32, program: &Path) {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = socket.local_addr().expect("it is bound").port();
    drop(socket);
    let start = |rank: u32| {
        let mut command = with_package(python("torch._C._distributed_c10d"));
        command.arg(program).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", ranks.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.spawn().expect("every system has timeout")
    };
    let processes: Vec<_> = (0..ranks).map(start).collect();
    for process in processes {
        let output = process.wait_with_output().expect("it is a child");
        assert!(output.status.success(), "{ranks} ranks: {}", text(&output));
    }
}

fn groups_of_torch() {
    for ranks in [2, 3] {
        run_torch(ranks, &program("torch_groups.py"));
    }
}

fn the_example_of_torch_runs() {
    run_torch(2, &root().join("examples/python/train.py"));
}
