//! Programs that were started separately and meet by name: the examples of the guide, and what
//! happens when one of them ends.

pub(crate) mod harness;
mod nodes;
mod programs;

use harness::{Place, Program, failure, success, wait_until};
use std::process::Command;

testing::tests![
    two_programs_meet_by_name,
    a_name_moves_while_its_client_goes_on,
    the_command_lists_what_is_published,
    an_unknown_name_is_answered_with_those_that_are_published,
    a_name_is_published_once,
    odd_names_are_refused,
    a_program_that_is_killed_is_named_to_its_clients,
    a_client_that_is_killed_is_reported,
    a_full_receiver_stops_its_own_senders_only,
    connections_outlive_the_name_server,
    without_the_command_the_way_out_is_named,
    the_command_itself_starts_the_name_server,
    a_job_is_served_before_its_ranks_publish,
    a_served_name_that_is_in_use_starts_no_rank,
];
testing::tests![needs(Root): a_server_of_another_user_is_named,];

fn two_programs_meet_by_name() {
    let place = Place::new();
    let squares = place.squares("squares");
    for numbers in [&["12", "-3"][..], &["0"], &[]] {
        let square = |text: &&str| {
            let number: i64 = text.parse().expect("a number");
            format!("{number} squared is {}", number * number)
        };
        let expected: Vec<String> = numbers.iter().map(square).collect();
        assert_eq!(place.ask("squares", numbers), expected);
    }
    squares.kill();
    place.await_end_of_server();
}

fn a_name_moves_while_its_client_goes_on() {
    let place = Place::new();
    let _next = place.squares("next");
    let mut first = place.hand_over("squares", "next");
    let expected: Vec<String> =
        (1..=9).map(|number| format!("{number} squared is {}", number * number)).collect();
    let numbers = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    assert_eq!(place.ask("squares", &numbers), expected);
    assert_eq!(first.line(), "squares is now next's");
    assert_eq!(place.ask("squares", &["12"]), ["12 squared is 144"], "a client that came later");
}

