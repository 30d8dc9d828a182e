//! Arbitrary bytes as a schedule, and a sound schedule with arbitrary changes.
#![no_main]

mod changes;

use changes::changed;
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::{compile, decompile};
use goal::graph::{Access, Blocks, Graph, JoinMode};
use goal::schedule::{MAGIC, Schedule, ScheduleView, VERSION};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// A schedule with every kind of operation.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
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
    let mode = JoinMode::Reduce { operation: Arithmetic::Maximum, data_type: DataType::F64 };
    let join = graph.join(mode, input.part(0, 16), output.part(16, 16));
    let barrier = graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
    for (after, before) in [(add, receive), (add, named), (copy, add), (barrier, join), (time, copy)] {
        graph.requires(after, before);
    }
    graph.irequires(time, send);
    compile(&graph).expect("obeys every rule").as_bytes().to_vec()
});

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut schedule = if first & 1 == 0 { changed(&SOUND, rest) } else { rest.to_vec() };
    if schedule.len() >= 64 {
        seal(&mut schedule);
    }
    match Schedule::from_bytes(&schedule) {
        Ok(schedule) => {
            walk(&schedule.view());
            // Only the checker sees every rule, so a graph may be refused that a schedule was made
            // from by hand.
            if let Ok(again) = compile(&decompile(&schedule)) {
                walk(&again.view());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// Puts magic number, version, length and checksum right.
fn seal(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() / 8 * 8);
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    let length = bytes.len() as u64;
    bytes[48..56].copy_from_slice(&length.to_le_bytes());
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for (index, word) in bytes.chunks_exact(8).enumerate() {
        if index != 7 {
            let word = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
}

/// Goes through everything an engine would, and runs the schedule on counters.
fn walk(view: &ScheduleView<'_>) {
    let operations = view.operations();
    let mut missing: Vec<u32> = operations.iter().map(|record| record.dependencies).collect();
    for (index, record) in operations.iter().enumerate() {
        assert_eq!(missing[index], 0, "edges lead forward, so all that lead here have been followed");
        for block in view.destination(record).iter().chain(view.left(record)).chain(view.right(record)) {
            let buffer = view.buffers().get(block.memory as usize);
            let limit = buffer.map_or(view.header().scratchpad_bytes, |buffer| buffer.length);
            assert!(block.offset + block.length <= limit);
        }
        for target in view.successors(record).chain(view.start_successors(record)) {
            missing[target as usize] -= 1;
        }
    }
}
