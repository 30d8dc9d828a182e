//! Long messages that their receivers read from the memory of the senders.

use crate::emulated_adapters::emulation;
use crate::fabric::{fabrics, fabrics_through};
use crate::jobs::{deadline, nodes, register, world};
use crate::long_messages;
use crate::own_regions::{message, rank_at};
use interpreter::{Handle, Packet};
use network::agent::shared_region::SharedRegion;
use network::agent::{Agent, Limits};
use network::backend::Backend;
use network::error::Error;
use network::transport::fabric::Fabric;
use network::transport::frame::{Frame, Route};
use network::transport::payloads::{NoPayloads, PayloadLocation, Payloads, SegmentRange};
use network::transport::{Arrival, Transport, memory};
use rustix::io::Errno;
use shm::segment::{Backing, Offset, Segment};
use shm::word_copy;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testing::fabric::{
    EMULATED, FAILING, LIMITED, emulated_reads, emulated_registrations, libraries,
};

testing::tests![
    needs(FabricHeaders):
    messages_are_read_before_the_frames_behind_them,
    messages_without_a_receive_are_sent,
    a_message_that_cannot_be_read_is_requested_at_once,
    registrations_stay_when_a_longer_one_is_refused,
    registrations_of_ranks_that_have_exited_end,
    own_offers_do_not_count_as_answers,
    the_copy_of_a_run_that_has_ended_is_sent,
    memory_that_is_read_is_in_use,
    a_node_that_dies_while_it_is_read_is_lost,
    a_node_that_offers_to_one_without_reads_is_lost,
];
testing::tests![needs(Libfabric): a_node_that_dies_while_it_is_read_over_sockets_is_lost];
testing::tests![a_rank_gets_memory_back_when_it_is_used_no_more];

const KEY: [u8; 16] = [4; 16];
/// Several parts of a read.
const BYTES: usize = (5 << 20) + 3;
/// Place of the payload in its segment.
const AT: Offset = Offset(777);

/// A payload in a segment, as that of a run.
struct Memory {
    segment: Arc<Segment>,
    length: u64,
    /// False if no receive is posted.
    admits: bool,
    admitted: usize,
    sent: Vec<PayloadLocation>,
}

fn location() -> PayloadLocation {
    PayloadLocation { rank: 1, communicator: 2, sequence: 3, operation: 4 }
}

fn contents(seed: u8) -> Vec<u8> {
    long_messages::contents(seed.into(), BYTES)
}

impl Memory {
    fn new(seed: u8, admits: bool) -> Memory {
        let segment = Segment::create(AT.0 + BYTES as u64, Backing::Memory).expect("memory");
        let length = BYTES as u64;
        let segment = Arc::new(segment);
        let memory = Memory { segment, length, admits, admitted: 0, sent: Vec::new() };
        memory.fill(seed);
        memory
    }

    fn fill(&self, seed: u8) {
        word_copy::store(&self.segment, AT, &contents(seed)).expect("inside");
    }

    fn has(&self, seed: u8) -> bool {
        let mut bytes = vec![0; BYTES];
        word_copy::load(&self.segment, AT, &mut bytes).expect("inside");
        bytes == contents(seed)
    }
}

impl Payloads for Memory {
    fn load(&self, _: PayloadLocation, range: Range<usize>, into: &mut [u8]) -> Result<(), Errno> {
        let at = Offset(AT.0 + range.start as u64);
        word_copy::load(&self.segment, at, into).map_err(|_| Errno::FAULT)
    }

    fn has_runs(&self) -> bool {
        true
    }

    fn sent(&mut self, location: PayloadLocation) {
        self.sent.push(location);
    }

    fn unreadable(&mut self, location: PayloadLocation) {
        panic!("{location:?} can be read");
    }

    fn admit(&mut self, _: u32, _: Route, _: &Packet, _: u64) -> Option<PayloadLocation> {
        self.admitted += usize::from(self.admits);
        self.admits.then(location)
    }

    fn range(&mut self, asked: PayloadLocation) -> Option<SegmentRange> {
        assert_eq!(asked, location());
        Some(SegmentRange { segment: Arc::clone(&self.segment), at: AT, bytes: self.length })
    }

    fn store(&mut self, _: PayloadLocation, at: usize, bytes: &[u8]) -> bool {
        word_copy::store(&self.segment, Offset(AT.0 + at as u64), bytes).expect("inside");
        true
    }
}

/// Two nodes through a provider.
fn pair(path: &Path, provider: &str) -> [Fabric; 2] {
    fabrics(2, path, provider, &[KEY]).try_into().expect("there are two")
}

