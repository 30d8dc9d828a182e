//! Ranks that exchange values over TCP, as threads, and strangers between them.

use launch::store::{Client, Error, Server, SharedSecret};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn secret(text: &str) -> SharedSecret {
    SharedSecret::new(text, "the test").expect("long enough")
}

fn shared() -> SharedSecret {
    secret("the secret of this test")
}

fn serve(ranks: u32, limit: Duration) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    Server::with_listener(listener, shared(), ranks, limit).expect("threads")
}

fn connect(server: &Server, rank: u32, ranks: u32, limit: Duration) -> Result<Client, Error> {
    Client::connect(&[server.local_host()], "the test", &shared(), (rank, ranks), limit)
}

/// A rank that publishes a value in two rounds, and reads those of all others.
fn exchange(mut client: Client, rank: u32, ranks: u32) -> Result<(), Error> {
    for round in 0..2 {
        // Longer than what a socket takes at once, for one of them.
        let value =
            |rank: u32| format!("{rank} {}", "x".repeat(if rank == 1 { 1 << 20 } else { 7 }));
        client.put(&format!("{round}-{rank}"), &value(rank));
        client.fence()?;
        for other in 0..ranks {
            assert_eq!(client.get(&format!("{round}-{other}")), Some(value(other)));
        }
        assert_eq!(client.get("other"), None);
    }
    client.finish()
}

#[test]
fn all_ranks_read_the_values_of_all() {
    for ranks in [1, 2, 7] {
        let server = serve(ranks, LONG);
        let secrets: Vec<_> = std::thread::scope(|scope| {
            let run = |rank| {
                let server = &server;
                scope.spawn(move || {
                    let client = connect(server, rank, ranks, LONG).expect("it listens");
                    let secret = client.secret();
                    exchange(client, rank, ranks).expect("all take part");
                    secret
                })
            };
            let threads: Vec<_> = (0..ranks).map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]), "one secret for a job");
        server.finish();
    }
}

/// The keys and values that a rank puts in a round. A key may come again in a later round.
type Puts = Vec<(u8, String)>;

/// What each rank puts in each round.
fn puts() -> impl Strategy<Value = Vec<Vec<Puts>>> {
    (1..5_usize, 1..4_usize).prop_flat_map(|(ranks, rounds)| {
        let of_round = prop::collection::vec((0..3_u8, "[ -~]{0,9}"), 0..4);
        prop::collection::vec(prop::collection::vec(of_round, rounds), ranks)
    })
}

/// Runs the rounds of a rank. Before each fence it does what it does in this round, in which it may
/// leave; behind it, it has the values of the reference.
fn run_rounds(
    mut client: Client,
    rank: usize,
    puts: &[Vec<Puts>],
    end: Option<(usize, usize)>,
) -> Result<(), String> {
    let key = |rank: usize, key: u8| format!("{rank}-{key}");
    let mut reference = HashMap::new();
    for round in 0..puts[rank].len() {
        if end == Some((rank, round)) {
            return Ok(());
        }
        for (number, value) in &puts[rank][round] {
            client.put(&key(rank, *number), value);
        }
        client.fence().map_err(|error| error.to_string())?;
        for (other, rounds) in puts.iter().enumerate() {
            for (number, value) in &rounds[round] {
                reference.insert(key(other, *number), value.clone());
            }
        }
        for key in (0..puts.len()).flat_map(|other| (0..3).map(move |number| key(other, number))) {
            assert_eq!(client.get(&key), reference.get(&key).cloned(), "{key} in round {round}");
        }
    }
    client.finish().map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ranks_have_the_values_of_a_plain_map(
        puts in puts(),
        end in prop::option::of((0..4_usize, 0..3_usize)),
        strangers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..3),
    ) {
        let ranks = puts.len() as u32;
        let end = end.filter(|(rank, round)| *rank < puts.len() && *round < puts[0].len());
        let server = serve(ranks, LONG);
        let mut open = Vec::new();
        for bytes in strangers {
            let mut stranger = TcpStream::connect(server.local_host()).expect("it listens");
            stranger.write_all(&bytes).expect("it reads");
            open.push(stranger);
        }
        let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
            // All connect before one leaves: its end ends the server.
            let clients: Vec<_> = (0..ranks)
                .map(|rank| connect(&server, rank, ranks, LONG).expect("it listens"))
                .collect();
            let run = |(rank, client)| {
                let puts = &puts;
                scope.spawn(move || run_rounds(client, rank, puts, end))
            };
            let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match end {
                Some((gone, _)) if gone != rank => {
                    let error = outcome.expect_err("a rank has left");
                    let expected = format!("rank {gone} on 127.0.0.1 has ended");
                    prop_assert!(error.contains(&expected), "{}", error);
                }
                _ => prop_assert_eq!(outcome, Ok(())),
            }
        }
        server.finish();
    }
}

