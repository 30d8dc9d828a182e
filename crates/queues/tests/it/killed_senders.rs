//! CacheLine queues whose sending processes are killed: at every instruction of a send, and at
//! random in the middle of a flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::child::{Child, memory, segment_and_offsets, until};
use queues::append;
use queues::cache_line::{
    CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineReceiver, Multi, SendError,
};
use queues::id::SourceName;
use shm::segment::{Offset, Segment};

testing::tests![
    a_sender_may_be_killed_at_every_instruction_between_claim_and_publication,
    an_append_sender_may_be_killed_at_every_instruction_between_claim_and_publication,
    two_senders_that_are_killed_one_after_the_other_leave_both_lines,
    senders_killed_at_random_block_no_sender_and_lose_no_slot,
    numbers_are_given_again_when_their_processes_have_ended,
];
testing::parts![
    child_sends_one_message_per_stop,
    child_appends_one_record_per_stop,
    child_sends_until_killed,
    child_claims_and_ends,
];

/// Where a ring keeps its tail (see the page of the module `ring`).
const TAIL: u64 = 64;

/// Long enough never to matter, short enough to end a broken test.
const TIMEOUT: Duration = Duration::from_secs(60);

fn message(from: u16, number: u64) -> CacheLineMessage {
    let source = SourceName::new(from).expect("14 bits");
    let header = CacheLineHeader { source, handler: number as u8, tag: 7 };
    let words = [number, !number, number.rotate_left(9), number, number, !number];
    CacheLineMessage::new(header, &words.map(u64::to_le_bytes).concat()).expect("48 bytes")
}

/// Returns the sender and the number of a message, which must be whole.
fn read(got: &CacheLineMessage) -> (u16, u64) {
    let from = got.header().source.number();
    let number = got.data().first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    assert_eq!(*got, message(from, number), "whole and of one piece");
    (from, number)
}

/// Takes what there is, past lines that hold it up.
fn drain(receiver: &mut CacheLineReceiver<Multi>) -> Vec<(u16, u64)> {
    let mut got = Vec::new();
    loop {
        match receiver.try_recv().expect("open") {
            Some(message) => got.push(read(&message)),
            None if !receiver.is_ready() => return got,
            None => {}
        }
    }
}

/// After some laps in which senders come round to the lines of the dead, every line can be used.
fn assert_whole(queue: &CacheLineQueue, receiver: &mut CacheLineReceiver<Multi>) {
    let sender = queue.sender();
    let capacity = queue.capacity() as u64;
    for number in 0..20 * capacity {
        assert_eq!(sender.try_send(&message(9, number)), Ok(()));
        assert_eq!(drain(receiver), [(9, number)]);
    }
    let sent =
        (0..).take_while(|&number| sender.try_send(&message(9, number)).is_ok()).count() as u64;
    assert_eq!(sent, capacity, "no line is lost");
    assert_eq!(drain(receiver).len() as u64, capacity);
}

/// Where the traced thread leaves its number.
const THREAD: Offset = Offset(0);

/// Another process, of which a thread is executed instruction by instruction from its first stop
/// on.
struct Traced(Child, i32);

impl Traced {
    fn start(part: &str, segment: &Arc<Segment>, queue: Offset) -> Traced {
        let thread = segment.at::<AtomicU32>(THREAD).expect("inside");
        thread.store(0, Ordering::Relaxed);
        let other = Child::start_on(part, segment, &[queue]);
        until("it says which thread it is", || thread.load(Ordering::Relaxed) != 0);
        let traced = Traced(other, thread.load(Ordering::Relaxed).cast_signed());
        assert_eq!(traced.next_stop(), libc::SIGSTOP, "it stops itself");
        traced
    }