/// Adds the long message and a frame that must stay behind it to the queue of the second node.
fn send_long(first: &mut Fabric) {
    let packet = Packet::Data { receive: Handle(4), payload: Vec::new() };
    first.send_in_place(1, Route::default(), packet, location(), BYTES as u64);
    first.send(1, Frame::Shutdown);
}

fn wait(node: &mut Fabric, payloads: &mut dyn Payloads) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    node.wait(Some(Duration::ZERO), payloads, &mut arrivals).expect("it works");
    arrivals
}

/// Lets both nodes work until the second one has so many arrivals.
fn arrivals(
    [first, second]: &mut [Fabric; 2],
    [source, target]: [&mut Memory; 2],
    count: usize,
) -> Vec<Arrival> {
    let mut arrived = Vec::new();
    while arrived.len() < count {
        assert_eq!(wait(first, source), []);
        arrived.extend(wait(second, target));
    }
    // The answers.
    while first.queued(1) > 0 || second.queued(0) > 0 {
        assert_eq!(wait(first, source), []);
        assert_eq!(wait(second, target), []);
    }
    arrived
}

fn in_place() -> Arrival {
    Arrival::InPlace { node: 0, location: location(), eager: 0 }
}

fn behind() -> Arrival {
    Arrival::Frame { node: 0, frame: Frame::Shutdown }
}

fn whole(seed: u8) -> Arrival {
    let packet = Packet::Data { receive: Handle(4), payload: contents(seed) };
    Arrival::Frame { node: 0, frame: Frame::Packet(Route::default(), packet) }
}

fn messages_are_read_before_the_frames_behind_them() {
    let path = emulation();
    for (provider, reads) in [
        (EMULATED[0], true),
        (EMULATED[1], true),
        (EMULATED[2], true),
        (EMULATED[3], false),
        ("emulated-verbs+messages", false),
    ] {
        let mut pair = pair(&path, provider);
        let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
        let before = emulated_reads(&path);
        // The second message finds the memory registered.
        for seed in [1, 5] {
            source.fill(seed);
            send_long(&mut pair[0]);
            let arrived = arrivals(&mut pair, [&mut source, &mut target], 2);
            assert_eq!(arrived, [in_place(), behind()], "{provider}");
            assert!(target.has(seed), "{provider}: other bytes");
        }
        assert_eq!(source.sent, [location(); 2], "{provider}");
        let read = emulated_reads(&path) - before;
        assert_eq!(read, if reads { 2 * BYTES as u64 } else { 0 }, "{provider}");
    }
}

fn messages_without_a_receive_are_sent() {
    let path = emulation();
    for provider in &EMULATED[..3] {
        let mut pair = pair(&path, provider);
        let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, false));
        send_long(&mut pair[0]);
        let arrived = arrivals(&mut pair, [&mut source, &mut target], 2);
        assert!(arrived == [whole(1), behind()], "{provider}: something else arrives");
        assert_eq!(source.sent, [location()], "{provider}");
        assert!(target.has(2), "{provider}");
    }
}

fn a_message_that_cannot_be_read_is_requested_at_once() {
    let path = emulation();
    let mut pair = pair(&path, FAILING);
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
    send_long(&mut pair[0]);
    let mut arrived = Vec::new();
    while target.admitted == 0 {
        assert_eq!(wait(&mut pair[0], &mut source), []);
        pair[1].poll(&mut target, &mut arrived).expect("it works");
    }
    // The call in which the offer has arrived answers it: no event follows.
    assert!(!pair[1].uses_run(location()), "it waits for an event");
    assert_eq!(arrived, []);
    let arrived = arrivals(&mut pair, [&mut source, &mut target], 2);
    assert_eq!(arrived, [in_place(), behind()]);
    assert!(target.has(1), "other bytes");
}

/// Sends the first bytes of the long message, and lets it arrive.
fn send_part(pair: &mut [Fabric; 2], [source, target]: [&mut Memory; 2], length: u64) {
    (source.length, target.length) = (length, length);
    let packet = Packet::Data { receive: Handle(4), payload: Vec::new() };
    pair[0].send_in_place(1, Route::default(), packet, location(), length);
    assert_eq!(arrivals(pair, [source, target], 1), [in_place()], "{length} bytes");
}