#[test]
fn jobs_with_one_shared_secret_have_different_secrets() {
    let secret = || connect(&serve(1, LONG), 0, 1, LONG).expect("it listens").secret();
    assert_ne!(secret(), secret());
}

#[test]
fn absent_ranks_are_named_to_all_others() {
    let server = serve(5, SHORT);
    let mut clients = [0, 2].map(|rank| connect(&server, rank, 5, LONG).expect("it listens"));
    for client in &mut clients {
        let error = client.fence().expect_err("ranks are absent").to_string();
        let expected =
            format!("ranks 1, 3 and 4 did not connect to rank 0 at {}", server.address());
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_rank_that_does_not_take_part_is_named() {
    let server = serve(3, SHORT);
    let silent = connect(&server, 1, 3, LONG).expect("it listens");
    let mut clients = [0, 2].map(|rank| connect(&server, rank, 3, LONG).expect("it listens"));
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                let error = client.fence().expect_err("rank 1 is late").to_string();
                assert!(error.contains("rank 1 did not take part"), "{error}");
            });
        }
    });
    drop(silent);
}

#[test]
fn a_rank_that_ends_is_named_to_all_others() {
    let server = serve(3, LONG);
    let mut clients = [0, 2].map(|rank| connect(&server, rank, 3, LONG).expect("it listens"));
    drop(connect(&server, 1, 3, LONG).expect("it listens"));
    for client in &mut clients {
        let error = client.fence().expect_err("rank 1 has ended").to_string();
        assert!(error.contains("rank 1 on 127.0.0.1 has ended"), "{error}");
    }
}

#[test]
fn the_end_of_the_server_is_reported() {
    let server = serve(2, LONG);
    let mut client = connect(&server, 1, 2, LONG).expect("it listens");
    drop(server);
    let error = client.fence().expect_err("no server").to_string();
    assert!(error.contains("rank 0") && error.contains("has ended"), "{error}");
}

#[test]
fn a_rank_that_is_started_twice_is_refused_and_the_first_goes_on() {
    let server = serve(2, LONG);
    std::thread::scope(|scope| {
        let first = connect(&server, 1, 2, LONG).expect("it listens");
        let mut second = connect(&server, 1, 2, LONG).expect("it listens");
        let error = second.fence().expect_err("the second").to_string();
        assert!(error.contains("rank 1 has connected already, from 127.0.0.1"), "{error}");
        let rank_0 = connect(&server, 0, 2, LONG).expect("it listens");
        scope.spawn(|| exchange(rank_0, 0, 2).expect("both take part"));
        exchange(first, 1, 2).expect("both take part");
    });
}

#[test]
fn ranks_of_another_job_are_refused() {
    let server = serve(2, LONG);
    for (rank, ranks, part) in [(2, 3, "rank 2 of 3"), (2, 2, "no rank 2 in a job of 2 ranks")] {
        let mut client = connect(&server, rank, ranks, LONG).expect("it listens");
        let error = client.fence().expect_err("another job").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn another_secret_is_reported_on_both_sides() {
    let server = serve(2, Duration::from_secs(1));
    let mut rank_0 = connect(&server, 0, 2, LONG).expect("it listens");
    let other = secret("another secret than theirs");
    let hosts = [server.local_host()];
    let error = Client::connect(&hosts, "the test", &other, (1, 2), LONG).expect_err("refused");
    assert!(matches!(error, Error::OtherSecret { .. }), "{error}");
    let error = rank_0.fence().expect_err("rank 1 is absent").to_string();
    assert!(error.contains("another secret connected from 127.0.0.1"), "{error}");
}

#[test]
fn a_server_with_another_secret_gets_no_proof() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let stranger = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a rank connects");
        let mut hello = [0; 28];
        socket.read_exact(&mut hello).expect("a hello");
        socket.write_all(&[b"TWK1", &[7; 48][..]].concat()).expect("the rank reads");
        let mut proof = Vec::new();
        socket.read_to_end(&mut proof).expect("the rank closes");
        proof
    });
    let error = connect_to(address).expect_err("a wrong proof");
    assert!(matches!(error, Error::OtherSecret { .. }), "{error}");
    assert_eq!(stranger.join().expect("no panic"), [0; 16]);
}

