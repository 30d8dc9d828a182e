//! A rank that writes garbage: its objects in the segment of its node, through which its agent
//! takes what it sends to other nodes, and the memory that it shares with its agent.

use super::route::Route;
use network::agent::AgentClient;
use network::agent::messages::port::MessagePort;
use network::flows::table::PortTable;
use network::flows::{ANSWERS, COMMANDS};
use network::transport::records::messages::{Class, Head};
use queues::channel::{Channel, Receiver, Sender};
use queues::express::{ExpressMessage, ExpressQueue};
use queues::id::SourceName;
use queues::one_poll::PollSet;
use queues::window::{CAPACITY, Window};
use rand::Rng;
use rand::rngs::SmallRng;
use shm::arena::Arena;
use shm::event::Event;
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::Arc;

/// Memory of the objects.
const ARENA: Range<u64> = 1 << 20..8 << 20;
/// Port of its queue, its channels and its window.
const PORT: u64 = 9;
/// The rank of the other node.
const OTHER: u32 = 2;
/// Port of the window of that rank.
pub(super) const OTHERS_WINDOW: u64 = 10;

/// Parts of the memory that it shares with its agent: the counts, the submission ring, the slots,
/// and the start of schedules, buffers and rings of messages.
const REGION: [Range<u64>; 4] =
    [0..256, 4096..69_632, 69_632..71_680, 71_372_800..71_372_800 + (600 << 10)];

/// Something that it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Writes garbage into a part of its memory.
    Spoil(usize),
    /// Submits an entry with a valid number and other words that may be valid.
    Submit,
    /// Sends a message with a head that may be invalid.
    Message,
    /// Sends a line that is no command, or one out of range.
    Command,
    /// Sends to a queue and to a channel.
    Send,
}

/// Rank 0, whose node has rank 1, too. Rank 2 is on the other node.
pub(super) struct Garbage {
    random: SmallRng,
    memory: Vec<(Arc<Segment>, Range<u64>)>,
    region: Arc<Segment>,
    messages: MessagePort,
    queue: ExpressQueue,
    values: Sender<u64>,
    commands: Sender<[u64; 8]>,
    event: Event,
    _own: (Window, ExpressQueue, Receiver<u64>, Receiver<[u64; 8]>, Channel<u64>),
    _answers: Channel<[u64; 8]>,
    _client: Arc<AgentClient>,
}

impl Garbage {
    /// Opens the objects. `segment` is that of the node.
    pub(super) fn new(
        client: AgentClient,
        region: &Arc<Segment>,
        segment: &Arc<Segment>,
        random: SmallRng,
    ) -> Garbage {
        let client = Arc::new(client);
        let arena = Arc::new(Arena::new(Arc::clone(segment), ARENA).expect("inside"));
        let none = Offset(0);
        let set = PollSet::create(&arena, 1).expect("memory");
        let queue = ExpressQueue::create(&arena, 1 << 10, Some((&set, 0))).expect("memory");
        let own = ExpressQueue::create(&arena, 1 << 10, None).expect("memory");
        let ranks = vec![(0, none), (1, none), (OTHER, queue.offset())];
        let publish = |set, ranks| PortTable { set, lines: 0, ranks }.publish(&arena);
        let table = publish(set.offset(), ranks.clone()).expect("memory");
        let uses = arena.allocate_zeroed(8, 64).expect("memory");
        client.open_port(PORT, [own.offset(), table, uses]).expect("it is the first");
        let (way, peer) = (Arc::clone(&client), OTHER);
        let route = Route { client: way, arena: Arc::clone(&arena), peer, port: PORT };
        let create = || Channel::<u64>::create(&arena, 1 << 10).expect("memory");
        let (to, from) = (create(), create());
        let create = || Channel::<[u64; 8]>::create(&arena, CAPACITY).expect("memory");
        let (lines, _answers) = (create(), create());
        let window = Window::create(&arena, 1 << 10).expect("memory");
        let table = publish(none, ranks).expect("memory");
        client.open_window(PORT, window.offset(), table).expect("it is the first");
        let mut starts = vec![queue.offset(), own.offset(), set.offset(), window.offset()];
        starts.extend([to.offset(), from.offset(), lines.offset(), _answers.offset()]);
        // The headers, and the first slots.
        let objects = starts.into_iter().map(|at| (Arc::clone(segment), at.0..at.0 + (1 << 10)));
        let memory = REGION.into_iter().map(|range| (Arc::clone(region), range));
        Garbage {
            random,
            memory: memory.chain(objects).collect(),
            region: Arc::clone(region),
            messages: client.open_messages(256 << 10).expect("memory"),
            queue,
            values: route.sender(to, PORT),
            commands: route.sender(lines, OTHERS_WINDOW | COMMANDS),
            event: client.event().expect("a descriptor"),
            _own: (
                window,
                own,
                route.receiver(&from, PORT),
                route.receiver(&_answers, OTHERS_WINDOW | ANSWERS),
                from,
            ),
            _answers,
            _client: client,
        }
    }

