//! A window of another node. A thread is both node services: it executes the commands at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::child::memory;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType};
use queues::channel::{Channel, OtherNode, Receiver, Sender};
use queues::error::RecvError;
use queues::internode::{Sink, Source};
use queues::remote_waits::RemoteWaits;
use queues::window::{
    CAPACITY, Condition, Fetch, LINE_BYTES, RemoteWindow, SLOTS, ServedWindow, Window, WindowEnds,
    WindowError, WindowLink, WindowRoute,
};
use shm::event::Event;
use shm::liveness::{PeerExit, RankLiveness};
use shm::segment::Offset;

testing::tests![
    a_wait_whose_deadline_has_passed_tests_its_condition,
    zero_timeouts_report_that_the_owner_has_failed,
    long_commands_tear_no_aligned_element,
    answers_that_no_command_expects_end_the_link,
    commands_without_answers_are_executed_in_their_order,
    threads_that_share_a_handle_flush_what_they_have_started,
    a_wait_for_space_ends_with_its_owner,
    a_dropped_handle_has_started_its_commands,
];

type Line = [u64; 8];

/// The owner, which may have failed.
#[derive(Debug, Default)]
struct Owner(AtomicBool);

impl RankLiveness for Owner {
    fn exited(&self) -> Option<PeerExit> {
        self.0.load(Ordering::Acquire).then_some(PeerExit::Failed(7))
    }
}

#[derive(Debug)]
struct NoWaits;

impl RemoteWaits for NoWaits {
    fn begin(&self) {}

    fn end(&self) {}

    fn set_polling(&self, _: bool) {}

    fn shares_core(&self) -> bool {
        false
    }

    fn mark(&self, _: Offset) {}
}

/// Ends that were opened before.
#[derive(Debug)]
struct Opened(Mutex<Option<WindowEnds>>);

impl WindowRoute for Opened {
    fn open(&self) -> Result<WindowEnds, WindowError> {
        self.0.lock().expect("no panic").take().ok_or(WindowError::NodeServiceEnded)
    }
}

/// The ends of the node service.
struct NodeService {
    commands: Receiver<Line>,
    answers: Sender<Line>,
    link: WindowLink,
    owner: Arc<Owner>,
}

/// A window with its handle on another node.
struct Node {
    window: Window,
    there: RemoteWindow,
    service: NodeService,
    owner: Arc<Owner>,
}

impl Node {
    fn new(bytes: u64) -> Node {
        let (segment, arena) = memory(4 << 20);
        let window = Window::create(&arena, bytes).expect("memory");
        let served = ServedWindow::connect(&segment, window.offset()).expect("a window");
        let channel = || Channel::<Line>::create(&arena, CAPACITY).expect("memory");
        let (there, here) = (channel(), channel());
        let owner = Arc::new(Owner::default());
        let other = OtherNode {
            service: Event::new().expect("a descriptor"),
            waits: Arc::new(NoWaits),
            peer: Arc::clone(&owner) as Arc<dyn RankLiveness>,
        };
        let service = NodeService {
            commands: Receiver::connect(&segment, there.offset()).expect("the first"),
            answers: Sender::connect(&segment, here.offset()).expect("the first"),
            link: WindowLink::new(&Arc::new(Mutex::new(served))),
            owner: Arc::clone(&owner),
        };
        let ends = WindowEnds {
            answers: here.receiver_from(other.clone()).expect("the first"),
            commands: there.sender_to(other).expect("the first"),
            memory: here,
        };
        let route = Box::new(Opened(Mutex::new(Some(ends))));
        let there = RemoteWindow::on_other_node((window.offset(), bytes, 1), route);
        Node { window, there, service, owner }
    }
}

impl NodeService {
    /// Executes the commands until the rank closes its end, or the owner has failed. Returns their
    /// lines.
    fn run(mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        while self.owner.exited().is_none() {
            match self.commands.recv_timeout(Duration::from_millis(1)) {
                Ok(line) => {
                    assert_eq!(self.link.put(bytemuck::bytes_of(&line)), Ok(LINE_BYTES));
                    lines.push(line);
                }
                Err(RecvError::Timeout) => {}
                Err(_) => break,
            }
            let mut answers = Vec::new();
            self.link.take(usize::MAX, &mut answers).expect("valid commands");
            for answer in answers.chunks(LINE_BYTES) {
                let line: Line = bytemuck::pod_read_unaligned(answer);
                self.answers.send(line).expect("space");
            }
        }
        lines
    }
}

const TRUE: Condition = Condition { at: 0, at_least: 1 };

