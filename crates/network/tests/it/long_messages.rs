//! Long messages over TCP do not delay short ones.

use interpreter::{Handle, Packet};
use network::job_nodes::random_key;
use network::transport::frame::{Frame, Route};
use network::transport::payloads::{NoPayloads, PayloadLocation, Payloads};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use network::transport::{Arrival, Transport};
use rustix::io::Errno;
use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

testing::tests![
    short_frames_overtake_long_ones_and_ordered_frames_do_not,
    long_messages_of_every_length_arrive_whole,
    a_lost_connection_ends_each_send_in_place_once,
];

/// More than the system keeps for a connection.
const LONG: usize = 64 << 20;

/// Two connected nodes.
fn pair() -> [Tcp; 2] {
    let key = random_key().expect("the system has random bytes");
    let listeners =
        [0, 1].map(|_| Listener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports"));
    let addresses = listeners.each_ref().map(Listener::address);
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let connect =
            |listener, node| Tcp::connect(listener, node, &addresses, key, Timeouts::default());
        let other = scope.spawn(move || connect(second, 1).expect("they reach each other"));
        [
            connect(first, 0).expect("they reach each other"),
            other.join().expect("it does not panic"),
        ]
    })
}

pub(crate) fn contents(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place / 251 + place + seed) as u8).collect()
}

fn long(seed: usize, bytes: usize) -> Frame {
    Frame::Packet(
        Route::default(),
        Packet::Data { receive: Handle(seed as u32), payload: contents(seed, bytes) },
    )
}

fn short(number: u32) -> Frame {
    Frame::Packet(
        Route::default(),
        Packet::Eager { tag: number, ordinal: 0, payload: vec![number as u8; 100] },
    )
}

/// Lets both nodes work until the second has received so many frames.
fn receive([sender, receiver]: &mut [Tcp; 2], count: usize) -> Vec<Frame> {
    let (mut frames, mut arrivals) = (Vec::new(), Vec::new());
    while frames.len() < count {
        for node in [&mut *sender, &mut *receiver] {
            node.wait(Some(Duration::ZERO), &mut NoPayloads, &mut arrivals).expect("it works");
        }
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Frame { node: 0, frame } => frames.push(frame),
                other => panic!("{other:?}"),
            }
        }
    }
    frames
}

fn short_frames_overtake_long_ones_and_ordered_frames_do_not() {
    let mut nodes = pair();
    nodes[0].send(1, long(1, LONG));
    nodes[0].flush(&mut NoPayloads);
    nodes[0].send(1, Frame::Shutdown);
    nodes[0].send(1, short(2));
    let frames = receive(&mut nodes, 3);
    assert!(frames[0] == short(2), "the short one first");
    assert!(frames[1] == long(1, LONG), "the long one, as it was sent");
    assert_eq!(frames[2], Frame::Shutdown);
}

fn long_messages_of_every_length_arrive_whole() {
    const SEGMENT: usize = 256 << 10;
    let lengths = [
        SEGMENT - 1,
        SEGMENT,
        SEGMENT + 1,
        2 * SEGMENT,
        5 * SEGMENT - 40,
        5 * SEGMENT + 17,
        3_000_001,
    ];
    let mut nodes = pair();
    for (number, length) in lengths.into_iter().enumerate() {
        nodes[0].send(1, short(number as u32));
        nodes[0].send(1, long(number, length));
        nodes[0].flush(&mut NoPayloads);
    }
    let mut frames = receive(&mut nodes, 2 * lengths.len());
    assert_eq!(nodes[0].queued(1), 0, "as many bytes have left as were announced");
    for (number, length) in lengths.into_iter().enumerate() {
        for expected in [short(number as u32), long(number, length)] {
            let place = frames.iter().position(|frame| *frame == expected);
            frames.remove(
                place.unwrap_or_else(|| panic!("the frames of {length} bytes are not there")),
            );
        }
    }
}

/// Payloads of which the system takes nothing.
#[derive(Default)]
struct UnsentPayloads {
    ended: Vec<u32>,
}

impl Payloads for UnsentPayloads {
    fn send(
        &self,
        _: PayloadLocation,
        _: Range<usize>,
        _: [&[IoSlice<'_>]; 2],
        _: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        Err(Errno::AGAIN)
    }

    fn has_runs(&self) -> bool {
        false
    }

    fn sent(&mut self, location: PayloadLocation) {
        self.ended.push(location.operation);
    }

    fn unreadable(&mut self, location: PayloadLocation) {
        panic!("{location:?} can be read");
    }
}

/// The segments of a long payload in the queue enclose a shorter one.
fn a_lost_connection_ends_each_send_in_place_once() {
    let [mut sender, receiver] = pair();
    let mut payloads = UnsentPayloads::default();
    for (operation, bytes) in [(0, 512 << 10), (1, 100 << 10)] {
        let location = PayloadLocation { rank: 0, communicator: 0, sequence: 0, operation };
        let packet = Packet::Data { receive: Handle(operation), payload: Vec::new() };
        sender.send_in_place(1, Route::default(), packet, location, bytes);
        sender.flush(&mut payloads);
    }
    drop(receiver);
    let mut arrivals = Vec::new();
    while arrivals.is_empty() {
        sender.wait(None, &mut payloads, &mut arrivals).expect("it works");
    }
    assert!(matches!(arrivals[..], [Arrival::NodeLost { node: 1, .. }]), "{arrivals:?}");
    payloads.ended.sort_unstable();
    assert_eq!(payloads.ended, [0, 1]);
}
