//! Integration tests of the crate `queues`.

mod append;
mod basic;
mod bulk;
mod cache_line;
mod channel;
#[allow(dead_code, reason = "the tests of the crate `names` use the rest")]
mod child;
mod ends;
mod killed_senders;
mod kinds;
mod one_poll;
mod receive_queues;
mod remote;
mod tag_on;
mod taken;
mod window;

/// Types of the queues in `ends`, which other crates name differently.
mod names {
    pub(crate) use queues::append::{Receiver as AppendReceiver, Sender as AppendSender};
    pub(crate) use queues::basic::{BasicHeader, Receiver as BasicReceiver, Sender as BasicSender};
    pub(crate) use queues::cache_line::{
        CacheLineHeader, CacheLineMessage, CacheLineReceiver, CacheLineSender,
    };
    pub(crate) use queues::channel::Sender as ChannelSender;
    pub(crate) use queues::error::{RecvError, SendError};
    pub(crate) use queues::express::{ExpressMessage, ExpressReceiver, ExpressSender};
    pub(crate) use queues::id::SourceName;
    pub(crate) type ChannelReceiver = queues::channel::Receiver<u64>;
}

fn main() -> std::process::ExitCode {
    testing::run()
}