fn a_wait_whose_deadline_has_passed_tests_its_condition() {
    let Node { window, there, service, .. } = Node::new(64);
    std::thread::scope(|scope| {
        scope.spawn(|| service.run());
        // More than may be under way at once.
        for _ in 0..300 {
            let request = there.fetch_when(TRUE, 8, [0; 8]).expect("inside");
            let fetch = request.wait_timeout(Duration::ZERO).expect("it is open");
            assert!(matches!(fetch, Fetch::Pending(_)));
        }
        window.local().put_value(8, 5_u64).expect("inside");
        window.local().put_value(0, 1_u64).expect("inside");
        let request = there.fetch_when(TRUE, 8, [0; 8]).expect("inside");
        let fetch = request.wait_timeout(Duration::ZERO).expect("it is open");
        let Fetch::Complete(found) = fetch else { panic!("the condition is true") };
        assert_eq!(found, 5_u64.to_le_bytes());
        drop(there);
    });
}

fn zero_timeouts_report_that_the_owner_has_failed() {
    let Node { there, service, owner, window: _window } = Node::new(64);
    let poll = || {
        let request = there.fetch_when(TRUE, 8, [0; 8]).expect("inside");
        request.wait_timeout(Duration::ZERO).map(|fetch| matches!(fetch, Fetch::Complete(_)))
    };
    let found = std::thread::scope(|scope| {
        scope.spawn(|| service.run());
        // More than may be under way at once.
        assert!((0..300).all(|_| poll() == Ok(false)));
        owner.0.store(true, Ordering::Release);
        (0..10_000).map(|_| poll()).find(|found| *found != Ok(false))
    });
    assert_eq!(found, Some(Err(WindowError::RankExited { rank: 7 })));
}

fn long_commands_tear_no_aligned_element() {
    const MOST: u64 = 8 << 10;
    for (at, length) in [(0, 0), (3, 5), (8, 3 * MOST), (5, MOST), (7, 3 * MOST), (1, MOST - 1)] {
        let Node { window, there, service, .. } = Node::new(4 * MOST);
        let bytes: Vec<u8> = (0..length).map(|byte| byte as u8 ^ (byte >> 8) as u8).collect();
        let lines = std::thread::scope(|scope| {
            let service = scope.spawn(|| service.run());
            there.put(at, &bytes).expect("inside");
            let mut found = vec![0; bytes.len()];
            there.get(at, &mut found).expect("inside");
            assert!(found == bytes, "{length} bytes at {at}");
            drop(there);
            service.join().expect("no panic")
        });
        let mut found = vec![0; bytes.len()];
        window.local().get(at, &mut found).expect("inside");
        assert!(found == bytes, "{length} bytes at {at}");
        // Start and end of the pieces of either command.
        let mut pieces: [Vec<(u64, u64)>; 2] = Default::default();
        let mut rest = &lines[..];
        while let Some(([_, at, length, bytes, ..], _)) = rest.split_first() {
            let (bytes, kind) = (*bytes as u32 as usize, (*bytes >> 32) as usize);
            pieces[kind].push((*at, at + if kind == 0 { bytes as u64 } else { *length }));
            rest = &rest[1 + if bytes > 32 { bytes.div_ceil(LINE_BYTES) } else { 0 }..];
        }
        for pieces in pieces {
            assert_eq!(pieces.first().map(|(start, _)| *start), (length > 0).then_some(at));
            assert_eq!(pieces.last().map(|(_, end)| *end), (length > 0).then_some(at + length));
            for pair in pieces.windows(2) {
                assert_eq!(pair[0].1, pair[1].0);
                assert_eq!(pair[0].1 % 8, 0, "{length} bytes at {at} in pieces to {}", pair[0].1);
            }
        }
    }
}

fn answers_that_no_command_expects_end_the_link() {
    // Number and outcome: done, or not true.
    let forged = |number, outcome: u64| -> Line { [number, 0, 0, outcome << 32, 0, 0, 0, 0] };
    type Use = fn(&RemoteWindow) -> Result<(), WindowError>;
    let put: Use = |there| there.put_value(0, 1_u64);
    let flush: Use = |there| there.iput_value(0, 1_u64).and_then(|()| there.flush());
    let load: Use = |there| there.get_value::<u64>(0).map(drop);
    let wait: Use =
        |there| there.fetch_when(TRUE, 0, []).and_then(|request| request.wait()).map(|_| ());
    let corrupt = |node: &Node| Err(WindowError::Corrupt { window: node.window.offset() });
    let expected: [(Use, Line, bool); 8] = [
        (put, forged(0, 0), true),
        (flush, forged(0, 0), true),
        (wait, forged(0, 0), true),
        (put, forged(0, 1), false),
        (load, forged(0, 1), false),
        (wait, forged(0, 1), false),
        (put, forged(1, 0), false),
        (flush, forged(u64::MAX, 0), false),
    ];
    for (command, answer, is_valid) in expected {
        let mut node = Node::new(64);
        node.service.answers.send(answer).expect("space");
        let found = command(&node.there);
        if is_valid {
            assert_eq!(found, Ok(()));
            node.service.answers.send(answer).expect("space");
            assert_eq!(put(&node.there), corrupt(&node), "it was answered before");
        } else {
            assert_eq!(found, corrupt(&node));
            assert_eq!(put(&node.there), corrupt(&node), "and so are later ones");
        }
    }
}

/// Number of all commands without answers.
const UNANSWERED: u64 = u64::MAX;

