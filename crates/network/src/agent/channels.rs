//! Channels between nodes.
//!
//! ```text
//!  rank                    node service                     other node
//!  Sender ── ring ──► ChannelRouter ── frames ──► ChannelRouter ── ring ──► Receiver
//! ```
//!
//! A channel between nodes has a ring on both, each in the memory of the rank at its end. A send
//! stores into the one, as in a channel on one node, and a receive reads from the other. The agent
//! takes the values out of the rings of senders, joins those for one node to frames, and the agent
//! there puts them into the rings of receivers.
//!
//! A channel is named by its sender, its receiver and a port, a number that all ranks of a
//! communicator agree on. Each end opens its own side, so a rank opens channels in its own name
//! only. Two bits of the port, which no other port has, tell the channels of the commands on windows
//! and of their answers ([`COMMANDS`], [`ANSWERS`]). An agent takes values from the node of the sender
//! only, and credit from that of the receiver.
//!
//! **Credit.** Both rings have the same number of slots. The agent of the sender sends no more
//! values than the receiver's ring has free slots, and that of the receiver reports the slots that
//! are released. So what has arrived is always put into the ring at once, an agent keeps nothing,
//! and a receiver that is behind stops its own sender alone.
//!
//! **Ends.** An end that is closed is reported to the other agent, behind all values. The values of
//! a rank that has exited are sent before the end of its channel is reported, however late its exit
//! is known. When a node is lost, the channels with it end. An agent closes its end of a ring only
//! for these reasons, and a rank that finds it closed learns by its
//! [exit](crate::backend::RankExits) whether its peer has failed.
//!
//! **Windows.** A rank reaches a window of another node through two channels of lines, for its
//! commands and for their answers. Their far ends are no rings: the agent of the owner's node executes
//! the commands when they arrive, in the turn in which it sends the answers. It accepts commands of
//! the ranks that the owner has named, each from its own node. Its credit for answers is that of any
//! sender, and it keeps the commands that it has no credit to answer, at most as many lines as a ring
//! has slots. A damaged command closes the two channels, and nothing else. The agent closes them, too,
//! when the owner withdraws the window, and as an answer to commands that arrive later. When the
//! owner exits, the agents of the other nodes close them as they process the report of the exit,
//! which follows all answers: a command that still lies in a ring then is lost.
//!
//! **Sleep.** A sender that finds no sleeper stores its value and loads one word. Before the agent
//! sleeps, it registers as a sleeper on the word of each ring that it waits for, and of each condition
//! on a window; a notification is a write to its event. Before a sleep for which it registers nowhere
//! anew, it passes one barrier for all of them. For the first sleep it sets a timer instead, because
//! the barrier takes longer than a value, and values that follow each other end the sleep before.

pub(super) mod router;
mod windows;

pub use super::channel_end::ChannelEnd;

/// Mark in the port of the channel of the commands on a window.
pub const COMMANDS: u64 = 1 << 31;
/// Mark in the port of the channel of the answers. The ports of windows themselves, and those of all
/// other channels, have neither mark.
pub const ANSWERS: u64 = 1 << 30;

/// Largest number of slots of all channels of a rank. The agent has a word for each that was used,
/// as the rank has one in its own memory.
pub(crate) const MOST_SLOTS: u64 = 1 << 27;
