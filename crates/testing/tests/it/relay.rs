//! Nodes joined by the relay: all frames arrive unless faults are set.

use testing::relay::{Faults, Relay, relayed_nodes};
use testing::traffic::{Family, SIZES, exchange, receiver, unplug_and_plug};
use virtual_nodes::VirtualNodes;

testing::tests![needs(Tap):
    every_node_reaches_every_other_node,
    an_unplugged_node_receives_nothing_until_it_is_plugged_in,
    losses_and_duplicates_match_their_probabilities,
    delayed_frames_are_overtaken_and_not_lost,
    an_equal_delay_keeps_the_order,
    the_kernel_drops_damaged_frames,
];

fn relayed(count: usize, mtu: u32) -> (VirtualNodes, Relay) {
    relayed_nodes(count, mtu, 7).expect("the machine has TAP interfaces")
}

fn every_node_reaches_every_other_node() {
    for count in [2, 8] {
        for mtu in SIZES {
            let (nodes, relay) = relayed(count, mtu);
            exchange(&nodes, Family::V4, mtu);
            exchange(&nodes, Family::V6, mtu);
            let counts = relay.counts();
            assert_eq!((counts.lost, counts.duplicated, counts.mutated), (0, 0, 0));
            assert!(counts.arrived >= (count * (count - 1) * 2 * 2) as u64);
        }
    }
}

fn an_unplugged_node_receives_nothing_until_it_is_plugged_in() {
    let (nodes, _relay) = relayed(3, 1500);
    unplug_and_plug(&nodes);
}

/// Sends numbers from node 0 to node 1 in batches, each closed by a frame without faults. Returns
/// the numbers that arrived, in the order of arrival.
fn numbers_that_arrive(
    (nodes, relay): &(VirtualNodes, Relay),
    faults: Faults,
    count: u32,
) -> Vec<u32> {
    let sockets: Vec<_> = nodes.nodes().iter().map(|node| receiver(node, Family::V4)).collect();
    sockets[0]
        .connect(sockets[1].local_addr().expect("the socket is bound"))
        .expect("a UDP socket connects");
    let mut arrived = Vec::new();
    for first in (0..count).step_by(50) {
        relay.set_faults(faults);
        let before = relay.counts().arrived;
        (first..first + 50).for_each(|number| {
            sockets[0].send(&number.to_ne_bytes()).expect("the frame is sent");
        });
        while relay.counts().arrived < before + 50 {
            std::thread::yield_now();
        }
        // The closing frame arrives behind all delayed frames.
        relay.set_faults(Faults {
            delay: faults.delay + 2 * Faults::HELD_BACK,
            ..Faults::default()
        });
        sockets[0].send(&u32::MAX.to_ne_bytes()).expect("the frame is sent");
        loop {
            let mut bytes = [0; 4];
            // Damaged frames may be shorter; the closing frame is intact.
            let length = sockets[1].recv(&mut bytes).expect("the closing frame arrives");
            match u32::from_ne_bytes(bytes) {
                u32::MAX if length == 4 => break,
                number => arrived.push(number),
            }
        }
    }
    arrived
}

fn losses_and_duplicates_match_their_probabilities() {
    let relayed = relayed(2, 1500);
    let arrived = numbers_that_arrive(
        &relayed,
        Faults { lose: 0.2, duplicate: 0.1, ..Faults::default() },
        2000,
    );
    let counts = relayed.1.counts();
    assert_eq!(arrived.len() as u64, 2000 - counts.lost + counts.duplicated);
    assert!((300..500).contains(&counts.lost), "{counts:?}");
    assert!((110..210).contains(&counts.duplicated), "{counts:?}");
    assert!(arrived.is_sorted(), "without delays the order stays");
}

fn delayed_frames_are_overtaken_and_not_lost() {
    let relayed = relayed(2, 1500);
    let mut arrived =
        numbers_that_arrive(&relayed, Faults { reorder: 0.2, ..Faults::default() }, 1000);
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..1000), "reordering loses no frame");
}

fn an_equal_delay_keeps_the_order() {
    let relayed = relayed(2, 1500);
    let delay = std::time::Duration::from_micros(300);
    let arrived = numbers_that_arrive(&relayed, Faults { delay, ..Faults::default() }, 200);
    assert!(arrived.into_iter().eq(0..200));
}

fn the_kernel_drops_damaged_frames() {
    let relayed = relayed(2, 1500);
    let arrived = numbers_that_arrive(
        &relayed,
        Faults { mutate: 0.5, truncate: 0.2, ..Faults::default() },
        1000,
    );
    let counts = relayed.1.counts();
    assert!(counts.mutated > 400 && counts.truncated > 100, "{counts:?}");
    assert!(
        arrived.len() < 700 && arrived.iter().all(|number| *number < 1000),
        "checksums reject damaged frames"
    );
}
