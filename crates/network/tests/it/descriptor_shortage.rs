//! A node with few descriptors and many connections of strangers: the job starts all the same. The
//! limit on descriptors is that of the process, so the test runs in one of its own.

use crate::alone::is_alone;
use network::job_nodes::{Key, random_key};
use network::transport::Transport;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Stdio};

testing::tests![many_strangers_keep_no_node_out,];
testing::parts![part_connects];

/// Address for the strangers, and the job's key for the node among them.
const ARGUMENT: &str = "NETWORK_TEST_ARGUMENT";
/// Limit on the descriptors of this process.
const OPEN: u64 = 64;
/// Number of strangers: far more than that, and more than a node admits.
const CROWD: usize = 500;

/// This test program again, as all strangers and as the other node.
struct Others {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Others {
    fn at(address: SocketAddr, key: Key) -> Others {
        let mut child = testing::part("descriptor_shortage::part_connects")
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

fn part_connects() {
    let Ok(argument) = std::env::var(ARGUMENT) else { return };
    let (address, key) = argument.split_once(' ').expect("two words");
    let address: SocketAddr = address.parse().expect("an address");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("up to the maximum");
    let hello =
        [&b"TWN1\x01\0\0\0"[..], &1u32.to_le_bytes(), &0u32.to_le_bytes(), &[5; 16]].concat();
    let mut strangers = Vec::new();
    for number in 0..CROWD {
        let mut stranger = TcpStream::connect(address).expect("it listens");
        // Silence, half a hello, a hello without the proof that should follow.
        let said = [&[][..], &hello[..20], &hello][number % 3];
        // Fails if the connection was closed already.
        let _ = stranger.write_all(said);
        if number % 3 == 2 {
            // The answer or the end of the connection: the hello has been read.
            let _ = stranger.read(&mut [0; 32]);
        }
        strangers.push(stranger);
    }
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let (addresses, key) =
        ([address, listener.address()], key.parse::<u128>().expect("a number").to_le_bytes());
    let transport =
        Tcp::connect(listener, 1, &addresses, key, Timeouts::default()).expect("it is a node");
    println!("connected with {}", transport.address(0));
    // Until the test ends this process.
    let _ = std::io::stdin().read(&mut [0]);
    drop(strangers);
}

fn many_strangers_keep_no_node_out() {
    if !is_alone("descriptor_shortage::many_strangers_keep_no_node_out") {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN), ..limit })
        .expect("lower is always allowed");
    let key = random_key().expect("random bytes");
    let listener = Listener::bind("127.0.0.1:0").expect("a port");
    let address = listener.address();
    let mut others = Others::at(address, key);
    // The other node connects, so its address is not needed.
    let addresses = [address, address];
    let transport = Tcp::connect(listener, 0, &addresses, key, Timeouts::default())
        .expect("a node is among them");
    assert!(transport.refused() > 0, "no connection was closed");
    others.hear(&format!("connected with {address}"));
}
