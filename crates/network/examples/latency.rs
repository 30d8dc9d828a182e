//! What a barrier of two hosts costs over the agent engine: both hosts are threads of this process, connected by TCP over
//! loopback. Prints the median and the quartiles of a blocking barrier, and of a start alone.

use network::agent::{Client, local};
use network::carrier::{Carrier, Context, Error};
use network::hosts::Hosts;
use std::time::Instant;

const RUNS: u64 = 20_000;

fn rank(rank: u32, client: &Client) -> Result<(Vec<u64>, Vec<u64>), Box<dyn std::error::Error + Send + Sync>> {
    let graph = collectives::barrier::Algorithm::Dissemination.graph(rank, 2)?;
    let context = Context { number: 0, members: [0, 1].into(), rank };
    let prepared = client.prepare(&context, &goal::compile::compile(&graph)?, 0)?;
    let (mut starts, mut barriers) = (Vec::new(), Vec::new());
    for sequence in 0..RUNS {
        let begin = Instant::now();
        let ticket = client.start(prepared, sequence, &[])?;
        starts.push(begin.elapsed().as_nanos() as u64);
        client.wait(ticket, None)?;
        client.fetch(ticket, &mut [])?;
        barriers.push(begin.elapsed().as_nanos() as u64);
    }
    Ok((starts, barriers))
}

fn main() -> Result<(), Error> {
    let clients = local(&Hosts::new(["a", "b"]))?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..).zip(&clients).map(|(number, client)| scope.spawn(move || rank(number, client))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let Ok(Ok((starts, barriers))) = outcome else { continue };
        for (what, mut times) in [("start", starts), ("barrier", barriers)] {
            times.sort_unstable();
            let quartile = |quarter: usize| times[quarter * (times.len() - 1) / 4] as f64 / 1000.0;
            println!("rank {number}: {what} {:.1} µs, quartiles {:.1} to {:.1}", quartile(2), quartile(1), quartile(3));
        }
    }
    Ok(())
}
