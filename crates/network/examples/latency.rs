//! Measures a barrier of two nodes over the agent engine, or the direct engine with the argument
//! `direct`, or half a round trip of messages of so many bytes, if a number is given: both nodes are
//! threads of this process, connected by TCP over loopback. Prints the median and the quartiles,
//! and of a start alone.

use collectives::{Algorithm, barrier};
use goal::graph::{Access, Graph};
use network::backend::{Backend, CommunicatorContext};
use network::local::{connect, connect_directly};
use network::node_map::NodeMap;
use std::error::Error;
use std::time::{Duration, Instant};

/// For about so long is measured.
const DURATION: Duration = Duration::from_secs(3);

/// A message there and back, or a barrier.
fn graph(rank: u32, bytes: Option<u64>) -> Result<Graph, Box<dyn Error + Send + Sync>> {
    let Some(bytes) = bytes else {
        return Ok(barrier::graph(Algorithm::Dissemination, rank, 2)?);
    };
    let mut graph = Graph::new(rank, 2);
    let output = graph.buffer(Access::Output, bytes);
    let input = graph.buffer(Access::Input, bytes);
    if rank == 0 {
        graph.send(input, 1, 0);
        graph.receive(output, 1, 0);
    } else {
        let received = graph.receive(output, 0, 0);
        let answer = graph.send(input, 0, 0);
        graph.requires(answer, received);
    }
    Ok(graph)
}

fn rank(
    rank: u32,
    client: &dyn Backend,
    bytes: Option<u64>,
) -> Result<(Vec<u64>, Vec<u64>), Box<dyn Error + Send + Sync>> {
    let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank };
    let prepared = client.register(&context, &goal::compile::compile(&graph(rank, bytes)?)?, 0)?;
    let (mut starts, mut calls) = (Vec::new(), Vec::new());
    let length = bytes.unwrap_or(0) as usize;
    let input = vec![7; length];
    let mut output = vec![0; length];
    let buffers = if bytes.is_some() { 2 } else { 0 };
    let runs = DURATION.as_micros() as u64 / (40 + length as u64 / 500);
    for sequence in 0..runs {
        let begin = Instant::now();
        let run = client.start(prepared, sequence, &[output.as_slice(), &input][..buffers])?;
        starts.push(begin.elapsed().as_nanos() as u64);
        client.wait(run, None)?;
        client.fetch(run, &mut [output.as_mut_slice(), &mut []][..buffers])?;
        calls.push(begin.elapsed().as_nanos() as u64 / if bytes.is_some() { 2 } else { 1 });
    }
    Ok((starts, calls))
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (names, numbers): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument == "direct");
    let bytes = numbers.first().map(|number| number.parse()).transpose()?;
    if names.is_empty() {
        measure(&connect(&NodeMap::new(["a", "b"]))?, bytes)
    } else {
        measure(&connect_directly(2)?, bytes)
    }
}

fn measure(
    clients: &[impl Backend],
    bytes: Option<u64>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, client)| scope.spawn(move || rank(number, client, bytes)))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let what =
        bytes.map_or("barrier".to_owned(), |bytes| format!("half a round trip of {bytes} bytes"));
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let (starts, calls) = outcome.map_err(|_| "a rank panicked")??;
        for (what, mut times) in [("start", starts), (what.as_str(), calls)] {
            times.sort_unstable();
            let quartile = |quarter: usize| times[quarter * (times.len() - 1) / 4] as f64 / 1000.0;
            println!(
                "rank {number}: {what} {:.1} µs, quartiles {:.1} to {:.1}",
                quartile(2),
                quartile(1),
                quartile(3)
            );
        }
    }
    Ok(())
}