fn the_command_lists_what_is_published() {
    let place = Place::new();
    let nothing = "no program of this user has published a name on this node\n";
    assert_eq!(place.tradewind(&["names"]), nothing);
    assert_eq!(place.tradewind(&["names", "--format", "json"]).trim(), "[]");
    let squares = place.squares("squares");
    let cubes = place.squares("cubes");
    let table = place.tradewind(&["names"]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let header = ["name", "process", "program", "published", "connections", "fullest"];
    assert_eq!(lines[0], header, "{table}");
    for (line, (name, program)) in lines[1..].iter().zip([("cubes", &cubes), ("squares", &squares)])
    {
        assert_eq!(line[..2], [name, &program.id().to_string()], "{table}");
        assert_eq!(line[4..], ["0", "0", "%"], "{table}");
    }
    let json = place.tradewind(&["names", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[1]["name"], &json[1]["pid"]), (&"squares".into(), &squares.id().into()));
}

fn an_unknown_name_is_answered_with_those_that_are_published() {
    let place = Place::new();
    let ask = || failure(&mut place.part("ask_program", &["solver"]));
    let unknown = "no program of this user has published solver on this node; ";
    assert_eq!(ask(), format!("{unknown}nothing is published there"));
    let _programs = [place.squares("squares"), place.squares("cubes")];
    assert_eq!(ask(), format!("{unknown}published are: cubes, squares"));
}

fn a_name_is_published_once() {
    let place = Place::new();
    let first = place.squares("squares");
    assert_eq!(
        failure(&mut place.part("squares_program", &["squares"])),
        format!("the name squares is in use: process {} has published it on this node", first.id())
    );
    // The end of its process frees the name.
    first.kill();
    wait_until("the name is free", || place.tradewind(&["names"]).starts_with("no program"));
    place.squares("squares");
}

fn odd_names_are_refused() {
    let place = Place::new();
    for name in ["", "a b", "ä", ":1.2", "a/b", "a\nb", &"x".repeat(65)] {
        let error = failure(&mut place.part("squares_program", &[name]));
        assert!(error.starts_with(&format!("{name:?} is no name of a program: ")), "{error}");
    }
    let error = failure(&mut place.part("ask_program", &["squares@host:x"]));
    assert!(error.contains("the port is no number"), "{error}");
}

fn a_program_that_is_killed_is_named_to_its_clients() {
    let place = Place::new();
    for role in ["receives", "sends"] {
        let silent = place.silent("silent");
        let mut client = place.start(role, &["silent"]);
        assert_eq!(client.line(), "connected");
        // Its ring is full, or it waits for an answer that does not come.
        if role == "sends" {
            assert_eq!(client.line(), "full");
        }
        silent.kill();
        assert_eq!(client.line(), "silent has ended", "{role}");
        assert_eq!(client.line(), "silent has ended", "{role}, once more");
        wait_until("the name is free", || place.tradewind(&["names"]).starts_with("no program"));
    }
}

fn a_client_that_is_killed_is_reported() {
    let place = Place::new();
    let mut publisher = place.start("reports", &["log"]);
    assert_eq!(publisher.line(), "published");
    let mut client = place.start("receives", &["log"]);
    assert_eq!(client.line(), "connected");
    assert_eq!(publisher.line(), "message of 5 bytes");
    let pid = client.id();
    client.kill();
    assert_eq!(publisher.line(), format!("the client with process {pid} has ended"));
    assert_eq!(publisher.line(), "the client has ended");
}

fn a_full_receiver_stops_its_own_senders_only() {
    let place = Place::new();
    let _silent = place.silent("silent");
    let mut client = place.start("sends", &["silent"]);
    assert_eq!((client.line().as_str(), client.line().as_str()), ("connected", "full"));
    // 15 messages of 16 lines fit into 256 lines, of which one stays free.
    let table = place.tradewind(&["names"]);
    let entry = table.lines().find(|line| line.starts_with("silent")).expect("it is listed");
    assert!(entry.split_whitespace().skip(4).eq(["1", "94", "%"]), "{table}");
    let _squares = place.squares("squares");
    assert_eq!(place.ask("squares", &["5"]), ["5 squared is 25"]);
}

fn connections_outlive_the_name_server() {
    let place = Place::new();
    let _squares = place.squares("squares");
    let mut client = place.start("asks", &["squares"]);
    assert_eq!(client.line(), "connected");
    assert_eq!(client.ask("3"), "9");
    place.kill_server();
    assert_eq!(client.ask("4"), "16");
    // The next program starts another server, at which nothing is published.
    let error = failure(&mut place.part("ask_program", &["squares", "1"]));
    assert!(error.ends_with("nothing is published there"), "{error}");
    assert_eq!(client.ask("5"), "25");
}

fn a_server_of_another_user_is_named() {
    const NOBODY: u32 = 65_534;
    let place = Place::new();
    let name = place.server_of(NOBODY);
    let _squatter = shm::broker::Broker::bind(&name).expect("a new name");
    let expected = format!(
        "the socket @{name} of the name server of user {NOBODY} belongs to process {} of user 0",
        std::process::id()
    );
    let as_nobody = |command: Command| {
        let mut other = Command::new("setpriv");
        let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        other.args(ids).args(["--clear-groups", "--"]).arg(command.get_program());
        other.args(command.get_args());
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        failure(&mut other)
    };
    for command in [
        place.part("squares_program", &["squares"]),
        place.part("ask_program", &["squares", "1"]),
        place.command(&["names"]),
        place.command(&["run", "-n", "1", "--serve", "squares", "true"]),
    ] {
        let error = as_nobody(command);
        assert!(error.contains(&expected) && error.contains("set TRADEWIND_NODE"), "{error}");
    }
}

fn a_job_is_served_before_its_ranks_publish() {
    let place = Place::new();
    let directory = tempfile::tempdir().expect("a directory");
    let go_on = directory.path().join("go-on");
    let mut job = place.serving_job("squares", &go_on);
    let owner_of = |name: &str| {
        let table = place.tradewind(&["names"]);
        let line = table.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    wait_until("the launcher has published the name", || owner_of("squares") == Some(job.id()));
    let mut early = place.start("asks", &["squares"]);
    std::fs::write(&go_on, "").expect("the directory is there");
    assert_eq!(early.line(), "connected");
    assert_eq!(early.ask("12"), "144");
    // One rank is the receiver, the other one is told that it is.
    let mut said = [job.line(), job.line()];
    said.sort();
    let receiver = owner_of("squares").expect("it is listed");
    assert_ne!(receiver, job.id());
    let taken =
        format!("the name squares is in use: process {receiver} has published it on this node");
    assert_eq!(said, ["squares is published", &taken]);
    assert_eq!(place.ask("squares", &["3"]), ["3 squared is 9"]);
    // The end of the job frees the name.
    place.terminate(&job);
    wait_until("the name is free", || owner_of("squares").is_none());
    assert_eq!(early.ask("1"), "squares has ended");
}

fn a_served_name_that_is_in_use_starts_no_rank() {
    let place = Place::new();
    let squares = place.squares("squares");
    let run = |names: &[&str]| {
        let serve = names.iter().flat_map(|name| ["--serve", name]);
        let arguments: Vec<&str> =
            ["run", "-n", "1"].into_iter().chain(serve).chain(["--", "echo", "started"]).collect();
        failure(&mut place.command(&arguments))
    };
    let error = run(&["cubes", "squares"]);
    let expected = format!("the name squares is in use: process {} has published it", squares.id());
    assert!(error.contains(&expected), "{error}");
    assert!(run(&["a b"]).contains("is no name of a program"));
    // Nothing of the failed attempts is left.
    let table = place.tradewind(&["names"]);
    assert!(table.contains("squares") && !table.contains("cubes"), "{table}");
}

fn without_the_command_the_way_out_is_named() {
    let mut command = Place::new().part("squares_program", &["squares"]);
    let error = failure(command.env("TRADEWIND_COMMAND", "/none"));
    assert!(error.contains("/none cannot be executed") && error.contains("TRADEWIND_COMMAND"));
}

fn the_command_itself_starts_the_name_server() {
    let alone = |mut command: Command| {
        // No such command is in PATH.
        command.env_remove("TRADEWIND_COMMAND").env("PATH", "/usr/bin:/bin");
        command
    };
    let run = ["run", "-n", "1", "--serve", "squares", "--", "true"];
    success(&mut alone(Place::new().command(&run)));
    let place = Place::new().variable("TRADEWIND_SECRET", "0123456789abcdef");
    let listen = ["names", "--listen", "127.0.0.1:0"];
    let listening = Program::start(&mut alone(place.command(&listen))).line();
    assert!(listening.starts_with("other nodes connect with NAME@"), "{listening}");
}
