//! Creates nodes for programs in other languages. Prints one line of JSON for each node and keeps
//! them until its standard input ends.
//!
//! `cargo run --release -p tradewind-virtual-nodes --example nodes -- 2 1500 [receiver-core]
//! [link=RATE] [enter=FILE]`. With `receiver-core`, each node receives packets on a core of its own
//! instead of inside the sender's system call. The line names that core; the node's programs should
//! run there. RATE, such as 1gbit, is the speed of each node's link. FILE becomes a program for
//! launchers that know ssh; it takes the nodes' addresses, binds what it starts to the node's cores
//! and gives it a host name of its own, because libraries take ranks on nodes of one name for
//! neighbours in shared memory.

use std::io::Read;
use std::path::Path;
use virtual_nodes::{Entrance, VirtualNodes};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mtu = arguments.next().map_or(Ok(1500), |text| text.parse())?;
    let options: Vec<String> = arguments.collect();
    let value = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
    let rate = value("link=").map(str::parse).transpose()?;
    let nodes = VirtualNodes::with_rate(count, mtu, rate)?;
    let on_receivers_core = value("receiver-core").is_some();
    let cores = std::thread::available_parallelism()?.get();
    if let Some(path) = value("enter=") {
        let entries = nodes.nodes().iter().map(|node| {
            let number = node.number();
            let own = number % cores;
            let [first, last] = if on_receivers_core { [own, own] } else { [0, cores - 1] };
            let named = format!("sh -c 'hostname node-{number}; exec \"$@\"' sh");
            let words = format!("taskset --cpu-list {first}-{last} unshare --uts {named}");
            (node.address().to_string(), node, words)
        });
        Entrance::new(entries).write(Path::new(path))?;
    }
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