fn registrations_stay_when_a_longer_one_is_refused() {
    let path = emulation();
    let mut pair = pair(&path, LIMITED);
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
    let short = [400_000, 500_000, 600_000];
    let mut send = |length| send_part(&mut pair, [&mut source, &mut target], length);
    let before = emulated_registrations(&path);
    short.into_iter().for_each(&mut send);
    assert_eq!(emulated_registrations(&path), before + 6, "one at each end");
    // More than may be registered: it is sent.
    let read = emulated_reads(&path);
    send(BYTES as u64);
    assert_eq!(emulated_reads(&path), read, "it is too long");
    // That has ended the registrations, but later ones of this length end none.
    short.into_iter().for_each(&mut send);
    let registered = emulated_registrations(&path);
    send(BYTES as u64);
    short.into_iter().for_each(&mut send);
    assert_eq!(emulated_registrations(&path), registered, "they have stayed");
    // A length that may be registered costs the oldest registrations only.
    send(2_000_000);
    send(600_000);
    assert_eq!(emulated_registrations(&path), registered + 2, "the newest has stayed");
}

fn registrations_of_ranks_that_have_exited_end() {
    let path = emulation();
    let mut pair = pair(&path, EMULATED[0]);
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
    send_long(&mut pair[0]);
    arrivals(&mut pair, [&mut source, &mut target], 2);
    // Both ends keep the memory, and no message follows.
    let regions = [&source, &target].map(|memory| Arc::downgrade(&memory.segment));
    drop((source, target));
    assert!(regions.iter().all(|region| region.strong_count() > 0), "it stays registered");
    while regions.iter().any(|region| region.strong_count() > 0) {
        pair.iter_mut().for_each(|node| assert_eq!(wait(node, &mut NoPayloads), []));
    }
}

fn own_offers_do_not_count_as_answers() {
    let path = emulation();
    let [mut first, mut second] = pair(&path, EMULATED[0]);
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, false));
    source.length = 100;
    let offer = |node: &mut Fabric, length| {
        let packet = Packet::Data { receive: Handle(4), payload: Vec::new() };
        let other = 1 - node.node();
        node.send_in_place(other, Route::default(), packet, location(), length);
    };
    // More than the answers that a node may cause.
    (0..=1 << 16).for_each(|_| offer(&mut first, 100));
    first.flush(&mut source);
    target.length = 200;
    offer(&mut second, 200);
    let mut arrived = Vec::new();
    while arrived.is_empty() {
        let lost = wait(&mut second, &mut target);
        assert!(!lost.iter().any(|one| matches!(one, Arrival::NodeLost { .. })), "{lost:?}");
        arrived = wait(&mut first, &mut source);
    }
    assert!(matches!(arrived[..], [Arrival::Frame { node: 1, .. }]), "{arrived:?}");
}

/// A run that has failed is over for its rank when its memory is used no more. What the other rank
/// then gets is the copy.
fn the_copy_of_a_run_that_has_ended_is_sent() {
    let path = emulation();
    for (provider, is_offered) in [(EMULATED[0], true), (EMULATED[1], false)] {
        let mut pair = pair(&path, provider);
        let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, false));
        send_long(&mut pair[0]);
        if is_offered {
            pair[0].flush(&mut source);
        }
        assert_eq!(pair[0].uses_run(location()), is_offered);
        pair[0].detach(location(), Some(contents(1)));
        source.fill(9);
        let arrived = arrivals(&mut pair, [&mut source, &mut target], 2);
        assert!(arrived == [whole(1), behind()], "{provider}: something else arrives");
        assert!(!pair[0].uses_run(location()), "{provider}");
    }
}

fn memory_that_is_read_is_in_use() {
    let path = emulation();
    for provider in &EMULATED[..3] {
        let mut pair = pair(&path, provider);
        let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
        send_long(&mut pair[0]);
        pair[0].flush(&mut source);
        pair[0].detach(location(), Some(contents(1)));
        while !pair[1].uses_run(location()) {
            wait(&mut pair[0], &mut source);
            assert_eq!(wait(&mut pair[1], &mut target), []);
        }
        assert!(pair[0].uses_run(location()), "{provider}: the receiver reads it");
        let arrived = arrivals(&mut pair, [&mut source, &mut target], 2);
        assert_eq!(arrived, [in_place(), behind()], "{provider}");
        assert!(target.has(1), "{provider}: other bytes");
        assert!(pair.iter().all(|node| !node.uses_run(location())), "{provider}");
    }
}

