//! Memory of ten thousand open destinations at their sender, a process of its own, which counts its
//! allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::child::{Child, argument, report};
use crate::names::test_server::{TestServer, Transport, deadline, register_child};
use queues::names::PortAddress;
use queues::port::PortEvent;

testing::tests![ten_thousand_open_destinations_cost_less_than_four_mebibytes,];
testing::parts![child_sends_to_all,];

/// The system's allocator with a count of the allocated bytes.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DESTINATIONS: u16 = 10_000;
const RECEIVERS: u16 = 20;
const PORTS: u16 = 500;

/// A job of 21 processes with 500 ports each, so of more than ten thousand names. The open ports
/// stand for all: every name of a process has one of them as its destination.
fn ten_thousand_open_destinations_cost_less_than_four_mebibytes() {
    let name_server = TestServer::start();
    let plan = Transport::Queues.job("job", u32::from(RECEIVERS) + 1, PORTS);
    let key = name_server.inner.add_job(plan).expect("a new job");
    let ranks: Vec<_> =
        (0..RECEIVERS).map(|process| name_server.register("job", process.into(), key)).collect();
    let mut port_receivers: Vec<_> =
        ranks.iter().map(|rank| rank.open_port(0).expect("a new port").split().1).collect();
    for process in 0..RECEIVERS {
        for port in 1..PORTS {
            let name = ranks[0].own_name(process.into(), port).expect("a port of the job");
            name_server
                .inner
                .repoint("job", name, &PortAddress::new("job", process.into(), 0))
                .expect("it is open");
        }
    }
    let mut sender = Child::start(
        "names::destinations::child_sends_to_all",
        &name_server.identity("job", RECEIVERS.into(), key),
    );
    // Order is kept for each name.
    let mut rounds = vec![0; usize::from(DESTINATIONS)];
    let mut receive = |process: usize| match port_receivers[process]
        .recv_deadline(deadline())
        .expect("it can sleep")
        .expect("a message")
    {
        PortEvent::Message(message) => {
            let name =
                usize::from(u16::from_le_bytes(message.bytes.try_into().expect("two bytes")));
            assert_eq!((name / usize::from(PORTS), rounds[name]), (process, message.handler));
            rounds[name] += 1;
        }
        PortEvent::Disconnected(error) => panic!("{error}"),
    };
    for _ in 0..2 {
        (0..usize::from(RECEIVERS)).for_each(|process| (0..PORTS).for_each(|_| receive(process)));
    }
    assert!(rounds.iter().all(|round| *round == 2));
    let bytes: usize = sender.read_line().parse().expect("a number");
    assert!(bytes < 4 << 20, "{bytes} bytes");
    assert!(
        bytes < 200 * usize::from(DESTINATIONS),
        "{bytes} bytes: less than 200 each, as the module's page says"
    );
    println!("{bytes} bytes for {DESTINATIONS} destinations");
    assert!(sender.succeeds());
    assert_eq!(
        queues::names::RING_BYTES,
        queues::basic::bytes_for(queues::names::RING_LINES.into()).expect("a ring")
    );
}

/// The sender of `ten_thousand_open_destinations_cost_less_than_four_mebibytes`.
fn child_sends_to_all() {
    let argument = argument();
    let (registration, _) = register_child(&argument);
    let (mut port_sender, _port_receiver) = registration.open_port(0).expect("a new port").split();
    let before = BYTES.load(Ordering::Relaxed);
    let mut after = 0;
    for round in 0..2 {
        for number in 0..DESTINATIONS {
            let name = registration
                .own_name((number / PORTS).into(), number % PORTS)
                .expect("a port of the job");
            port_sender
                .send_deadline(name, round, &number.to_le_bytes(), deadline())
                .expect("it receives");
        }
        after = BYTES.load(Ordering::Relaxed);
    }
    report(&(after - before).to_string());
}