    fn next_stop(&self) -> i32 {
        let mut status = 0;
        // SAFETY: the call writes to `status` alone.
        let waited = unsafe { libc::waitpid(self.1, &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.1, "{}", std::io::Error::last_os_error());
        assert!(libc::WIFSTOPPED(status), "it stops, and does not end");
        libc::WSTOPSIG(status)
    }

    /// Kills the process where its thread stands.
    fn kill(mut self) {
        let mut status = 0;
        // SAFETY: the first call ends the child, which has not been waited for; the second writes
        // to `status` alone.
        let waited = unsafe {
            libc::kill(self.0.pid().cast_signed(), libc::SIGKILL);
            libc::waitpid(self.1, &raw mut status, libc::__WALL)
        };
        assert!(
            waited == self.1 && libc::WIFSIGNALED(status),
            "{}",
            std::io::Error::last_os_error()
        );
        if self.1 != self.0.pid().cast_signed() {
            self.0.kill();
        }
    }

    /// Executes one instruction. Returns whether it stopped itself again.
    fn step(&self) -> bool {
        // SAFETY: the call makes the thread go on; it reads no memory of this process.
        let done = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.1, 0, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        match self.next_stop() {
            libc::SIGTRAP => false,
            libc::SIGSTOP => true,
            other => panic!("stopped by signal {other}"),
        }
    }
}

/// The words of a queue that the sending process may change.
struct Watched<'a>(Vec<&'a AtomicU64>);

