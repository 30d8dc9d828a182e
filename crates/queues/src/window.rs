//! Windows: memory of one process on which other processes execute remote memory commands.
//!
//! A [`Window`] is a range of the job's segment with one owner. Other processes connect a
//! [`RemoteWindow`] to its offset. Their commands need no action of the owner's processor: the
//! owner may compute, sleep or be stopped. The owner can execute the same commands on its own
//! window.
//!
//! | command | effect at the target |
//! |---|---|
//! | [`put`](RemoteWindow::put), [`put_value`](RemoteWindow::put_value) | stores bytes, or one element in one step |
//! | [`get`](RemoteWindow::get), [`get_value`](RemoteWindow::get_value) | loads them |
//! | [`accumulate`](RemoteWindow::accumulate), [`accumulate_value`](RemoteWindow::accumulate_value) | combines elements with operands, each in one step, with every operation and type of [`goal::arithmetic`] |
//! | [`fetch_accumulate_value`](RemoteWindow::fetch_accumulate_value), [`compare_exchange_value`](RemoteWindow::compare_exchange_value) | change an element in one step, and load what it was |
//! | [`scatter`](RemoteWindow::scatter), [`gather`](RemoteWindow::gather) | stores or loads elements at the indices of an array |
//! | [`fetch_when`](RemoteWindow::fetch_when) | loads bytes as soon as a word has reached a value |
//! | [`flush`](RemoteWindow::flush) | completes the nonblocking forms of put and accumulate |
//! | [`notify`](RemoteWindow::notify) | increments a counter of the owner, and wakes the owner if it waits for it |
//!
//! (For appends to a buffer see [`crate::append`].)
//!
//! On the owner's node the calling processor executes a command. Nothing is queued, so a command
//! never waits: when it returns, it is complete at the origin and at the target. The exception is
//! [`fetch_when`](RemoteWindow::fetch_when), which returns a request that completes later (see
//! [`FetchRequest`]).
//!
//! On another node the node service executes a command when its frame arrives ([`ServedWindow`]).
//! The command returns with the answer, so it is complete at the origin and at the target, too.
//! Long ones are several commands of 8 KiB, which the node service executes in their order.
//! Commands that several threads have under way share frames.
//!
//! Put and accumulate have nonblocking forms: [`iput`](RemoteWindow::iput),
//! [`iput_value`](RemoteWindow::iput_value), [`iaccumulate`](RemoteWindow::iaccumulate),
//! [`iaccumulate_value`](RemoteWindow::iaccumulate_value), and
//! [`iput_signal`](RemoteWindow::iput_signal), which adds to a word after the bytes are stored. They
//! return when the bytes are copied, any number of them may be under way, and they are executed in the
//! order of their starts. A [`flush`](RemoteWindow::flush) completes them, and reports the first error.
//! On the owner's node they are the blocking ones.
//!
//! Order: a process that observes an effect of a command observes the effects of all commands, and of
//! all other operations, that its origin had completed before. So data stored before a flag are visible
//! when the flag is, and everything stored before a [`notify`](RemoteWindow::notify) when it is counted.
//! A send to another node is complete when its message is received: it may return before the value has
//! left, and a command may overtake it. Two concurrent commands on the same bytes
//! leave bytes of either; aligned elements of up to 8 bytes stay whole.
//!
//! A window starts as zeros. It needs 2.3 KiB of the segment beside its bytes, most of it for the
//! table of connected processes.
//!
//! After Rosing and Saltz, *Low Latency Messages on Distributed Memory Multiprocessors* (1995),
//! sections 4.1 and 5.
//!
//! ```
//! use queues::window::{RemoteWindow, Window};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let window = Window::create(&arena, 4096)?;
//! // Another process maps the same segment and receives the offset.
//! let remote = RemoteWindow::connect(&segment, window.offset())?;
//! remote.put(100, b"from far away")?;
//! remote.notify()?;
//! window.wait_for_notifications(1, None);
//! let mut bytes = [0; 13];
//! window.local().get(100, &mut bytes)?;
//! assert_eq!(&bytes, b"from far away");
//! # Ok(())
//! # }
//! ```

mod access;
mod carried;
mod changes;
mod condition;
mod error;
mod fetch;
mod indirect;
mod link;
mod memory;
mod own;
mod progress;
mod remote;
mod served;
mod wire;

pub use carried::{CAPACITY, SLOTS, WindowEnds, WindowRoute};
pub use condition::Condition;
pub use error::WindowError;
pub use fetch::{Fetch, FetchRequest};
pub use link::WindowLink;
pub use own::{Served, Window};
pub use remote::RemoteWindow;
pub use served::ServedWindow;
pub use wire::{LINE_BYTES, MAX_LINES};
