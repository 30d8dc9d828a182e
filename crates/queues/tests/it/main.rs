//! Integration tests of the crate `queues`.

mod append;
mod basic;
mod bulk;
mod cache_line;
mod channel;
mod child;
mod connections;
mod destinations;
mod express;
mod hostile;
mod job_processes;
#[allow(dead_code, reason = "the example's main and its launcher are not called")]
#[path = "../../examples/key_value.rs"]
mod key_value;
mod killed_senders;
mod name_server;
mod one_poll;
mod port_processes;
mod ports;
mod receive_queues;
mod registration;
mod tag_on;
mod window;

fn main() -> std::process::ExitCode {
    testing::run()
}
