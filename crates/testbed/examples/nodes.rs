//! Makes nodes for programs that are not Rust: prints one line of JSON for each, and keeps them
//! until its standard input ends.
//!
//! `cargo run --release -p testbed --example nodes -- 2 1500 | …`; with `receiver-core` behind
//! them, packets are received on one core for each node instead of inside the sender's call. A line
//! names that core, on which the node's programs belong.

use std::io::Read;
use testbed::{Options, Testbed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mtu = arguments.next().map_or(Ok(1500), |text| text.parse())?;
    let testbed = Testbed::new(nodes, Options { mtu, ..Options::default() })?;
    let on_receivers_core = arguments.next().is_some_and(|how| how == "receiver-core");
    let cores = std::thread::available_parallelism()?.get();
    for (number, node) in testbed.nodes().iter().enumerate() {
        let core = number % cores;
        if on_receivers_core {
            node.receive_on(1 << core)?;
        }
        println!(
            r#"{{"namespace":"{}","address":"{}","interface":"{}","core":{core}}}"#,
            node.namespace(),
            node.address(),
            node.interface()
        );
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
