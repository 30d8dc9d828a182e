//! Damaged input: cut off at every byte, every byte changed, and thousands of random changes.
//! Nothing may panic, and what is accepted must be sound. The fuzz targets in `fuzz/` do the same
//! without end.

use crate::random_graphs::{Sequence, seal};
use goal::compile::compile;
use goal::graph::{Access, Blocks, Graph, JoinMode};
use goal::schedule::{Schedule, ScheduleError, ScheduleView};
use goal::{arithmetic::Arithmetic, arithmetic::DataType, binary, check, text};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

const EVERYTHING: &str = include_str!("../fixtures/samples/everything.goal");
const PINGPONG: &str = include_str!("../fixtures/samples/pingpong.goal");
const EVERYTHING_BINARY: &[u8] = include_bytes!("../fixtures/samples/everything.bin");
const PINGPONG_BINARY: &[u8] = include_bytes!("../fixtures/samples/pingpong.bin");

/// Reads text, and goes on with what was read as a program would.
fn use_text(bytes: &[u8]) {
    if let Ok(graphs) = text::read_bytes(bytes) {
        use_graphs(&graphs);
        let written = text::write(&graphs).unwrap();
        assert_eq!(text::read(&written).unwrap().len(), graphs.len());
    }
}

fn use_binary(bytes: &[u8]) {
    if let Ok(graphs) = binary::read(bytes) {
        use_graphs(&graphs);
        let written = binary::write(&graphs).unwrap();
        assert_eq!(
            binary::read(&written).unwrap(),
            graphs,
            "what was read can be written and read again"
        );
    }
}

fn use_graphs(graphs: &[Graph]) {
    if let Err(problems) = check::global(graphs, &check::GlobalOptions { eager_limit: 32 }) {
        assert!(!check::list(&problems).is_empty());
    }
}

/// A schedule with every kind of operation.
fn schedule() -> Schedule {
    let mut graph = Graph::new(1, 4);
    let input = graph.buffer(Access::Input, 64);
    let output = graph.buffer(Access::Output, 64);
    let temporary = graph.scratchpad(64);
    let send = graph.send([input.part(0, 8), input.part(16, 8)], 2, 7);
    let receive = graph.receive(temporary.part(0, 16), None, 7);
    let named = graph.receive(temporary.part(16, 16), 3, 7);
    let left = temporary.part(0, 16);
    let add = graph.local(Arithmetic::Add, DataType::U32, left, temporary.part(16, 16), left);
    let copy = graph.copy(left, output.part(0, 16));
    let time = graph.timestamp(output.part(56, 8));
    let calc = graph.calc(1000);
    let mode = JoinMode::Reduce { operation: Arithmetic::Maximum, data_type: DataType::F64 };
    let join = graph.join(mode, input.part(0, 16), output.part(16, 16));
    let barrier = graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
    for (after, before) in
        [(add, receive), (add, named), (copy, add), (barrier, join), (time, copy), (time, send)]
    {
        graph.requires(after, before);
    }
    graph.irequires(calc, receive);
    graph.irequires(time, calc);
    compile(&graph).unwrap()
}

/// Walks through everything an engine would, and runs the schedule on counters.
fn use_schedule(view: &ScheduleView<'_>) {
    let operations = view.operations();
    let mut missing: Vec<u32> = operations.iter().map(|record| record.dependencies).collect();
    for (index, record) in operations.iter().enumerate() {
        // Edges lead forward, so all that lead here have been followed.
        assert_eq!(missing[index], 0);
        for block in [view.destination(record), view.left(record), view.right(record)].concat() {
            let limit = match view.buffers().get(block.memory as usize) {
                Some(buffer) => buffer.length,
                None => view.header().scratchpad_bytes,
            };
            assert!(block.offset + block.length <= limit);
        }
        for target in view.successors(record).chain(view.start_successors(record)) {
            missing[target as usize] -= 1;
        }
    }
}

/// What changing one byte may turn a value into.
fn changes(byte: u8) -> impl Iterator<Item = u8> {
    let flipped = (0..8).map(move |bit| byte ^ (1 << bit));
    flipped
        .chain([
            0, 1, 0x7f, 0x80, 0xff, b'\n', b'{', b'}', b':', b'9', b'/', b'*', b'-', b' ', b'b',
        ])
        .filter(move |new| *new != byte)
}

fn with_changes(bytes: &[u8], mut use_input: impl FnMut(&[u8])) {
    let mut changed = bytes.to_vec();
    for index in 0..bytes.len() {
        use_input(&bytes[..index]);
        for new in changes(bytes[index]) {
            changed[index] = new;
            use_input(&changed);
        }
        changed[index] = bytes[index];
    }
}