fn commands_without_answers_are_executed_in_their_order() {
    const MOST: u64 = 8 << 10;
    let Node { window, there, service, .. } = Node::new(4 * MOST);
    let lines = std::thread::scope(|scope| {
        let service = scope.spawn(|| service.run());
        assert_eq!(there.flush(), Ok(()), "nothing was started");
        // Several times the capacity of the ring, of any length, each over the one before.
        for (number, length) in (0..3 * SLOTS).map(|number| (number as u8, number % 40)) {
            there.iput(number as u64 % 3, &vec![number; length as usize]).expect("inside");
        }
        there.iput(0, &[]).expect("inside");
        there.iput(7, &vec![5; 3 * MOST as usize]).expect("inside");
        there.iput_value(8, 9_u32).expect("inside");
        there.iaccumulate_value(Arithmetic::Multiply, 8, 3_u32).expect("inside");
        // A blocking command finds the effects of those started before.
        assert_eq!(there.get_value::<u32>(8), Ok(27));
        there.iput_signal(100, b"signal", 16, 4).expect("inside");
        there.iaccumulate(Arithmetic::Add, DataType::U8, 100, &[1; 6]).expect("inside");
        assert_eq!(there.flush(), Ok(()));
        let mut found = [0; 6];
        window.local().get(100, &mut found).expect("inside");
        assert_eq!(&found, b"tjhobm");
        let signal = u64::from_le_bytes([5; 8]) + 4;
        assert_eq!(window.local().get_value::<u64>(16), Ok(signal));
        let answered = Err(WindowError::Arithmetic {
            window: window.offset(),
            error: ArithmeticError::DivisionByZero { element: 1 },
        });
        let divided = there.iaccumulate(Arithmetic::Divide, DataType::U8, 100, &[2, 0, 2]);
        assert_eq!(divided, answered);
        let outside = there.iput_signal(4 * MOST - 2, b"abc", 24, 1);
        assert!(matches!(outside, Err(WindowError::OutOfRange { .. })));
        let misaligned = there.iput_signal(0, b"abc", 20, 1);
        assert!(matches!(misaligned, Err(WindowError::Misaligned { at: 20, .. })));
        assert_eq!(there.flush(), Ok(()));
        assert_eq!(window.local().get_value::<u64>(24), Ok(u64::from_le_bytes([5; 8])));
        drop(there);
        service.join().expect("no panic")
    });
    let mut rest = &lines[..];
    let mut answered = 0;
    while let Some(([number, _, _, bytes, ..], _)) = rest.split_first() {
        let bytes = *bytes as u32 as usize;
        answered += u64::from(*number != UNANSWERED);
        rest = &rest[1 + if bytes > 32 { bytes.div_ceil(LINE_BYTES) } else { 0 }..];
    }
    assert_eq!(answered, 3, "a load and two flushes");
}

fn threads_that_share_a_handle_flush_what_they_have_started() {
    const THREADS: u64 = 5;
    const EACH: u64 = 2000;
    let Node { window, there, service, .. } = Node::new(8 + 8 * THREADS);
    std::thread::scope(|scope| {
        scope.spawn(|| service.run());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let there = &there;
                let window = &window;
                scope.spawn(move || {
                    for number in 1..=EACH {
                        there.iaccumulate_value(Arithmetic::Add, 0, 1_u64).expect("inside");
                        there.iput_value(8 + 8 * thread, number).expect("inside");
                        if number % 200 == thread {
                            there.flush().expect("it is open");
                            let found = window.local().get_value::<u64>(8 + 8 * thread);
                            assert_eq!(found, Ok(number));
                        }
                    }
                    there.flush().expect("it is open");
                });
            }
        });
        assert_eq!(window.local().get_value::<u64>(0), Ok(THREADS * EACH));
        drop(there);
    });
}

fn a_wait_for_space_ends_with_its_owner() {
    let Node { there, service, owner, window: _window } = Node::new(64);
    let failed = Err(WindowError::RankExited { rank: 7 });
    let started = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let start = |number| {
                started.store(number, Ordering::Release);
                there.iput_value(0, number)
            };
            (0..).map(start).find(Result::is_err)
        });
        // No space is left for a command that is started now.
        while started.load(Ordering::Acquire) < SLOTS {
            std::thread::yield_now();
        }
        owner.0.store(true, Ordering::Release);
        drop(service);
        assert_eq!(thread.join().expect("no panic"), Some(failed));
    });
    assert_eq!(started.load(Ordering::Acquire), SLOTS);
    assert_eq!(there.flush(), failed);
    assert_eq!(there.iput_value(0, 1_u64), failed, "and so are later ones");
}

fn a_dropped_handle_has_started_its_commands() {
    let Node { window, there, service, .. } = Node::new(64);
    for number in 1..SLOTS {
        there.iput_value(0, number).expect("inside");
    }
    drop(there);
    service.run();
    assert_eq!(window.local().get_value::<u64>(0), Ok(SLOTS - 1));
}
