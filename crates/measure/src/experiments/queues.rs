//! Costs of a message: overhead, latency and gap (Culler et al., "LogP: Towards a Realistic Model
//! of Parallel Computation", 1993) of every mechanism of [`queues`] against the size of
//! the message, with one sending thread and with several that share a queue, as in figures 4 to 7
//! of Ang et al. 1996.
//!
//! | column | what it is |
//! |---|---|
//! | `send_ns` | a batch of sends within the capacity, without receives, over their number: the sender's processor |
//! | `receive_ns` | a batch of receives while messages wait: the receiver's processor |
//! | `latency_ns` | half a round trip; with several threads over all their messages together |
//! | `gap_ns` | a stream, from the first send's begin to the last receive's end, over the number of messages |
//! | `floor_ns` | half a round trip of a bare word, which one side stores and the other loads, in a line for each direction |
//! | `ratio` | latency over floor, of the same round |
//!
//! A rank that is bound to a core has all its threads there: they take turns, and what several
//! threads show then is that a thread which is not running blocks no other, not how they fare side
//! by side.
//!
//! Between nodes, which share no memory, there is no floor, and a stream ends when an answer to its
//! last message has arrived, because each node has a clock of its own.
//!
//! In each round the floor and the mechanism take turns, so that both see the same machine; figures
//! are medians over the rounds with the tenths below and above.
//!
//! A message that is longer than a word or a line is several of them, and is complete when it lies
//! in the receiver's own buffer. Basic is measured in three forms: the unshared one, in a ring of 2048
//! lines; the same with locks, as threads share it in StarT-Voyager; and wide Express, which needs
//! none. Tag-On writes its data to the pool of the sender for each message, or once (resident), and each
//! receive reads them where they lie on its node. A multicast goes to both ranks; a send receives the
//! own copies of earlier ones. The records of an append buffer begin with the name of their sender.
//! Receivers look for about a microsecond and then sleep: senders always pay for the check for
//! sleeping receivers. The windows' remote memory commands are the exception, there the receiver
//! polls a word: write, iput and accumulate its own, read the sender's; only fetch waits. A stream of
//! these has no flow control; the receiver passes words over which others were written meanwhile.
//! Between nodes each of these commands but iput is a round trip: `send_ns` of write and accumulate,
//! and `receive_ns` of read and fetch, are its whole time. A stream of iput is complete with the
//! sender's flush, and the receiver takes no part in it.

mod append;
mod bulk;
mod crossover;
mod idle;
mod measure;
mod mechanism;
pub(super) mod message_path;
mod open;
mod part;
mod parts;
mod phases;
mod plan;
mod ring;
mod row;
mod tagged;
mod trial;
mod words;

pub use crossover::Crossover;
pub(super) use measure::latency;
pub use part::ENTRY;
pub use plan::Plan;
pub use row::QueueRow;
