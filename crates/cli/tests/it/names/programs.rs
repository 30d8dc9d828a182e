//! Programs that publish names, connect to them, and send and receive in ways of their own.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/ask.rs"]
mod ask;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/hand_over.rs"]
mod hand_over;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/squares.rs"]
mod squares;

use std::time::Duration;
use tradewind::Job;
use tradewind::names::{ConnectedPort, PeerError, PeerEvent};

testing::parts![
    squares_program,
    hand_over_program,
    ask_program,
    silent,
    sends,
    receives,
    asks,
    reports,
    pours,
    checks,
    posts,
    sleeps_and_receives,
    overwhelms,
    serves,
];

/// Returns the arguments of a part.
fn arguments() -> Vec<String> {
    std::env::args().skip(3).collect()
}

fn target() -> String {
    arguments().swap_remove(0)
}

fn or_exit<T>(outcome: Result<T, PeerError>) -> T {
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

fn squares_program() {
    or_exit(squares::serve(&target()));
}

fn hand_over_program() {
    or_exit(hand_over::serve(&target(), &arguments()[1], 3));
}

fn ask_program() {
    let numbers: Vec<i64> =
        arguments()[1..].iter().map(|text| text.parse().expect("a number")).collect();
    or_exit(ask::ask(&target(), &numbers));
}

/// As a rank of a job: publishes a name once a file exists, and answers as the first example does.
/// The ranks that come too late say so and end.
fn serves() {
    let go_on = arguments().swap_remove(1);
    while !std::path::Path::new(&go_on).exists() {
        std::thread::yield_now();
    }
    if let Err(error) = squares::serve(&target()) {
        println!("{error}");
    }
}

/// Publishes a name and receives nothing.
fn silent() {
    let _port = or_exit(Job::publish(&target()));
    println!("published");
    loop {
        std::thread::park();
    }
}

fn connected() -> ConnectedPort {
    let port = or_exit(Job::connect(&target()));
    println!("connected");
    port
}

/// Prints an error and that of the same operation once more, and stays.
fn print_twice(mut operation: impl FnMut() -> PeerError) {
    println!("{}", operation());
    println!("{}", operation());
    loop {
        std::thread::park();
    }
}

/// Sends until that fails. Reports when the receiver has no space left.
fn sends() {
    let mut port = connected();
    let message = [7; 1000];
    while or_exit(port.try_send(&message)) {}
    println!("full");
    print_twice(|| {
        loop {
            if let Err(error) = port.send(&message) {
                return error;
            }
        }
    });
}

/// Sends one message and receives until that fails.
fn receives() {
    let mut port = or_exit(Job::connect(&target()));
    or_exit(port.send(b"hello"));
    println!("connected");
    print_twice(|| {
        loop {
            match port.recv() {
                Ok(message) => println!("received {} bytes", message.len()),
                Err(error) => return error,
            }
        }
    });
}

/// Sends each number of standard input, and prints the answer or the error.
fn asks() {
    let mut port = connected();
    for line in std::io::stdin().lines() {
        let number: i64 = line.expect("text").parse().expect("a number");
        let answer = port.send(&number.to_le_bytes()).and_then(|()| Ok(port.recv()?.to_vec()));
        match answer {
            Ok(bytes) => println!("{}", i64::from_le_bytes(bytes.try_into().expect("a number"))),
            Err(error) => println!("{error}"),
        }
    }
}

/// Publishes a name, and prints every message, the end of every connection, and the error of a
/// reply after that.
fn reports() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let mut last = None;
    loop {
        match or_exit(port.recv()) {
            PeerEvent::Message { client, bytes } => {
                println!("message of {} bytes", bytes.len());
                last = Some(client);
            }
            PeerEvent::Moved => panic!("it has not moved"),
            PeerEvent::Ended(error) => {
                println!("{error}");
                // The name server may observe the end a moment later than this process.
                let replies = last.take().map(|client| {
                    loop {
                        if let Err(error) = port.reply(client, b"late") {
                            break error;
                        }
                    }
                });
                replies.into_iter().for_each(|error| println!("{error}"));
            }
        }
    }
}

/// Returns a message whose contents follow from its number and its sender.
fn numbered(sender: u8, number: u32) -> Vec<u8> {
    let length = 5 + (number.wrapping_mul(2_654_435_761) >> 16) as usize % 600;
    let mut bytes = vec![number as u8; length];
    bytes[0] = sender;
    bytes[1..5].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Sends numbered messages, and checks that each comes back, in order.
fn pours() {
    let arguments = arguments();
    let sender: u8 = arguments[1].parse().expect("a number");
    let count: u32 = arguments[2].parse().expect("a number");
    let mut port = connected();
    let (mut sent, mut received) = (0, 0);
    while received < count {
        while sent < count && or_exit(port.try_send(&numbered(sender, sent))) {
            sent += 1;
        }
        assert_eq!(or_exit(port.recv()), numbered(sender, received), "message {received}");
        received += 1;
    }
    println!("{count} messages came back");
}

/// Publishes a name, checks numbered messages of several clients, and returns each.
fn checks() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let mut next = [0; 256];
    loop {
        if let PeerEvent::Message { client, bytes } = or_exit(port.recv()) {
            let sender = bytes[0];
            let bytes = bytes.to_vec();
            let number = &mut next[usize::from(sender)];
            assert_eq!(bytes, numbered(sender, *number), "client {sender}");
            *number += 1;
            // The clients send a few messages ahead of what they receive.
            or_exit(port.reply(client, &bytes));
        }
    }
}

/// Sends one message, and at the next line of standard input many, and closes its end at once.
fn posts() {
    let mut port = connected();
    or_exit(port.send(b"first"));
    next_line();
    for number in 0..POSTED {
        or_exit(port.send(&number.to_le_bytes()));
    }
    drop(port);
    println!("closed");
    std::thread::park();
}

/// Number of messages of [`posts`], which fit into a ring.
pub(super) const POSTED: u32 = 200;

/// Receives one message and sleeps, and at the next line of standard input receives those of
/// [`posts`] and the end of the connection.
fn sleeps_and_receives() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    assert!(matches!(or_exit(port.recv()), PeerEvent::Message { bytes: b"first", .. }));
    assert!(or_exit(port.recv_timeout(Duration::from_millis(1))).is_none());
    println!("slept");
    next_line();
    let mut count = 0u32;
    let error = loop {
        match or_exit(port.recv()) {
            PeerEvent::Message { bytes, .. } => assert_eq!(bytes, count.to_le_bytes()),
            PeerEvent::Moved => panic!("it has not moved"),
            PeerEvent::Ended(error) => break error,
        }
        count += 1;
    };
    println!("{count} messages, then {error}");
}

fn next_line() {
    std::io::stdin().read_line(&mut String::new()).expect("text");
}

/// Answers the first message many times, and receives nothing more.
fn overwhelms() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let client = match or_exit(port.recv()) {
        PeerEvent::Message { client, .. } => client,
        PeerEvent::Moved => panic!("it has not moved"),
        PeerEvent::Ended(error) => panic!("{error}"),
    };
    println!("asked");
    let count: u32 = arguments()[1].parse().expect("a number");
    let mut replies = (0..count).map(|_| port.reply(client, &[1; 1000]));
    match replies.find_map(Result::err) {
        Some(error) => println!("{error}"),
        None => println!("answered"),
    }
    std::thread::park();
}
