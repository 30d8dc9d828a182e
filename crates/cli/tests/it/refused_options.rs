//! Options that are refused before anything is started.

use std::process::Command;

testing::tests![options_are_refused_before_anything_starts,];

/// Arguments, and what is said of them.
const REFUSED: &[(&str, &str)] = &[
    ("measure collectives --op reduce", "choose among barrier"),
    ("measure collectives --engine kernel", "choose peers or caller"),
    ("measure collectives --repetitions 0", "the number of repetitions is 0"),
    ("measure collectives --op allreduce --bytes 12", "a multiple of 8"),
    ("measure collectives --op bcast --bytes 0", "from 1"),
    ("measure collectives --op bcast --bytes 8,99999999999", "1 GiB"),
    ("measure collectives --compute-us 0", "the computation is 0 µs"),
    ("measure collectives --compute-us nan", "the computation is NaN µs"),
    ("measure collectives -n 0", "the number of ranks is 0, it must be from 1 to 4096"),
    ("measure collectives -n -1", "the number of ranks is -1, it must be from 1 to 4096"),
    ("tour -n 5000", "4096"),
    ("measure", "queues"),
    ("measure queues --mechanisms pigeon", "choose among express"),
    ("measure queues --threads 0", "the number of threads is 0"),
    ("measure queues --threads 2 --mechanisms channel", "nothing is left to measure"),
    ("measure queues --sizes 99999999999", "64 MiB"),
    ("measure queues --sizes 8B", "8B"),
    ("measure queues --rounds 6", "the number of rounds is 6"),
    ("measure queues --row-ms 0", "the time for a row is 0 ms"),
];

fn options_are_refused_before_anything_starts() {
    for (arguments, hint) in REFUSED {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
        let output = command.args(arguments.split_whitespace()).output();
        let output = output.expect("the command can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(hint), "{arguments}: {hint:?} is missing from {said}");
        assert!(said.ends_with('\n'), "{arguments}: the last line has no end: {said:?}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}