/// The sender ends when its memory is being read. What was read before is whole or not delivered.
fn dies_while_it_is_read(path: &Path, provider: &str) {
    let [mut first, mut second] = pair(path, provider);
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
    send_long(&mut first);
    while !second.uses_run(location()) {
        assert_eq!(wait(&mut first, &mut source), []);
        assert_eq!(wait(&mut second, &mut target), []);
    }
    drop(first);
    let mut arrived = Vec::new();
    let is_loss = |arrival: &Arrival| matches!(arrival, Arrival::NodeLost { node: 0, .. });
    while !arrived.iter().any(is_loss) || second.uses_run(location()) {
        arrived.extend(wait(&mut second, &mut target));
    }
    assert_eq!(arrived.iter().filter(|arrival| is_loss(arrival)).count(), 1, "{arrived:?}");
    arrived.retain(|arrival| !is_loss(arrival));
    assert!(arrived.is_empty() || arrived == [in_place()] && target.has(1), "{arrived:?}");
}

fn a_node_that_dies_while_it_is_read_is_lost() {
    let path = emulation();
    for provider in &EMULATED[..3] {
        dies_while_it_is_read(&path, provider);
    }
}

fn a_node_that_offers_to_one_without_reads_is_lost() {
    let providers = [EMULATED[0], "emulated-verbs+messages"];
    let unanswered = Duration::from_secs(600);
    let both = fabrics_through(&emulation(), &providers, &[KEY], unanswered);
    let [mut first, mut second]: [Fabric; 2] = both.try_into().expect("there are two");
    let (mut source, mut target) = (Memory::new(1, false), Memory::new(2, true));
    send_long(&mut first);
    let mut arrived = Vec::new();
    while arrived.is_empty() {
        wait(&mut first, &mut source);
        arrived = wait(&mut second, &mut target);
    }
    assert!(
        matches!(&arrived[..], [Arrival::NodeLost { node: 0, why }] if why.contains("may not")),
        "{arrived:?}"
    );
    assert!(second.refused() > 0 && target.has(2));
}

fn a_node_that_dies_while_it_is_read_over_sockets_is_lost() {
    for path in libraries() {
        for provider in ["tcp+read", "tcp;ofi_rxm+read"] {
            dies_while_it_is_read(&path, provider);
        }
    }
}

/// Connections of which an adapter uses the memory of all runs, until it is set otherwise.
#[derive(Debug)]
struct UsesMemory<T> {
    inner: T,
    uses: Arc<AtomicBool>,
}

impl<T: Transport> Transport for UsesMemory<T> {
    crate::forwarding::forward_but_waits!(inner);

    fn uses_run(&self, _: PayloadLocation) -> bool {
        self.uses.load(Ordering::SeqCst)
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        self.inner.wait(timeout, payloads, arrivals)
    }
}

fn a_rank_gets_memory_back_when_it_is_used_no_more() {
    const BYTES: u64 = 4 << 20;
    let uses = Arc::new(AtomicBool::new(true));
    let mut all = memory::connect(2).expect("descriptors");
    let (mut second, inner) = (all.remove(1), all.remove(0));
    let transport = UsesMemory { inner, uses: Arc::clone(&uses) };
    let limits = Limits::new(16 << 10).with_in_place(16 << 10);
    let agent = Agent::start(nodes(2, 1), Box::new(transport), limits, || {}).expect("a thread");
    let region = SharedRegion::create().expect("memory");
    let (client, notifier) = rank_at(0, region.segment());
    agent.open(0, region, notifier);
    let [sends, _] = message(BYTES);
    let sending = register(&client, &world(0, 0, 2), &sends);
    let run = client.start(sending, 0, &[&vec![7; BYTES as usize]]).expect("memory");
    let mut arrived = Vec::new();
    while arrived.is_empty() {
        second.wait(None, &mut NoPayloads, &mut arrived).expect("it works");
    }
    let Some(Arrival::Frame { frame: Frame::Packet(route, _), .. }) = arrived.first() else {
        panic!("{arrived:?}")
    };
    let answer = Route { destination: 0, source: 1, ..*route };
    let failure = Error::Operation("enough".into());
    let mut send = |frame: Frame| {
        second.send(0, frame);
        second.flush(&mut NoPayloads);
    };
    send(Frame::Fail(answer, failure.clone()));
    while !client.waiting_for(run).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(client.wait(run, Some(Instant::now())), Ok(false), "its memory is in use");
    uses.store(false, Ordering::SeqCst);
    send(Frame::Credit(1));
    assert_eq!(client.wait(run, deadline()), Ok(true));
    assert_eq!(client.fetch(run, &mut [&mut []]), Err(failure));
}
