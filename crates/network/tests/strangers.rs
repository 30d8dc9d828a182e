//! Strangers without the job's key, more of them than the process of a node may have descriptors,
//! cannot end a job's start. A file of its own, because the limit on descriptors is that of the
//! whole process.

use network::invitation::{Key, random_key};
use network::transport::Transport;
use network::transport::tcp::{Listener, Patience, Tcp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where the strangers are to knock, and the job's key, which a node among them has.
const ARGUMENT: &str = "NETWORK_TEST_ARGUMENT";
/// What this process may have open.
const OPEN: u64 = 64;
/// Far more than that, and more than are let wait where descriptors abound.
const CROWD: usize = 500;

/// This test program again, as all strangers and as the other node.
struct Others {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Others {
    fn at(address: SocketAddr, key: Key) -> Others {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "part_knocks", "--ignored", "--nocapture"])
            .env(ARGUMENT, format!("{address} {}", u128::from_le_bytes(key)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let said = BufReader::new(child.stdout.take().expect("piped")).lines();
        Others { child, said }
    }

    fn hear(&mut self, words: &str) {
        let heard = self.said.by_ref().map_while(Result::ok).any(|line| line.contains(words));
        assert!(heard, "it ended without {words:?}");
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a part of the other test: strangers, and behind them a node"]
fn part_knocks() {
    let Ok(argument) = std::env::var(ARGUMENT) else { return };
    let (address, key) = argument.split_once(' ').expect("two words");
    let address: SocketAddr = address.parse().expect("an address");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("up to the maximum");
    let greeting =
        [&b"TWN1\x01\0\0\0"[..], &1u32.to_le_bytes(), &0u32.to_le_bytes(), &[5; 16]].concat();
    let mut strangers = Vec::new();
    for number in 0..CROWD {
        let mut stranger = TcpStream::connect(address).expect("it listens");
        // Silence, half a greeting, a greeting without the proof that should follow.
        let said = [&[][..], &greeting[..20], &greeting][number % 3];
        // Who has been turned away already cannot say anything.
        let _ = stranger.write_all(said);
        if number % 3 == 2 {
            // Its answer, or the end of the connection: then it has been heard.
            let _ = stranger.read(&mut [0; 32]);
        }
        strangers.push(stranger);
    }
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let (addresses, key) =
        ([address, listener.address()], key.parse::<u128>().expect("a number").to_le_bytes());
    let transport =
        Tcp::connect(listener, 1, &addresses, key, Patience::default()).expect("it is a node");
    println!("connected with {}", transport.address(0));
    // Until the test ends this process.
    let _ = std::io::stdin().read(&mut [0]);
    drop(strangers);
}

#[test]
fn a_crowd_of_strangers_keeps_no_node_out() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN), ..limit })
        .expect("lower is always allowed");
    let key = random_key().expect("random bytes");
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let address = listener.address();
    let mut others = Others::at(address, key);
    // Where the other node listens nobody needs to know: it is the one that connects.
    let addresses = [address, address];
    let transport = Tcp::connect(listener, 0, &addresses, key, Patience::default())
        .expect("a node is among them");
    assert!(transport.refused() > 0, "nobody was turned away");
    others.hear(&format!("connected with {address}"));
}
