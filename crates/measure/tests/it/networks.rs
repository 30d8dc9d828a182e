//! Paths between two nodes, one of which ends.

use measure::experiments::networks::NetworkPath;
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::net::Ipv4Addr;
use std::thread;

testing::tests![a_path_whose_other_end_is_dropped_fails];

const KEY: [u8; 16] = [7; 16];

/// A node that fails drops its path; the other one must not wait for it.
fn a_path_whose_other_end_is_dropped_fails() {
    let listeners = [0, 1].map(|_| Listener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let addresses = [listeners[0].address(), listeners[1].address()];
    let mut nodes = 0..;
    let [dropped, mut kept] = listeners
        .map(|listener| {
            let node = nodes.next().unwrap_or_default();
            thread::spawn(move || {
                let tcp = Tcp::connect(listener, node, &addresses, KEY, Timeouts::default());
                let tcp = tcp.expect("both nodes connect");
                NetworkPath::new(node, Box::new(tcp)).expect("an agent starts")
            })
        })
        .map(|path| path.join().expect("it did not panic"));
    drop(dropped);
    let error = kept.measure(0, 1).expect_err("no process answers");
    assert!(!error.to_string().is_empty());
}
