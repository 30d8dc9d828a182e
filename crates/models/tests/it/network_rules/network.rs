//! The rules of pLogP played through, message by message: knows nothing of trees, rounds or
//! formulas.

use models::parameters::Parameters;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A message. Each rank sends its messages in the order of the list.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    /// Places in the list of messages that the sender must have received before.
    pub(crate) after: Vec<usize>,
    /// The receiver combines it with what it has before it counts as received.
    pub(crate) combined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The bytes have come over the network, but for what the processor still has to do. In the
    /// order of sending.
    Receive(Reverse<usize>),
    /// A rank looks whether it can send its next message.
    Send(u32),
    /// The receiver has the message.
    Done(usize),
}

struct Event {
    time: f64,
    what: What,
}

impl Ord for Event {
    /// The earliest is the greatest; at one time, what is done comes first, and what can be passed
    /// on next.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(self.what.cmp(&other.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

#[derive(Clone, Default)]
struct Rank {
    /// Messages still to be sent, last first.
    unsent: Vec<usize>,
    /// From when on it may send, its processor is free, and another message can come in.
    may_send: f64,
    processor: f64,
    may_receive: f64,
}

/// When the last message has been received, in microseconds. Messages that wait for each other are
/// never received, which is a mistake in the schedule.
pub(crate) fn run(network: &Parameters, combine: f64, ranks: u32, messages: &[Message]) -> f64 {
    let mut state = vec![Rank::default(); ranks as usize];
    for (index, message) in messages.iter().enumerate().rev() {
        state[message.from as usize].unsent.push(index);
    }
    let mut received = vec![false; messages.len()];
    let mut events: BinaryHeap<Event> =
        (0..ranks).map(|rank| Event { time: 0.0, what: What::Send(rank) }).collect();
    let mut last = 0.0;
    while let Some(Event { time, what }) = events.pop() {
        match what {
            What::Send(number) => {
                let rank = &mut state[number as usize];
                let Some(&next) = rank.unsent.last() else { continue };
                let message = &messages[next];
                if !message.after.iter().all(|before| received[*before]) {
                    continue; // looks again when something has been received
                }
                let free = rank.may_send.max(rank.processor);
                if time < free {
                    events.push(Event { time: free, what });
                    continue;
                }
                rank.unsent.pop();
                let gap = network.gap(message.bytes);
                rank.processor = time + network.send_overhead(message.bytes);
                rank.may_send = time + gap;
                events.push(Event { time: rank.may_send, what });
                let receiver = &mut state[message.to as usize];
                let begins = (time + network.latency()).max(receiver.may_receive);
                receiver.may_receive = begins + gap;
                let overhead = network.receive_overhead(message.bytes);
                events.push(Event {
                    time: begins + gap - overhead,
                    what: What::Receive(Reverse(next)),
                });
            }
            What::Receive(Reverse(index)) => {
                let message = &messages[index];
                let receiver = &mut state[message.to as usize];
                if time < receiver.processor {
                    events.push(Event { time: receiver.processor, what });
                    continue;
                }
                let combining = if message.combined { combine * message.bytes as f64 } else { 0.0 };
                receiver.processor = time + network.receive_overhead(message.bytes) + combining;
                events.push(Event { time: receiver.processor, what: What::Done(index) });
            }
            What::Done(index) => {
                received[index] = true;
                last = time;
                events.push(Event { time, what: What::Send(messages[index].to) });
            }
        }
    }
    assert!(received.iter().all(|received| *received), "the schedule never ends: {messages:?}");
    last
}
