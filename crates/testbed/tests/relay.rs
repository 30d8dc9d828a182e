//! Nodes joined by the relay: everybody reaches everybody, unless faults are asked for.

mod common;

use common::{Family, exchange, receiver};
use testbed::{Faults, Medium, Options, Testbed};

fn options(mtu: u32) -> Options {
    Options { mtu, medium: Medium::Relay { seed: 7 } }
}

#[test]
fn everybody_reaches_everybody() {
    for nodes in [2, 8] {
        for mtu in common::SIZES {
            let testbed = testbed::or_skip!(Testbed::new(nodes, options(mtu)));
            exchange(&testbed, Family::V4, mtu);
            exchange(&testbed, Family::V6, mtu);
            let counts = testbed.relay().expect("it was asked for").counts();
            assert_eq!((counts.lost, counts.duplicated, counts.mutated), (0, 0, 0));
            assert!(counts.arrived >= (nodes * (nodes - 1) * 2 * 2) as u64);
        }
    }
}

#[test]
fn an_unplugged_node_hears_nothing_until_it_is_plugged_in() {
    let testbed = testbed::or_skip!(Testbed::new(3, options(1500)));
    common::unplug_and_plug(&testbed);
}

/// Sends numbers from node 0 to node 1, a few at a time, each batch closed by a frame that comes
/// through for sure. Gives the numbers that arrived, in their order.
fn numbers_that_arrive(testbed: &Testbed, faults: Faults, count: u32) -> Vec<u32> {
    let relay = testbed.relay().expect("it was asked for");
    let sockets: Vec<_> = testbed.nodes().iter().map(|node| receiver(node, Family::V4)).collect();
    sockets[0].connect(sockets[1].local_addr().expect("it is bound")).expect("it is a UDP socket");
    let mut arrived = Vec::new();
    for first in (0..count).step_by(50) {
        relay.set_faults(faults);
        let before = relay.counts().arrived;
        (first..first + 50).for_each(|number| {
            sockets[0].send(&number.to_ne_bytes()).expect("it goes out");
        });
        while relay.counts().arrived < before + 50 {
            std::thread::yield_now();
        }
        // Behind everything that is held back.
        relay.set_faults(Faults {
            delay: faults.delay + 2 * Faults::HELD_BACK,
            ..Faults::default()
        });
        sockets[0].send(&u32::MAX.to_ne_bytes()).expect("it goes out");
        loop {
            let mut bytes = [0; 4];
            // Damaged ones may be shorter; the last one is never damaged.
            let length = sockets[1].recv(&mut bytes).expect("the last one arrives");
            match u32::from_ne_bytes(bytes) {
                u32::MAX if length == 4 => break,
                number => arrived.push(number),
            }
        }
    }
    arrived
}

#[test]
fn about_the_given_share_is_lost_and_duplicated() {
    let testbed = testbed::or_skip!(Testbed::new(2, options(1500)));
    let arrived = numbers_that_arrive(
        &testbed,
        Faults { lose: 0.2, duplicate: 0.1, ..Faults::default() },
        2000,
    );
    let counts = testbed.relay().expect("it was asked for").counts();
    assert_eq!(arrived.len() as u64, 2000 - counts.lost + counts.duplicated);
    assert!((300..500).contains(&counts.lost), "{counts:?}");
    assert!((110..210).contains(&counts.duplicated), "{counts:?}");
    assert!(arrived.is_sorted(), "nothing was held back");
}

#[test]
fn what_is_held_back_is_overtaken() {
    let testbed = testbed::or_skip!(Testbed::new(2, options(1500)));
    let mut arrived =
        numbers_that_arrive(&testbed, Faults { reorder: 0.2, ..Faults::default() }, 1000);
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..1000), "nothing is lost by that");
}

#[test]
fn what_is_delayed_keeps_its_order() {
    let testbed = testbed::or_skip!(Testbed::new(2, options(1500)));
    let delay = std::time::Duration::from_micros(300);
    let arrived = numbers_that_arrive(&testbed, Faults { delay, ..Faults::default() }, 200);
    assert!(arrived.into_iter().eq(0..200));
}

#[test]
fn the_kernel_drops_what_the_relay_damages() {
    let testbed = testbed::or_skip!(Testbed::new(2, options(1500)));
    let arrived = numbers_that_arrive(
        &testbed,
        Faults { mutate: 0.5, truncate: 0.2, ..Faults::default() },
        1000,
    );
    let counts = testbed.relay().expect("it was asked for").counts();
    assert!(counts.mutated > 400 && counts.truncated > 100, "{counts:?}");
    assert!(
        arrived.len() < 700 && arrived.iter().all(|number| *number < 1000),
        "checksums keep damage away"
    );
}
