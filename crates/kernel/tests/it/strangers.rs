//! Collectives while a node outside the job records their packets and sends copies: unchanged, to
//! another node, damaged, truncated, lengthened, or forged.
//!
//! `TRADEWIND_FORGED_PACKETS` sets their number.

use crate::world::allreduce::Allreduce;
use crate::world::{JobKind, PORT, World};
use network::backend::CommunicatorContext;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use virtual_nodes::{Node, VirtualNodes};

testing::tests![needs(Nodes, Bpf):
    collectives_go_on_while_a_stranger_repeats_and_damages_their_packets,
];

fn packets() -> u64 {
    std::env::var("TRADEWIND_FORGED_PACKETS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(50_000)
}

/// Nodes of the job.
const NODES: usize = 2;
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// Packet socket that receives every frame that a node sends and receives.
struct Eavesdropper {
    socket: OwnedFd,
}

impl Eavesdropper {
    fn at(node: &Node) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::ALL));
        Eavesdropper { socket: node.run(open).expect("who makes namespaces may listen in them") }
    }

    /// Returns the next packet between nodes of the job: its destination and its content.
    fn hear(&self) -> Option<(usize, Vec<u8>)> {
        let mut frame = [0; 10_000];
        loop {
            let length = rustix::io::read(&self.socket, &mut frame).ok()?;
            let Some(payload) = frame[..length].get(HEADERS..) else { continue };
            let protocol = frame[23];
            let port = [frame[36], frame[37]];
            // The last bytes of the addresses are the nodes' numbers, from 1.
            let [from, to] = [frame[29], frame[33]].map(|last| usize::from(last).wrapping_sub(1));
            if protocol == 17 && port == PORT.to_be_bytes() && from < NODES && to < NODES {
                return Some((to, payload.to_vec()));
            }
        }
    }
}

/// Packets that the outside node has sent.
#[derive(Debug, Default)]
struct Sent {
    /// Number of unchanged copies to the original destination.
    repeated: u64,
    /// Number of other packets: none of them may be accepted.
    wrong: u64,
}

/// Sends this number of packets, derived from recorded ones.
fn disturb(testbed: &VirtualNodes, packets: u64) -> Sent {
    const REMEMBERED: usize = 2000;
    let stranger = &testbed.nodes()[NODES];
    let socket =
        stranger.run(|| UdpSocket::bind((stranger.address(), 0))).expect("the port is free");
    let ear = Eavesdropper::at(&testbed.nodes()[0]);
    let mut random = SmallRng::seed_from_u64(9);
    let mut heard = Vec::new();
    let mut sent = Sent::default();
    while sent.repeated + sent.wrong < packets {
        while let Some(packet) = ear.hear() {
            let place = random.random_range(0..REMEMBERED);
            if heard.len() < REMEMBERED { heard.push(packet) } else { heard[place] = packet }
        }
        if heard.is_empty() {
            std::thread::yield_now();
            continue;
        }
        for _ in 0..50 {
            let (mut to, mut bytes) = heard[random.random_range(0..heard.len())].clone();
            // Lengthened packets of full length would be fragmented, and the program ignores
            // fragments.
            let kind = random.random_range(if bytes.len() < 1400 { 0..6 } else { 0..5 });
            match kind {
                0 => {}
                1 => to = 1 - to,
                2 => {
                    let place = random.random_range(0..bytes.len());
                    bytes[place] ^= 1 << random.random_range(0..8);
                }
                3 => bytes.truncate(random.random_range(0..bytes.len())),
                // A header with all public fields correct.
                4 => random.fill_bytes(&mut bytes[24..]),
                _ => bytes.extend_from_slice(&[0; 8][..random.random_range(1..8)]),
            }
            if kind == 0 {
                sent.repeated += 1
            } else {
                sent.wrong += 1
            }
            let address = testbed.nodes()[to].address();
            assert_eq!(socket.send_to(&bytes, (address, PORT)).expect("it goes out"), bytes.len());
        }
    }
    sent
}

fn collectives_go_on_while_a_stranger_repeats_and_damages_their_packets() {
    let testbed = VirtualNodes::new(NODES + 1, 1500).expect("virtual nodes");
    let testbed = Arc::new(testbed);
    let world = World::on_first(Arc::clone(&testbed), NODES, 2, 1500, JobKind::default());
    let before = Instant::now();
    let stranger = std::thread::spawn(move || disturb(&testbed, packets()));
    let mut laps = 0;
    while !stranger.is_finished() {
        // Vectors of one piece, of several, and many runs under way.
        for (elements, times, under_way) in [(1, 50, 1), (700, 5, 1), (3, 50, 8)] {
            let number = world.communicator();
            let contexts: Vec<CommunicatorContext> =
                (0..4).map(|rank| world.context(number, 4, rank)).collect();
            let results = world.run(4, move |rank, here| {
                Allreduce::prepare(here, &contexts[rank], elements)?.repeat(times, under_way)
            });
            results.into_iter().for_each(|result| result.unwrap_or_else(|error| panic!("{error}")));
            laps += times;
        }
    }
    let sent = stranger.join().expect("it does not panic");
    let counts: Vec<_> =
        world.loaders.iter().map(|loader| loader.counts().expect("it counts")).collect();
    println!(
        "{laps} allreduces of 4 ranks in {:.1?} beside {sent:?}: {counts:#?}",
        before.elapsed()
    );
    assert_eq!(
        counts.iter().map(|counts| counts.rejected()).sum::<u64>(),
        sent.wrong,
        "{counts:?}"
    );
    for kind in [
        |counts: &kernel::wire::Counters| counts.forged,
        |counts: &kernel::wire::Counters| counts.truncated,
        |counts: &kernel::wire::Counters| counts.strange,
        |counts: &kernel::wire::Counters| counts.duplicate,
    ] {
        assert!(counts.iter().all(|counts| kind(counts) > 0), "{counts:?}");
    }
}
