//! The agent engine over an emulation of providers for network adapters: registered memory, short
//! queues, completions and messages in any order, providers that cannot sleep.

use crate::fabric::{engine, fabrics};
use interpreter::Packet;
use network::agent::{Limits, limits};
use network::transport::Transport;
use network::transport::frame::{Frame, Route};
use network::transport::payloads::NoPayloads;
use network::transport::{Arrival, fabric::MESSAGE_BYTES};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::conformance::Capabilities;
use testing::fabric::{EMULATED, FAULTY};

testing::tests![
    needs(FabricHeaders):
    adapters_conform,
    long_and_short_frames_keep_their_contents,
];

pub(crate) fn emulation() -> PathBuf {
    testing::fabric::emulation(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn adapters_conform() {
    for (provider, ranks_per_node, limits) in [
        (EMULATED[0], 1, Limits::new(64).with_in_place(1)),
        (EMULATED[1], 2, Limits::new(16 << 10).with_in_place(1)),
        (EMULATED[2], 1, Limits::new(256).with_in_place(1)),
        ("emulated-efa+messages", 1, limits()),
        (EMULATED[3], 2, limits()),
        (FAULTY, 1, Limits::new(64).with_in_place(1)),
    ] {
        let mut engine = engine(emulation(), provider, ranks_per_node, limits);
        engine.capabilities = Capabilities { random_programs: 8, ..Capabilities::default() };
        testing::conformance::run_suite(&engine);
    }
}

/// Frames between two nodes in both directions at once, many more than a provider's queue takes.
fn long_and_short_frames_keep_their_contents() {
    const KEY: [u8; 16] = [3; 16];
    let lengths = [0, 8, 100, MESSAGE_BYTES / 8, 3 * MESSAGE_BYTES, 5];
    let frame = |node: u32, number: usize| {
        let length = lengths[number % lengths.len()];
        let payload = (0..length).map(|at| (at * 7 + number + node as usize) as u8).collect();
        let tag = number as u32;
        Frame::Packet(Route::default(), Packet::Eager { tag, ordinal: node, payload })
    };
    const FRAMES: usize = 120;
    for provider in EMULATED {
        let mut nodes = fabrics(2, &emulation(), provider, &[KEY]);
        let mut arrived: [Vec<Frame>; 2] = [Vec::new(), Vec::new()];
        for (node, fabric) in (0..).zip(&mut nodes) {
            (0..FRAMES).for_each(|number| fabric.send(1 - node, frame(node, number)));
        }
        while arrived.iter().any(|frames| frames.len() < FRAMES) {
            for (fabric, arrived) in nodes.iter_mut().zip(&mut arrived) {
                let mut arrivals = Vec::new();
                fabric
                    .wait(Some(Duration::ZERO), &mut NoPayloads, &mut arrivals)
                    .expect("it works");
                arrived.extend(arrivals.into_iter().map(|arrival| match arrival {
                    Arrival::Frame { frame, .. } => frame,
                    other => panic!("{provider}: {other:?}"),
                }));
            }
        }
        for (node, mut frames) in (0..).zip(arrived) {
            let tag = |frame: &Frame| match frame {
                Frame::Packet(_, Packet::Eager { tag, .. }) => *tag,
                other => panic!("{other:?}"),
            };
            // Short frames overtake long ones.
            frames.sort_by_key(tag);
            let expected = (0..FRAMES).map(|number| frame(1 - node, number));
            assert!(frames.iter().cloned().eq(expected), "{provider}: other contents");
        }
    }
}