fn connect_to(address: SocketAddr) -> Result<Client, Error> {
    let hosts = [(address.ip().to_string(), address.port())];
    Client::connect(&hosts, "the test", &shared(), (1, 2), LONG)
}

#[test]
fn another_program_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let program = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a rank connects");
        socket.write_all(&[b'-'; 100]).expect("the rank reads");
        socket
    });
    let error = connect_to(address).expect_err("another program").to_string();
    assert!(error.contains(&format!("{address} (the test) is another program's")), "{error}");
    drop(program.join().expect("no panic"));
}

/// A server on a busy node may answer late: the rank connects again until its time is over.
#[test]
fn a_server_without_an_answer_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let hosts = [(address.ip().to_string(), address.port())];
    let error = Client::connect(&hosts, "the test", &shared(), (1, 2), SHORT).expect_err("silence");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("has not answered within"), "{error}");
}

#[test]
fn an_address_without_a_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let hosts = [(address.ip().to_string(), address.port())];
    let error = Client::connect(&hosts, "the test", &shared(), (1, 2), SHORT).expect_err("none");
    let text = error.to_string();
    assert!(text.contains(&format!("cannot reach rank 0 at {address} (the test)")), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let place = ("127.0.0.1", port);
    let error =
        Server::start(place, "the test", shared(), 2, LONG).expect_err("in use").to_string();
    assert!(error.contains(&format!("cannot listen at 127.0.0.1:{port} (the test)")), "{error}");
}

/// A name may lead to an address of another node, such as that of a service of Kubernetes.
#[test]
fn a_server_listens_everywhere_where_its_name_leads_elsewhere() {
    // An address for documentation (RFC 5737), which no node has. The port is found free first.
    let port =
        TcpListener::bind("[::]:0").and_then(|free| free.local_addr()).expect("a port").port();
    let server = Server::start(("192.0.2.1", port), "the test", shared(), 1, LONG).expect("a port");
    let client = connect(&server, 0, 1, LONG).expect("it listens");
    exchange(client, 0, 1).expect("one rank");
}

#[test]
fn strangers_do_not_disturb_the_ranks() {
    let server = serve(2, LONG);
    let (host, port) = server.local_host();
    let strangers: Vec<TcpStream> = (0..300u16)
        .filter_map(|number| {
            let mut socket = TcpStream::connect((host.as_str(), port)).ok()?;
            // Some are silent; the server closes some before they have written.
            let _ = socket.write(&vec![number as u8; usize::from(number % 3) * 40]);
            Some(socket)
        })
        .collect();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let client = connect(&server, rank, 2, LONG).expect("it listens");
            scope.spawn(move || exchange(client, rank, 2).expect("both take part"));
        }
    });
    drop(strangers);
}

/// Set in the process that has few descriptors.
const FEW_FILES: &str = "TRADEWIND_TEST_FEW_FILES";

#[test]
fn a_lack_of_descriptors_is_reported() {
    if std::env::var_os(FEW_FILES).is_some() {
        return exhaust_descriptors();
    }
    let script = "ulimit -n 24 && exec \"$0\" --exact store::a_lack_of_descriptors_is_reported";
    let mut limited = Command::new("sh");
    limited.args(["-c", script]).arg(std::env::current_exe().expect("this test program"));
    let output = limited.env(FEW_FILES, "1").output().expect("every system has sh");
    let has_run = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(has_run && output.status.success(), "{output:?}");
}

fn exhaust_descriptors() {
    let server = serve(64, LONG);
    let mut spare = Some(File::open("/dev/null").expect("it exists"));
    let mut clients = Vec::new();
    // The last descriptor must be the client's, so that the server is the one to lack one.
    loop {
        match connect(&server, clients.len() as u32, 64, SHORT) {
            Ok(client) => clients.push(client),
            Err(_) if spare.take().is_some() => {}
            Err(_) => break,
        }
    }
    let error = clients[0].fence().expect_err("ranks are missing").to_string();
    assert!(error.contains("open file for each of 64 ranks"), "{error}");
}
