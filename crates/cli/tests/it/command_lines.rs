//! Command lines: the exit status of each, and what it says.

use crate::exec::files::ring;
use std::path::Path;
use std::process::{Command, Output, Stdio};

testing::tests![
    command_lines_end_with_their_status_and_say_why,
    every_shell_has_a_completion_script_with_the_subcommands,
    every_subcommand_has_a_manual_page,
];

/// Words of the command line, with variables before them; the exit status; and parts of what is
/// said.
type Line = (&'static str, i32, &'static [&'static str]);

/// Lines that are refused before anything starts.
const REFUSED: &[Line] = &[
    ("measure", 2, &["queues"]),
    ("measure collectives --op reduce", 2, &["use one of barrier"]),
    ("measure collectives --engine kernel", 2, &["use one of caller, peers"]),
    ("measure collectives --engine in-calls", 2, &["the progress is in-calls: give caller, peers"]),
    ("measure collectives --op allreduce:12", 2, &["a multiple of 8"]),
    ("measure collectives --op bcast:x", 2, &["x is no number of bytes"]),
    ("measure collectives --op bcast:0", 2, &["from 1"]),
    ("measure collectives --repetitions 0", 2, &["the number of repetitions is 0"]),
    ("measure collectives --op allreduce --bytes 12", 2, &["a multiple of 8"]),
    ("measure collectives --op bcast --bytes 0", 2, &["from 1"]),
    ("measure collectives --op bcast --bytes 8,99999999999", 2, &["1 GiB"]),
    ("measure collectives --compute-us 0", 2, &["the computation is 0 µs"]),
    ("measure collectives --compute-us nan", 2, &["the computation is NaN µs"]),
    ("measure collectives -n 0", 2, &["the number of ranks is 0, it must be from 1 to 4096"]),
    ("measure collectives -n -1", 2, &["the number of ranks is -1, it must be from 1 to 4096"]),
    ("measure queues --mechanisms pigeon", 2, &["use one of express"]),
    ("measure queues --threads 0", 2, &["the number of threads is 0"]),
    ("measure queues --threads 2 --mechanisms channel", 2, &["nothing is left to measure"]),
    ("measure queues --sizes 99999999999", 2, &["64 MiB"]),
    ("measure queues --sizes 8B", 2, &["8B"]),
    ("measure queues --rounds 6", 2, &["the number of rounds is 6"]),
    ("measure queues --row-ms 0", 2, &["the time for a row is 0 ms"]),
    ("measure queues --nodes 1", 2, &["the number of nodes is 1, it must be from 2 to 16"]),
    ("measure queues --link 1gbit", 2, &["--nodes"]),
    ("measure pingpong --nodes 2 --link 1gbps", 2, &["no rate of a link", "kbit, mbit or gbit"]),
    ("measure pingpong --nodes 2 --link 1kbit", 2, &["from 100kbit to 100gbit", "such as 1gbit"]),
    ("measure pingpong --nodes 2 --map 0", 2, &["leave out --map or --nodes"]),
    ("mpi --only iallreduec -- echo began", 2, &["\"iallreduec\"", "name is iallreduce"]),
    ("--format json mpi --report -- echo began", 2, &["the report of an MPI program is text"]),
    ("tune --quick --ranks 2", 2, &["with --quick", "name a file with --out"]),
    ("tune --nodes 2 --ranks 2", 2, &["cannot be used with"]),
    ("tour -n 5000", 2, &["4096"]),
    ("top --interval 0", 2, &["it must be 0.05 or more"]),
    ("top --interval 0.01", 2, &["it must be 0.05 or more"]),
    ("top --interval -1", 2, &["a number of seconds"]),
    ("top --interval x", 2, &["a number of seconds"]),
    ("run -n 1 --timeout 0 -- echo began", 2, &["a number of seconds above 0"]),
    ("completions", 2, &["<SHELL>"]),
    ("completions bash --man pages", 2, &["cannot be used with"]),
    ("exec", 2, &["FILE"]),
    ("exec good.goal check good.goal", 2, &["'check' cannot be used with"]),
    ("doctor --node-only kernel", 2, &["cannot be used with"]),
    ("schedule", 2, &["OP"]),
    ("schedule gossip", 2, &["possible values: barrier, bcast, scatter"]),
    ("schedule bcast -a flat -n 0", 2, &["ranks is 0, it must be from 1 to 1024"]),
    ("schedule bcast -a flat -n -1", 2, &["ranks is -1, it must be from 1 to 1024"]),
    ("schedule bcast -a flat -b -1", 2, &["bytes is -1, it must be from 0"]),
    ("schedule bcast -a flat --degree 0", 2, &["children is 0, it must be from 1"]),
    ("schedule predict bcast", 2, &["--ranks"]),
];

/// Lines that are understood and fail, or find something.
const FAILED: &[Line] = &[
    ("tune --nodes 2 --link 1gbit", 1, &["links of that speed", "--out"]),
    (
        "schedule bcast -a binomal",
        1,
        &["`binomal` is no bcast algorithm; use one of flat, flat-rendezvous"],
    ),
    ("schedule bcast -a flat -n 4 --root 4", 1, &["root 4 does not exist among 4 ranks"]),
    ("schedule bcast -a flat -n 4 --rank 4", 1, &["rank 4 does not exist among 4 ranks"]),
    (
        "schedule reduce -a flat -b 12 --type f64",
        1,
        &["12 bytes are not a whole number of f64 elements"],
    ),
    (
        "schedule reduce -a flat --operation xor --type f64",
        1,
        &["use one of add, sub, mul, div, min, max"],
    ),
    ("schedule allreduce -a ring --operation sub", 1, &["such as join"]),
    ("schedule bcast -a segmented-chain -b 1000000000 --segment 1", 1, &["or more"]),
    ("schedule bcast -a join --goal -", 1, &["use another algorithm"]),
    (
        "schedule bcast -a segmented-binomial -n 1024 -b 50000000 --segment 1000",
        1,
        &["use fewer ranks or longer segments"],
    ),
    (
        "schedule bcast -a flat --goal /dev/full",
        1,
        &["cannot write /dev/full: No space left on device"],
    ),
    ("schedule bcast -a flat --goal /nowhere/flat.goal", 1, &["cannot write /nowhere/flat.goal"]),
    ("schedule bcast --draw svg", 1, &["--draw", "--algorithm", "binomial"]),
    ("schedule bcast --goal -", 1, &["--goal", "--algorithm", "binomial"]),
    ("schedule bcast --rank 1", 1, &["--rank", "--algorithm", "binomial"]),
    ("exec check bad.goal", 1, &["bad.goal: ", "line 3", "line 10", "wait for each other"]),
    (
        "exec check answers.goal --eager-bytes 0",
        1,
        &["with every eager limit", "rank 0", "rank 1", "line 4"],
    ),
    ("exec check answers.goal --eager-bytes 18446744073709551615", 1, &["with every eager limit"]),
    ("exec check exchange.goal", 1, &["set the eager limit to 5000 bytes or more"]),
    (
        "exec check exchange.goal --eager-bytes 4999",
        1,
        &["set the eager limit to 5000 bytes or more"],
    ),
    ("exec exchange.goal --eager-bytes 4999", 1, &["set the eager limit to 5000 bytes or more"]),
    ("exec check wrong.goal", 1, &["line 3, column 8"]),
    ("exec check cut.bin", 1, &["cut off"]),
    ("exec check missing.goal", 1, &["tradewind: cannot read missing.goal"]),
    ("exec convert wrong.goal kept.bin", 1, &["wrong.goal: ", "line 3, column 8"]),
    ("exec convert good.goal good.goal", 1, &["name another one to write"]),
    ("exec convert good.goal link.goal", 1, &["name another one to write"]),
    ("exec convert good.goal ./good.goal", 1, &["name another one to write"]),
    (
        "exec convert good.goal /dev/full",
        1,
        &["tradewind: cannot write /dev/full: No space left on device"],
    ),
    ("exec bad.goal", 1, &["bad.goal: ", "line 3", "line 10"]),
    ("exec poem.goal", 1, &["line 1, column 1"]),
    ("exec missing.goal", 1, &["tradewind: cannot read missing.goal"]),
    ("exec huge.goal", 1, &["TRADEWIND_ARENA_MIB"]),
    ("exec immense.goal", 1, &["shorten the block"]),
    ("TRADEWIND_ARENA_MIB=2 exec long.goal", 1, &["TRADEWIND_ARENA_MIB"]),
    ("exec crowd.goal", 1, &["crowd.goal: it has 4097 ranks, a job has at most 4096"]),
    ("exec race.goal --timeout 0.5", 124, &["tradewind: the run was not over after 500ms"]),
    ("exec long.goal --trace nowhere/profile.json", 1, &["cannot write nowhere/profile.json"]),
    ("exec trace . profile.json", 1, &["no part of a profile here", "TRADEWIND_TRACE"]),
    (
        "run -n 1 --trace nowhere/profile.json -- echo began",
        1,
        &["cannot write nowhere/profile.json"],
    ),
    ("run -n 1 -- ./no-such-program", 127, &["no-such-program"]),
    ("run -n 1 -- ./good.goal", 126, &["good.goal"]),
    (
        "report missing",
        1,
        &["tradewind: cannot read missing: No such file or directory (os error 2)"],
    ),
    ("report .", 1, &[".: no results of a measurement here"]),
    (
        "tune --quick --ranks 2 --out good.goal/table.json",
        1,
        &["tradewind: cannot write good.goal/table.json"],
    ),
    ("TRADEWIND_SEGMENT_DIR=/nonexistent measure collectives --op barrier", 125, &["/nonexistent"]),
    ("TRADEWIND_SEGMENT_DIR=/nonexistent measure queues --mechanisms wide", 125, &["/nonexistent"]),
    ("TRADEWIND_ARENA_MIB=1 measure collectives --op bcast --bytes 8388608", 1, &["overlap: rank"]),
];

/// Lines that succeed.
const GOOD: &[Line] = &[
    ("schedule bcast", 0, &["binomial\n"]),
    (
        "exec check good.goal",
        0,
        &["3 operations on 2 ranks, nothing wrong with every eager limit\n"],
    ),
    ("exec check exchange.goal --eager-bytes 5000", 0, &["with eager limits from 5000 bytes on"]),
    ("TRADEWIND_EAGER_BYTES=5000 exec check exchange.goal", 0, &["nothing wrong"]),
    ("TRADEWIND_EAGER_BYTES=5000 exec exchange.goal", 0, &["every byte"]),
    ("exec exchange.goal --eager-bytes 5000", 0, &["every byte"]),
    ("TRADEWIND_ARENA_MIB=32 exec long.goal", 0, &["every byte"]),
    (
        "--format json exec check exchange.goal --eager-bytes 5000",
        0,
        &["\"least_eager_bytes\": 5000"],
    ),
    ("check good.goal", 0, &["`tradewind check` is now `tradewind exec check`", "nothing wrong"]),
    (
        "TRADEWIND_NODE_TIMEOUTS=3 schedule bcast",
        0,
        &["TRADEWIND_NODE_TIMEOUTS is not known", "is TRADEWIND_NODE_TIMEOUT meant?"],
    ),
];

/// The files that the lines name.
fn write_files(folder: &Path) {
    let write = |name: &str, content: &[u8]| {
        std::fs::write(folder.join(name), content).expect("a file of our own");
    };
    let pair = |first: [&str; 2], second: [&str; 2]| {
        let rank = |rank: u32, operations: [&str; 2]| {
            let [first, second] = operations;
            format!("rank {rank} {{\na: {first}\nb: {second}\nb requires a\n}}\n")
        };
        format!("num_ranks 2\n{}{}", rank(0, first), rank(1, second))
    };
    write(
        "good.goal",
        b"num_ranks 2\nrank 0 {\na: send 8b to 1 tag 7\nb: calc 100\nb requires a\n}\nrank 1 {\nrecv 8b from 0 tag 7\n}\n",
    );
    // A message without a receive, a receive without a message, and operations that wait for each
    // other.
    write(
        "bad.goal",
        b"num_ranks 2\nrank 0 {\nsend 8b to 1\na: calc 1\nb: calc 2\na requires b\nb requires a\n}\nrank 1 {\nrecv 8b from 0 tag 3\n}\n",
    );
    write("wrong.goal", b"num_ranks 1\nrank 0 {\nsend 8 to 0\n}\n");
    write("poem.goal", b"roses are red\n");
    write("cut.bin", &[&4223u64.to_le_bytes()[..], &[1, 0]].concat());
    write("kept.bin", b"what was there");
    let exchange =
        pair(["send 5000b to 1", "recv 5000b from 1"], ["send 5000b to 0", "recv 5000b from 0"]);
    write("exchange.goal", exchange.as_bytes());
    let answers = pair(["recv 8b from 1", "send 8b to 1"], ["recv 8b from 0", "send 8b to 0"]);
    write("answers.goal", answers.as_bytes());
    write("huge.goal", ring(3, 1, 1 << 50).as_bytes());
    write("immense.goal", ring(3, 1, u64::MAX).as_bytes());
    write("long.goal", ring(3, 1, 4 << 20).as_bytes());
    let ranks: String = (0..4097).map(|rank| format!("rank {rank} {{\n}}\n")).collect();
    write("crowd.goal", format!("num_ranks 4097\n{ranks}").as_bytes());
    // Rank 0 may take the message with tag 2 first, and then nothing is left for its other receive.
    // There is a way to share the messages out, so it is not wrong; rank 2 sends only when the
    // damage is done.
    write(
        "race.goal",
        b"num_ranks 3\nrank 0 {\na: recv 8b from -1 tag -1\nb: recv 8b from -1 tag 2\nb requires a\ns: send 8b to 2\n\
          s requires a\n}\nrank 1 {\nsend 8b to 0 tag 2\n}\nrank 2 {\na: recv 8b from 0\nb: send 8b to 0 tag 1\n\
          b requires a\n}\n",
    );
    std::os::unix::fs::symlink("good.goal", folder.join("link.goal")).expect("our own directory");
}

/// Runs a command line in a folder.
fn run(line: &str, folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
    for name in ["TRADEWIND_ARENA_MIB", "TRADEWIND_EAGER_BYTES", "TRADEWIND_ENGINE"] {
        command.env_remove(name);
    }
    let mut words = line.split_whitespace().peekable();
    while let Some((name, value)) = words
        .peek()
        .and_then(|word| word.split_once('='))
        .filter(|(name, _)| !name.starts_with('-'))
    {
        command.env(name, value);
        words.next();
    }
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.output().expect("cargo has built the command")
}

fn command_lines_end_with_their_status_and_say_why() {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    write_files(folder.path());
    let names = || {
        let entries = std::fs::read_dir(folder.path()).expect("our own directory");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for (line, status, parts) in REFUSED.iter().chain(FAILED).chain(GOOD) {
        let output = run(line, folder.path());
        let [shown, said] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert_eq!(output.status.code(), Some(*status), "{line}: {shown}{said}");
        let all = format!("{shown}{said}");
        for part in *parts {
            assert!(all.contains(part), "{line}: {part:?} is missing from {all}");
        }
        for text in [shown, said] {
            assert!(
                text.is_empty() || text.ends_with('\n'),
                "{line}: the last line has no end: {text:?}"
            );
        }
        assert!(*status != 2 || output.stdout.is_empty(), "{line}: a refusal is no result");
        assert_eq!(names(), before, "{line}: nothing is left behind");
    }
    let kept = std::fs::read(folder.path().join("kept.bin")).expect("it is there");
    assert_eq!(kept, b"what was there");
}

fn every_shell_has_a_completion_script_with_the_subcommands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&format!("completions {shell}"), Path::new("."));
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains("collectives"), "{shell}: {output:?}");
    }
}

fn every_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a directory");
    let output = run("completions --man man1", folder.path());
    assert!(output.status.success(), "{output:?}");
    for page in ["tradewind.1", "tradewind-run.1", "tradewind-exec-check.1"] {
        let page = std::fs::read_to_string(folder.path().join("man1").join(page)).expect(page);
        assert!(page.contains(".TH"), "{page}");
    }
}