impl<'a> Watched<'a> {
    fn new(segment: &'a Segment, queue: Offset) -> Watched<'a> {
        let word = |index: u64| segment.at(Offset(queue.0 + 8 * index)).expect("inside");
        Watched((0..1024).map(word).collect())
    }

    fn read(&self) -> Vec<u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Executes instructions until one of them changes the queue. Returns whether the thread
    /// stopped itself before.
    ///
    /// A kill between two changes leaves what a kill right after the first one leaves, since the
    /// rest of the process ends with it. Kills after every change therefore stand for kills at
    /// every instruction.
    fn step_to_change(&self, victim: &Traced) -> bool {
        let before = self.read();
        loop {
            if victim.step() {
                return true;
            }
            if self.read() != before {
                return false;
            }
        }
    }
}

/// A record of three lines, of one sender.
fn record(from: u8, number: u8) -> [u8; 150] {
    let mut record = [number; 150];
    record[0] = from;
    record
}

/// Receives all records, past slots that block them.
fn drain_records(receiver: &mut append::Receiver) -> Vec<(u8, u8)> {
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    // Enough polls to void a slot.
    for _ in 0..100_000 {
        if receiver.try_recv(&mut bytes).expect("intact") {
            assert_eq!(bytes, record(bytes[0], bytes[1]), "whole and of one piece");
            records.push((bytes[0], bytes[1]));
        }
    }
    records
}

/// The same for records in slots of several lines.
fn an_append_sender_may_be_killed_at_every_instruction_between_claim_and_publication() {
    let (segment, arena) = memory(1 << 20);
    let mut receiver = append::Receiver::create(&arena, 4, 150).expect("space");
    let tail = segment.at::<AtomicU64>(Offset(receiver.offset().0 + TAIL)).expect("inside");
    let sender = append::Sender::connect(&segment, receiver.offset()).expect("made");
    let watched = Watched::new(&segment, receiver.offset());
    let mut lost = 0;
    let mut published = 0;
    for changes in 0.. {
        let victim = Traced::start(
            "killed_senders::child_appends_one_record_per_stop",
            &segment,
            receiver.offset(),
        );
        let before = tail.load(Ordering::Relaxed);
        while tail.load(Ordering::Relaxed) == before {
            assert!(!victim.step(), "it sends before it stops");
        }
        let is_over = (0..changes).any(|_| watched.step_to_change(&victim));
        victim.kill();
        assert_eq!([0, 1].map(|number| sender.try_send(&record(2, number))), [Ok(()); 2]);
        match &drain_records(&mut receiver)[..] {
            [(2, 0), (2, 1)] => lost += 1,
            [(1, 77), (2, 0), (2, 1)] => published += 1,
            other => panic!("{other:?} after {changes} changes"),
        }
        // After some laps in which the sender comes round to the slot, every slot can be used.
        let mut bytes = Vec::new();
        for number in 0..80 {
            assert_eq!(sender.try_send(&record(2, number)), Ok(()));
            assert_eq!(receiver.try_recv(&mut bytes), Ok(true));
            assert_eq!(bytes, record(2, number));
        }
        let sent = (0..).take_while(|&number| sender.try_send(&record(2, number)).is_ok()).count();
        assert_eq!(sent, 4, "no slot is lost after {changes} changes");
        assert_eq!(drain_records(&mut receiver).len(), 4);
        if is_over {
            break;
        }
    }
    assert!(
        lost > 7 && published > 0,
        "{lost} killed before the publication, {published} after it"
    );
}

fn a_sender_may_be_killed_at_every_instruction_between_claim_and_publication() {
    let (segment, arena) = memory(1 << 20);
    let queue = CacheLineQueue::create(&arena, 4, None).expect("space");
    let mut receiver = queue.receiver().expect("free");
    let tail = segment.at::<AtomicU64>(Offset(queue.offset().0 + TAIL)).expect("inside");
    let sender = queue.sender();
    let watched = Watched::new(&segment, queue.offset());
    let mut lost = 0;
    let mut published = 0;
    for changes in 0.. {
        let victim = Traced::start(
            "killed_senders::child_sends_one_message_per_stop",
            &segment,
            queue.offset(),
        );
        let before = tail.load(Ordering::Relaxed);
        while tail.load(Ordering::Relaxed) == before {
            assert!(!victim.step(), "it sends before it stops");
        }
        let is_over = (0..changes).any(|_| watched.step_to_change(&victim));
        victim.kill();
        // Another sender comes after it, on the next lines.
        assert_eq!([0, 1].map(|number| sender.try_send(&message(2, number))), [Ok(()); 2]);
        match &drain(&mut receiver)[..] {
            [(2, 0), (2, 1)] => lost += 1,
            [(1, 77), (2, 0), (2, 1)] => published += 1,
            other => panic!("{other:?} after {changes} changes"),
        }
        assert_whole(&queue, &mut receiver);
        if is_over {
            break;
        }
    }
    assert!(
        lost > 7 && published > 0,
        "{lost} killed before the publication, {published} after it"
    );
}

/// Child process of `a_sender_may_be_killed_at_every_instruction_between_claim_and_publication`.
fn child_sends_one_message_per_stop() {
    let (segment, offsets) = segment_and_offsets();
    let sender = CacheLineQueue::connect(&segment, offsets[0]).expect("a queue").sender();
    let one = message(1, 77);
    run_between_stops(&segment, || sender.try_send(&one).expect("space"));
}

/// Calls `run` between two stops of this thread, which the parent traces.
fn run_between_stops(segment: &Segment, run: impl FnOnce()) {
    // SAFETY: these calls let the parent trace this thread, and stop it; they touch no memory.
    let stop = || unsafe { libc::raise(libc::SIGSTOP) };
    // SAFETY: as above.
    let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    assert_eq!(traced, 0, "a parent may trace its child");
    // SAFETY: as above.
    let thread = unsafe { libc::gettid() };
    segment
        .at::<AtomicU32>(THREAD)
        .expect("inside")
        .store(thread.cast_unsigned(), Ordering::Relaxed);
    stop();
    run();
    stop();
}

fn child_appends_one_record_per_stop() {
    let (segment, offsets) = segment_and_offsets();
    let sender = append::Sender::connect(&segment, offsets[0]).expect("a buffer");
    run_between_stops(&segment, || sender.try_send(&record(1, 77)).expect("space"));
}

/// Two claims in a row whose claimants die, the first before it has named itself: the second one's
/// header names it.
fn two_senders_that_are_killed_one_after_the_other_leave_both_lines() {
    let (segment, arena) = memory(1 << 20);
    let queue = CacheLineQueue::create(&arena, 4, None).expect("space");
    let mut receiver = queue.receiver().expect("free");
    let tail = segment.at::<AtomicU64>(Offset(queue.offset().0 + TAIL)).expect("inside");
    let claims = || {
        let victim = Traced::start(
            "killed_senders::child_sends_one_message_per_stop",
            &segment,
            queue.offset(),
        );
        let before = tail.load(Ordering::Relaxed);
        while tail.load(Ordering::Relaxed) == before {
            assert!(!victim.step(), "it sends before it stops");
        }
        victim
    };
    let first = claims();
    let second = claims();
    // The header lies at the line's second word.
    let header = segment.at::<AtomicU64>(Offset(queue.offset().0 + 256 + 64 + 8)).expect("inside");
    while header.load(Ordering::Relaxed) == 0 {
        assert!(!second.step(), "it names itself before it stops");
    }
    first.kill();
    second.kill();
    queue.sender().try_send(&message(2, 0)).expect("space");
    assert_eq!(drain(&mut receiver), [(2, 0)]);
    assert_whole(&queue, &mut receiver);
}

fn senders_killed_at_random_block_no_sender_and_lose_no_slot() {
    const KILLS: u64 = 60;
    let (segment, arena) = memory(1 << 20);
    let queue = CacheLineQueue::create(&arena, 8, None).expect("space");
    let mut receiver = queue.receiver().expect("free");
    let first = |from: u16| {
        Child::start_on(
            "killed_senders::child_sends_until_killed",
            &segment,
            &[queue.offset(), Offset(from.into())],
        )
    };
    let mut senders: Vec<(u16, Child)> = (0..3).map(|from| (from, first(from))).collect();
    let mut next = vec![0; 3 + KILLS as usize];
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for kill in 0..KILLS {
        // After Marsaglia's xorshift: any numbers will do.
        for shift in [13, -7, 17] {
            random ^= if shift > 0 { random << shift } else { random >> -shift };
        }
        let victim = (random % 3) as usize;
        let mut left = random >> 8 & 0x7ff;
        // So many messages, and at least one of the victim.
        while left > 0 || next[usize::from(senders[victim].0)] == 0 {
            let got = receiver
                .recv_deadline(Instant::now() + TIMEOUT)
                .expect("open")
                .expect("a sender is alive");
            let (from, number) = read(&got);
            assert_eq!(
                number,
                next[usize::from(from)],
                "of sender {from}: nothing is lost, doubled or late"
            );
            next[usize::from(from)] += 1;
            left = left.saturating_sub(1);
        }
        senders[victim].1.kill();
        let from = 3 + kill as u16;
        senders[victim] = (from, first(from));
    }
    senders.iter_mut().for_each(|(_, sender)| sender.kill());
    for (from, number) in drain(&mut receiver) {
        assert_eq!(number, next[usize::from(from)], "the rest of sender {from}");
        next[usize::from(from)] += 1;
    }
    assert_whole(&queue, &mut receiver);
}

/// Child process of `senders_killed_at_random_block_no_sender_and_lose_no_slot`.
fn child_sends_until_killed() {
    let (segment, offsets) = segment_and_offsets();
    let sender = CacheLineQueue::connect(&segment, offsets[0]).expect("a queue").sender();
    let from = u16::try_from(offsets[1].0).expect("a name");
    (0..).try_for_each(|number| sender.send(&message(from, number))).expect("open");
}

/// More processes than a queue can number, one after the other: the numbers of the dead are given
/// to the living.
fn numbers_are_given_again_when_their_processes_have_ended() {
    let (segment, arena) = memory(1 << 20);
    let queue = CacheLineQueue::create(&arena, 2, None).expect("space");
    let mut receiver = queue.receiver().expect("free");
    for number in 0..80 {
        let mut victim =
            Child::start_on("killed_senders::child_claims_and_ends", &segment, &[queue.offset()]);
        assert!(victim.succeeds());
        // Every one of them leaves a line.
        let sender = queue.sender();
        let mut tries =
            (0..100).map(|_| (sender.try_send(&message(2, number)), drain(&mut receiver)));
        let sent = tries.find(|(sent, _)| *sent != Err(SendError::Full));
        assert_eq!(sent, Some((Ok(()), vec![(2, number)])));
    }
    assert_whole(&queue, &mut receiver);
}

/// Child process of `numbers_are_given_again_when_their_processes_have_ended`.
fn child_claims_and_ends() {
    let (segment, offsets) = segment_and_offsets();
    let sender = CacheLineQueue::connect(&segment, offsets[0]).expect("a queue").sender();
    let claim = sender.claim(CacheLineHeader::default());
    std::mem::forget(claim);
}
