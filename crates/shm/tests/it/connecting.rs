//! Processes that connect to objects while the owner frees them.

use crate::child_process::{argument, child, open, path_of, until};
use shm::arena::Arena;
use shm::connecting::Connecting;
use shm::object::{CreateError, Label, Object, ObjectHeader};
use shm::process_table::{End, Ends, ProcessTable};
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU64, Ordering};
use std::process::Child;
use std::sync::Arc;

testing::tests![
    memory_is_kept_for_a_process_that_connects,
    an_end_is_withdrawn_while_a_process_connects,
    a_killed_process_that_connects_keeps_no_memory,
    as_many_threads_connect_as_there_are_entries,
];
testing::parts![child_is_about_to_attach];

const BYTES: u64 = 1 << 20;

/// Where the children of a test report.
const STATE: Offset = Offset(0);

/// State of a child that has found its object.
const FOUND: u64 = 1;

shm::shared_lines! {
    /// An object with a table of processes.
    struct Table {
        label: Label,
        owner: AtomicU64,
        processes: ProcessTable,
    }

    /// An object with two ends.
    struct Pair {
        label: Label,
        ends: Ends,
    }
}

impl ObjectHeader for Table {
    const KIND: u32 = u32::from_be_bytes(*b"tabl");
    const NAME: &'static str = "table";

    fn label(&self) -> &Label {
        &self.label
    }

    fn owner(&self) -> Option<&AtomicU64> {
        Some(&self.owner)
    }

    fn processes(&self) -> Option<&ProcessTable> {
        Some(&self.processes)
    }
}

impl ObjectHeader for Pair {
    const KIND: u32 = u32::from_be_bytes(*b"pair");
    const NAME: &'static str = "pair";

    fn label(&self) -> &Label {
        &self.label
    }

    fn ends(&self) -> Option<&Ends> {
        Some(&self.ends)
    }
}

/// A segment, and an arena in all but its first page.
fn memory() -> (Arc<Segment>, Arena) {
    let segment = Arc::new(Segment::create(BYTES, Backing::Memory).expect("memory"));
    let arena = Arena::new(Arc::clone(&segment), 4096..BYTES).expect("inside");
    (segment, arena)
}

fn create<H: ObjectHeader>(arena: &Arena) -> Object<H> {
    Object::create(arena, 0, 0, |_| Ok(())).expect("there is memory").0
}

fn memory_is_kept_for_a_process_that_connects() {
    let (segment, arena) = memory();
    let object = create::<Table>(&arena);
    let at = object.offset();
    let connecting = Connecting::<Table>::to(&segment, at).expect("it is there");
    let used = arena.used();
    object.free(&arena);
    assert_eq!(arena.used(), used, "a process connects");
    // Later objects lie elsewhere.
    let other = create::<Table>(&arena);
    assert_ne!(other.offset(), at);
    let late = Connecting::<Table>::to(&segment, at).map(drop);
    assert!(matches!(late, Err(CreateError::NotFound { .. })), "{late:?}");
    drop(connecting);
    arena.free_retired();
    assert_eq!(arena.used(), used, "the memory of one object instead of the other");
    other.retire(&arena);
    assert_eq!(arena.used(), 0);
}

fn an_end_is_withdrawn_while_a_process_connects() {
    let (segment, arena) = memory();
    let pair = create::<Pair>(&arena);
    let connecting = Connecting::<Pair>::to(&segment, pair.offset()).expect("it is there");
    End::BOTH.iter().for_each(|&end| assert!(pair.ends.holder(end).withdraw()));
    pair.retire(&arena);
    let taken = connecting.take(End::Sender, Ok).map(drop);
    assert!(matches!(taken, Err(CreateError::Taken { process: None, .. })), "{taken:?}");
    arena.free_retired();
    assert_eq!(arena.used(), 0);

    let table = create::<Table>(&arena);
    let connecting = Connecting::<Table>::to(&segment, table.offset()).expect("it is there");
    table.retire(&arena);
    let attached = connecting.attach(Ok).map(drop);
    let own = std::process::id();
    assert!(matches!(attached, Err(CreateError::Closed { owner, .. }) if owner == own));
    arena.free_retired();
    assert_eq!(arena.used(), 0);
}

fn start(part: &str, segment: &Segment, at: Offset) -> Child {
    let argument = format!("{} {}", at.0, path_of(segment));
    child(part, &argument).spawn().expect("this program")
}

fn segment_and_offset() -> (Arc<Segment>, Offset) {
    let argument = argument();
    let (at, path) = argument.split_once(' ').expect("an offset and a path");
    (Arc::new(open(path)), Offset(at.parse().expect("an offset")))
}

fn a_killed_process_that_connects_keeps_no_memory() {
    let (segment, arena) = memory();
    let object = create::<Table>(&arena);
    let used = arena.used();
    let mut other = start("connecting::child_is_about_to_attach", &segment, object.offset());
    let state = segment.at::<AtomicU64>(STATE).expect("inside");
    until("the child connects", || state.load(Ordering::Acquire) == FOUND);
    object.retire(&arena);
    arena.free_retired();
    assert_eq!(arena.used(), used, "the child connects");
    other.kill().expect("it lives");
    other.wait().expect("a child");
    arena.free_retired();
    assert_eq!(arena.used(), 0, "the child has ended");
}

/// Child process of `a_killed_process_that_connects_keeps_no_memory`.
fn child_is_about_to_attach() {
    let (segment, at) = segment_and_offset();
    let _connecting = Connecting::<Table>::to(&segment, at).expect("it is there");
    segment.at::<AtomicU64>(STATE).expect("inside").store(FOUND, Ordering::Release);
    std::io::read_to_string(std::io::stdin()).expect("until the end");
}

fn as_many_threads_connect_as_there_are_entries() {
    let (segment, arena) = memory();
    let object = create::<Table>(&arena);
    let connect = || Connecting::<Table>::to(&segment, object.offset());
    let mut all = Vec::new();
    let error = loop {
        match connect() {
            Ok(connecting) => all.push(connecting),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CreateError::Busy { max, .. } if max == all.len()), "{error}");
    drop(all.pop());
    drop(connect().expect("one has ended"));
}
