//! Cost of an operation: a chain of 250 local operations on eight bytes, each depending on the
//! previous one.
#![expect(missing_docs, reason = "criterion_main generates an undocumented function")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Graph};
use interpreter::{Effect, Interpreter, Limits};
use std::hint::black_box;
use std::sync::Arc;

const OPERATIONS: u64 = 250;

/// Adds an operand to an accumulator in place, repeatedly.
fn additions() -> Graph {
    let mut graph = Graph::new(0, 1);
    let accumulator = graph.buffer(Access::InOut, 8);
    let operand = graph.buffer(Access::Input, 8);
    let mut last = None;
    for _ in 0..OPERATIONS {
        let vertex = graph.local(Arithmetic::Add, DataType::U64, accumulator, operand, accumulator);
        if let Some(last) = last.replace(vertex) {
            graph.requires(vertex, last);
        }
    }
    graph
}

/// Copies back and forth between a buffer and the scratchpad.
fn copies() -> Graph {
    let mut graph = Graph::new(0, 1);
    let buffer = graph.buffer(Access::InOut, 8);
    let scratchpad = graph.scratchpad(8);
    let mut last = None;
    for number in 0..OPERATIONS {
        let vertex = if number % 2 == 0 {
            graph.copy(buffer, scratchpad)
        } else {
            graph.copy(scratchpad, buffer)
        };
        if let Some(last) = last.replace(vertex) {
            graph.requires(vertex, last);
        }
    }
    graph
}

fn chain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chain");
    group.throughput(Throughput::Elements(OPERATIONS));
    for (name, graph) in [("add", additions()), ("copy", copies())] {
        let schedule = goal::compile::compile(&graph).expect("the graph is in order");
        let mut interpreter =
            Interpreter::new(Arc::new(schedule), Limits::new(goal::limits::EAGER_ON_NODE))
                .expect("it was just compiled");
        let mut buffers: Vec<Vec<u8>> =
            graph.buffers().iter().map(|buffer| vec![1; buffer.length as usize]).collect();
        group.bench_function(BenchmarkId::new(name, OPERATIONS), |bencher| {
            bencher.iter(|| {
                interpreter
                    .start(black_box(std::mem::take(&mut buffers)), 0)
                    .expect("they fit the graph");
                assert_eq!(interpreter.poll(), Some(Effect::Completed(Ok(()))));
                buffers = interpreter.reset();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, chain);
criterion_main!(benches);
