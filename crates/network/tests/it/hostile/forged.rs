//! A node that sends frames that no agent sends, and damaged ones.

use super::proper::{COMMUNICATOR, Proper};
use super::{Node, exchange, setting, until};
use crate::failures::{barrier_of, end};
use crate::frames::{flow_records, records};
use crate::jobs::{deadline, register, world};
use interpreter::{Handle, Packet};
use network::backend::{Backend, CommunicatorContext};
use network::error::{Error, RankExit};
use network::node_map::NodeMap;
use network::run_counts::StartedRuns;
use network::transport::frame::{Frame, Route};
use network::transport::payloads::NoPayloads;
use network::transport::{Transport, memory};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

testing::tests![
    forged_frames_of_a_node_harm_no_other_node,
    a_contribution_to_no_join_fails_its_run,
];

/// Number of frames of a fast run.
const FRAMES: u64 = 100_000;
/// Frames between two rounds of the ranks that keep the rules.
const AT_ONCE: u64 = 500;
/// Communicator of all ranks, in which the node may send.
const OF_ALL: u32 = 6;

/// Makes frames.
struct Forger {
    random: SmallRng,
    /// Number of the first run of this round.
    run: u64,
}

impl Forger {
    /// A number that is often one in use.
    fn number(&mut self) -> u32 {
        if self.random.random_range(0..4) > 0 {
            self.random.random_range(0..8)
        } else {
            self.random.random()
        }
    }

    fn route(&mut self) -> Route {
        Route {
            destination: self.number(),
            communicator: [OF_ALL, COMMUNICATOR, self.number()][self.random.random_range(0..3)],
            source: self.number(),
            sequence: self.run + u64::from(self.number()),
            signature: if self.random.random() { 0 } else { self.number() & 0xff_ffff },
        }
    }

    fn handle(&mut self) -> Handle {
        Handle(self.number() % 64)
    }

    fn bytes(&mut self) -> Vec<u8> {
        vec![3; self.random.random_range(0..200)]
    }

    fn packet(&mut self) -> Packet {
        match self.random.random_range(0..4) {
            0 => {
                let (tag, ordinal, payload) = (self.number(), self.number(), self.bytes());
                Packet::Eager { tag, ordinal, payload }
            }
            1 => {
                let (tag, ordinal, bytes) = (self.number(), self.number(), self.number().into());
                Packet::RequestToSend { tag, ordinal, bytes, send: self.handle() }
            }
            2 => Packet::ClearToSend { send: self.handle(), receive: self.handle() },
            _ => Packet::Data { receive: self.handle(), payload: self.bytes() },
        }
    }

    /// A frame that an agent may decode.
    fn frame(&mut self) -> Frame {
        let [first, last] = [self.number(), self.number()];
        let started = vec![StartedRuns { first, last, count: self.number().into() }];
        let how = RankExit::Failed("forged".into());
        let words = self.random.random_range(0..40);
        match self.random.random_range(0..19) {
            0..4 => Frame::Packet(self.route(), self.packet()),
            4 => {
                let (route, ordinal) = (self.route(), self.number());
                Frame::Join { route, ordinal, contribution: self.bytes() }
            }
            5 => Frame::Fail(self.route(), Error::Operation("forged".into())),
            // Rank 1 is that of the node, and goes on: so do its runs.
            6 => Frame::RankExited { rank: [0, 2, 3, 9][words % 4], how, started },
            7 => Frame::RankLeaves { rank: self.number(), started },
            8 | 9 => {
                let heads = [self.number(), self.number()].map(|peer| {
                    (
                        peer,
                        [self.random.random(), self.number().into(), 0],
                        self.random.random_range(0..99),
                    )
                });
                Frame::Messages { source: self.number(), records: records(&heads) }
            }
            10..14 => {
                let kind = self.random.random_range(0..4);
                let ranks = [self.number(), self.number()];
                let flows = [(kind, ranks, self.number().into(), words)];
                Frame::Flows { records: flow_records(&flows) }
            }
            14 => Frame::Credit(self.random.random()),
            15 => Frame::NodeEnded { node: self.number(), failure: Some("forged".into()) },
            16 => Frame::Shutdown,
            17 => Frame::Waits(self.route()),
            _ => Frame::ShutdownAck,
        }
    }

