//! Files that do not run, and why.

use crate::exec::files::ring;
use crate::exec::harness::{Folder, exec, text, tradewind};

testing::tests![
    what_is_wrong_is_named_before_anything_starts,
    what_is_no_goal_file_is_said,
    a_deadlock_for_want_of_eager_messages_is_found,
    a_file_that_does_not_fit_names_the_variable_that_allows_more,
    a_file_with_too_many_ranks_is_named,
    a_run_that_has_come_to_a_dead_end_ends_with_its_time,
    a_profile_that_cannot_be_written_is_a_failure,
    a_limit_of_no_time_is_refused,
];

fn what_is_wrong_is_named_before_anything_starts() {
    let folder = Folder::new();
    let path = folder.file(
        "bad.goal",
        "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0 tag 3\n}\n",
    );
    let output = exec(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    let name = path.to_str().expect("readable");
    assert!(said.lines().all(|line| line.starts_with(name)), "{said}");
    assert!(said.contains("line 3") && said.contains("line 6"), "{said}");
    assert_eq!(output.stdout, b"", "nothing ran");
}

fn what_is_no_goal_file_is_said() {
    let folder = Folder::new();
    let output = exec(&folder.file("poem.goal", "roses are red\n"), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("line 1, column 1"), "{output:?}");
    let output = exec(&folder.path("nothing.goal"), &[]);
    assert!(text(&output.stderr).starts_with("tradewind: cannot read "), "{output:?}");
}

/// Each sends before it receives: that needs messages that do not wait for their receive.
fn a_deadlock_for_want_of_eager_messages_is_found() {
    let folder = Folder::new();
    let rank = |rank: u32| {
        format!(
            "rank {rank} {{\na: send 8b to {0}\nb: recv 8b from {0}\nb requires a\n}}\n",
            1 - rank
        )
    };
    let path = folder.file("blocking.goal", format!("num_ranks 2\n{}{}", rank(0), rank(1)));
    assert_eq!(exec(&path, &[]).status.code(), Some(0));
    let output = exec(&path, &["--eager-bytes", "7"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("wait for each other for ever"), "{output:?}");
}

fn a_file_that_does_not_fit_names_the_variable_that_allows_more() {
    let folder = Folder::new();
    for (bytes, hint) in [(1 << 50, "TRADEWIND_ARENA_MIB"), (u64::MAX, "shorten the block")] {
        let output = exec(&folder.file("huge.goal", ring(3, 1, bytes)), &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(hint), "{said}");
    }
    let small = folder.file("small.goal", ring(3, 1, 4 << 20));
    let with_arena = |mib| {
        let mut command = tradewind();
        let output = command.env("TRADEWIND_ARENA_MIB", mib).arg("exec").arg(&small).output();
        output.expect("cargo has built the command")
    };
    let output = with_arena("2");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("TRADEWIND_ARENA_MIB"), "{output:?}");
    assert_eq!(with_arena("32").status.code(), Some(0));
}

/// Rank 0 may take the message with tag 2 first, and then nothing is left for its other receive.
/// There is a way to share the messages out, so it is not wrong; rank 2 sends only when the damage
/// is done.
fn a_file_with_too_many_ranks_is_named() {
    let folder = Folder::new();
    let ranks: String = (0..4097).map(|rank| format!("rank {rank} {{\n}}\n")).collect();
    let path = folder.file("crowd.goal", format!("num_ranks 4097\n{ranks}"));
    let output = exec(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("crowd.goal: it has 4097 ranks, a job has at most 4096"), "{said}");
}

fn a_run_that_has_come_to_a_dead_end_ends_with_its_time() {
    let folder = Folder::new();
    let path = folder.file(
        "race.goal",
        "num_ranks 3\nrank 0 {\na: recv 8b from -1 tag -1\nb: recv 8b from -1 tag 2\nb requires a\ns: send 8b to 2\n\
         s requires a\n}\nrank 1 {\nsend 8b to 0 tag 2\n}\nrank 2 {\na: recv 8b from 0\nb: send 8b to 0 tag 1\n\
         b requires a\n}\n",
    );
    let output = exec(&path, &["--timeout", "0.5"]);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(
        text(&output.stderr).contains("tradewind: the run was not over after 500ms"),
        "{output:?}"
    );
}

fn a_profile_that_cannot_be_written_is_a_failure() {
    let folder = Folder::new();
    let path = folder.file("ring.goal", ring(2, 1, 8));
    let profile = folder.path("nowhere/profile.json");
    let profile = profile.to_str().expect("readable");
    let output = exec(&path, &["--trace", profile]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write"), "{output:?}");
    // Before the run: the program of the job does not begin.
    let run = ["run", "-n", "1", "--trace", profile, "--", "echo", "began"];
    let output = tradewind().args(run).output().expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "");
}

fn a_limit_of_no_time_is_refused() {
    let run = ["run", "-n", "1", "--timeout", "0", "--", "echo", "began"];
    let output = tradewind().args(run).output().expect("cargo has built the command");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("a number of seconds above 0"), "{output:?}");
}
