//! Integration tests of the crate `queues`.

mod append;
mod basic;
mod bulk;
mod cache_line;
mod channel;
#[allow(dead_code, reason = "the tests of the crate `service` use the rest")]
mod child;
mod express;
mod killed_senders;
mod one_poll;
mod receive_queues;
mod remote;
mod tag_on;
mod taken;
mod window;

fn main() -> std::process::ExitCode {
    testing::run()
}