    /// A frame, some bytes of which are wrong; `None` if it is refused as it arrives.
    fn damaged(&mut self) -> Option<Frame> {
        let (mut header, mut payload) = self.frame().encode();
        for _ in 0..self.random.random_range(1..4) {
            let at = self.random.random_range(0..header.len() + payload.len());
            let byte = header.iter_mut().chain(&mut payload).nth(at).expect("inside");
            *byte ^= 1 << self.random.random_range(0..8);
        }
        if self.random.random_range(0..4) == 0 {
            payload.truncate(self.random.random_range(0..=payload.len()));
        }
        Frame::decode(&header, payload).ok()
    }
}

/// Node 1 sends them to nodes 0 and 2.
fn forged_frames_of_a_node_harm_no_other_node() {
    let nodes = NodeMap::new(["a", "b", "c"]);
    let transports: [memory::Memory; 3] =
        memory::connect(3).expect("descriptors").try_into().expect("three nodes");
    let [first, mut hostile, second] = transports;
    let [first, second] = [first, second].map(|transport| Node::start(&nodes, transport));
    let clients = [first.join(0, 0).0, second.join(2, 2).0];
    // Runs with the rank of the node: what they end with is up to it.
    let barriers = [0, 2].map(|rank| {
        let all = CommunicatorContext { number: OF_ALL, members: [0, 1, 2].into(), rank };
        register(&clients[rank as usize / 2], &all, &barrier_of(rank, 3))
    });
    let mut runs = Vec::new();
    let mut proper = Proper::pair(clients, [0, 2], [&first.segment, &second.segment]);
    let mut forger = Forger { random: SmallRng::seed_from_u64(11), run: 0 };
    let (mut refused, mut sent) = (0, 0);
    for run in 0..setting("TRADEWIND_FORGED_FRAMES", FRAMES).div_ceil(AT_ONCE) {
        forger.run = run;
        for (one, barrier) in proper.iter().zip(barriers) {
            runs.push((
                Arc::clone(one.client()),
                one.client().start(barrier, run, &[]).expect("memory"),
            ));
        }
        for _ in 0..AT_ONCE {
            let frame = match forger.random.random() {
                true => Some(forger.frame()),
                false => forger.damaged(),
            };
            match frame {
                Some(frame) => hostile.send(2 * forger.random.random_range(0..2), frame),
                None => refused += 1,
            }
            sent += 1;
        }
        hostile.flush(&mut NoPayloads);
        exchange(&mut proper);
        hostile.poll(&mut NoPayloads, &mut Vec::new()).expect("it works");
    }
    assert!(refused > sent / 20, "{refused} of {sent} were no frames");
    for node in [&first, &second] {
        until("an agent does not sleep beside forged frames", || node.sleep.is_long());
        assert!(!node.agent.has_ended());
        assert!(node.agent.refused() > sent / 20, "{} were refused", node.agent.refused());
    }
    // The end of the node ends what it has left.
    drop(hostile);
    for (client, run) in runs {
        assert!(client.wait(run, deadline()).expect("the agent lives"), "a run does not end");
    }
    exchange(&mut proper);
}

/// Rank 1 is on another node, and contributes to a join that the run of rank 0 does not have.
fn a_contribution_to_no_join_fails_its_run() {
    let nodes = NodeMap::new(["a", "b"]);
    let transports: [memory::Memory; 2] =
        memory::connect(2).expect("descriptors").try_into().expect("two nodes");
    let [first, mut hostile] = transports;
    let first = Node::start(&nodes, first);
    let client = first.join(0, 0).0;
    let barrier = register(&client, &world(OF_ALL, 0, 2), &barrier_of(0, 2));
    let run = client.start(barrier, 0, &[]).expect("memory");
    let route = Route { communicator: OF_ALL, source: 1, ..Route::default() };
    hostile.send(0, Frame::Join { route, ordinal: 0, contribution: vec![7; 100] });
    hostile.flush(&mut NoPayloads);
    let failure = end(&client, run).expect_err("it has no join");
    assert!(failure.to_string().contains("rank 1 contributes to join 0"), "{failure}");
}