    /// Chooses something to do.
    pub(super) fn choose(&mut self) -> Act {
        match self.random.random_range(0..self.memory.len() + 8) {
            0 | 1 => Act::Submit,
            2 | 3 => Act::Message,
            4 | 5 => Act::Command,
            6 | 7 => Act::Send,
            other => Act::Spoil(other - 8),
        }
    }

    /// Does it a few times, and wakes the agent.
    pub(super) fn act(&mut self, act: Act) {
        for _ in 0..self.random.random_range(1..40) {
            match act {
                Act::Spoil(part) => self.spoil(part),
                Act::Submit => self.submit(),
                Act::Message => self.message(),
                Act::Command => self.command(),
                Act::Send => {
                    let source = SourceName::default();
                    let message = ExpressMessage::new(source, 1, self.random.random());
                    let _ =
                        self.queue.sender().to_node_service(self.event.clone()).try_send(&message);
                    let _ = self.values.try_send(self.random.random());
                }
            }
        }
        // An agent that sleeps looks.
        self.event.notify();
    }

    /// A word that may be in use: an offset, a length, a count, or two numbers.
    fn word(&mut self) -> u64 {
        match self.random.random_range(0..6) {
            0 => self.random.random(),
            1 => self.random.random_range(0..5) << 32 | self.random.random_range(0..4_194_304),
            2 => 8 * self.random.random_range(0..100),
            3 => self.random.random_range(0..12),
            4 => 71_372_800 + 64 * self.random.random_range(0..1000),
            _ => [1 << 20, 4 << 20, u64::MAX, u64::MAX - 7, 71_372_800]
                [self.random.random_range(0..5)],
        }
    }

    /// Writes garbage of one of several kinds, or changes what lies there a little.
    fn spoil(&mut self, part: usize) {
        let (segment, Range { start, end }) = self.memory[part].clone();
        let first = self.random.random_range(start / 8..end / 8);
        let most = (end / 8 - first).min([1, 8, 64][self.random.random_range(0..3)]);
        let kind = self.random.random_range(0..4);
        let words = segment.slice_at::<AtomicU64>(Offset(8 * first), most as usize);
        for word in words.expect("inside") {
            let before = word.load(Ordering::Relaxed);
            let value = match kind {
                0 => self.random.random(),
                1 => self.word(),
                2 => before ^ 1 << self.random.random_range(0..64),
                _ => before.wrapping_add(self.random.random_range(0..3)),
            };
            word.store(value, Ordering::Relaxed);
        }
    }

    fn submit(&mut self) {
        let words: [u64; 8] = std::array::from_fn(|_| self.word());
        let kind = self.random.random_range(1..19);
        let word = |at| self.region.at::<AtomicU64>(Offset(at)).expect("inside");
        let published = word(0).load(Ordering::Relaxed);
        let entry = 4096 + 64 * (published % 1024);
        // Not its own exit: it goes on.
        let kind = if kind == 4 { 1 } else { kind };
        for (at, value) in
            (entry..).step_by(8).zip(std::iter::once(kind).chain(words[1..].to_vec()))
        {
            word(at).store(value, Ordering::Relaxed);
        }
        word(0).store(published.wrapping_add(1), Ordering::Release);
    }

    fn message(&mut self) {
        let is_exit = self.random.random_range(0..100) == 0;
        let class = if is_exit { Class::Exit } else { Class::Message };
        let bytes = self.random.random_range(0..100);
        // Mostly a rank of the other node.
        let peer = if self.random.random_range(0..50) == 0 { self.random.random() } else { OTHER };
        let words = std::array::from_fn(|_| self.word());
        self.messages.put(Head { peer, class, bytes, words }, &vec![7; bytes]);
        self.messages.publish();
    }

    fn command(&mut self) {
        let mut line: [u64; 8] = std::array::from_fn(|_| self.word());
        // A kind of command and a number of bytes that may fit.
        let (kind, bytes) = (self.random.random_range(0..12), self.random.random_range(0..64));
        line[3] = if self.random.random_range(0..20) == 0 { line[3] } else { kind << 32 | bytes };
        let _ = self.commands.try_send(line);
    }
}
