//! Creates nodes for programs in other languages. Prints one line of JSON for each node and keeps
//! them until its standard input ends.
//!
//! `cargo run --release -p tradewind-virtual-nodes --example nodes -- 2 1500 [receiver-core]`. With
//! `receiver-core`, each node receives packets on a core of its own instead of inside the sender's
//! system call. The line names that core; the node's programs should run there.

use std::io::Read;
use virtual_nodes::VirtualNodes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mtu = arguments.next().map_or(Ok(1500), |text| text.parse())?;
    let nodes = VirtualNodes::new(count, mtu)?;
    let on_receivers_core = arguments.next().is_some_and(|mode| mode == "receiver-core");
    let cores = std::thread::available_parallelism()?.get();
    for (number, node) in nodes.nodes().iter().enumerate() {
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