/// Several changes at once: bytes replaced, removed, doubled, words and ranges copied elsewhere.
fn with_random_changes(seeds: &[&[u8]], count: usize, mut use_input: impl FnMut(&mut Vec<u8>)) {
    let mut sequence = Sequence(count as u64);
    for _ in 0..count {
        let mut bytes = seeds[sequence.below(seeds.len())].to_vec();
        for _ in 0..1 + sequence.below(4) {
            let at = sequence.below(bytes.len());
            match sequence.below(6) {
                0 => bytes[at] = sequence.next() as u8,
                1 => drop(bytes.drain(at..(at + 1 + sequence.below(9)).min(bytes.len()))),
                2 => bytes.insert(at, bytes[at]),
                3 if at + 4 <= bytes.len() => {
                    let value = [0, 1, 2, u32::MAX, u32::MAX - 1, 1 << 31, bytes.len() as u32]
                        [sequence.below(7)];
                    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
                4 => {
                    let from = sequence.below(bytes.len());
                    let length = (1 + sequence.below(40)).min(bytes.len() - from.max(at));
                    bytes.copy_within(from..from + length, at);
                }
                _ => bytes[at] ^= 1 << sequence.below(8),
            }
        }
        use_input(&mut bytes);
    }
}

#[test]
fn text_cut_off_or_with_a_byte_changed() {
    for source in [EVERYTHING, PINGPONG] {
        with_changes(source.as_bytes(), use_text);
    }
}

#[test]
fn text_cut_off_anywhere_but_in_its_last_line_is_refused() {
    let end = EVERYTHING.trim_end().len();
    for length in 0..end {
        assert!(text::read(&EVERYTHING[..length]).is_err(), "cut off after {length} bytes");
    }
}

#[test]
fn text_with_random_changes() {
    with_random_changes(&[EVERYTHING.as_bytes(), PINGPONG.as_bytes()], 20_000, |bytes| {
        use_text(bytes)
    });
}

#[test]
fn binary_cut_off_or_with_a_byte_changed() {
    for file in [EVERYTHING_BINARY, PINGPONG_BINARY] {
        with_changes(file, use_binary);
        for length in 0..file.len() {
            assert!(binary::read(&file[..length]).is_err(), "cut off after {length} bytes");
        }
    }
}

#[test]
fn binary_with_random_changes() {
    with_random_changes(&[EVERYTHING_BINARY, PINGPONG_BINARY], 20_000, |bytes| use_binary(bytes));
}

#[test]
fn a_damaged_schedule_is_refused() {
    let schedule = schedule();
    let bytes = schedule.as_bytes();
    with_changes(bytes, |damaged| assert!(Schedule::from_bytes(damaged).is_err()));
    let mut longer = bytes.to_vec();
    longer.extend([0; 8]);
    assert!(matches!(Schedule::from_bytes(&longer), Err(ScheduleError::Length { .. })));
}

#[test]
fn a_damaged_schedule_with_the_right_checksum_is_refused_or_sound() {
    let schedule = schedule();
    let mut accepted = 0;
    let mut refused = 0;
    with_changes(schedule.as_bytes(), |damaged| {
        let mut sealed = damaged.to_vec();
        if sealed.len() < 64 {
            return;
        }
        seal(&mut sealed);
        match Schedule::from_bytes(&sealed) {
            Ok(schedule) => {
                use_schedule(&schedule.view());
                accepted += 1;
            }
            Err(_) => refused += 1,
        }
    });
    assert!(
        accepted > 100 && refused > 1000,
        "{accepted} accepted, {refused} refused: both should be tried"
    );
}

#[test]
fn random_schedules_with_random_changes_are_refused_or_sound() {
    let mut runner = TestRunner::deterministic();
    let drawn: Vec<Vec<u8>> = (0..50)
        .map(|_| {
            compile(
                &crate::random_graphs::placed_graph(20).new_tree(&mut runner).unwrap().current(),
            )
            .unwrap()
        })
        .map(|schedule| schedule.as_bytes().to_vec())
        .collect();
    let seeds: Vec<&[u8]> = drawn.iter().map(Vec::as_slice).collect();
    let mut accepted = 0;
    with_random_changes(&seeds, 20_000, |bytes| {
        bytes.truncate(bytes.len() / 8 * 8);
        if bytes.len() < 64 {
            return;
        }
        let length = bytes.len() as u64;
        bytes[48..56].copy_from_slice(&length.to_le_bytes());
        seal(bytes);
        if let Ok(schedule) = Schedule::from_bytes(bytes) {
            use_schedule(&schedule.view());
            accepted += 1;
        }
    });
    assert!(accepted > 0, "no changed schedule was accepted, so none was walked through");
}
