//! Patterns of messages, each one schedule: the start of a run is paid once, and lies before the
//! first reading of the clock.
//!
//! Every pattern begins with a message to and fro, so that both ranks are in the run when the clock
//! is read. Operations that become ready together execute in the order of their vertices: a
//! timestamp behind sends is read when they have been sent, whether or not they have arrived.

use goal::arithmetic::{Arithmetic, DataType};
use tradewind::graph::{Access, Block, Graph, Vertex};

/// The rank that reads the clock.
pub(super) const FIRST: u32 = 0;
/// Number of ranks that exchange messages. More have nothing to do, but take part in every run: two
/// ranks of one node use the engine between nodes only in a communicator that has other nodes.
pub(super) const PAIR: u32 = 2;
/// Most bytes of the buffer that a pattern's data lie in.
pub(super) const LONGEST_BUFFER: u64 = 4 << 20;
/// Timestamps, of eight bytes, that come back from a run.
pub(super) const TIMESTAMPS: usize = 8;

/// A graph with the buffers of every pattern.
struct Sheet {
    graph: Graph,
    data: Block,
    length: u64,
    timestamps: Block,
}

impl Sheet {
    fn new((rank, ranks): (u32, u32), length: u64) -> Self {
        let mut graph = Graph::new(rank, ranks);
        let data = graph.buffer(Access::InOut, length);
        let timestamps = graph.buffer(Access::Output, 8 * TIMESTAMPS as u64);
        Sheet { graph, data, length, timestamps }
    }

    fn peer(&self) -> u32 {
        1 - self.graph.rank()
    }

    fn timestamp(&mut self, number: u64) -> Vertex {
        self.graph.timestamp(self.timestamps.part(8 * number, 8))
    }

    fn send(&mut self, data: Block) -> Vertex {
        self.graph.send(data, self.peer(), 0)
    }

    fn receive(&mut self, data: Block) -> Vertex {
        self.graph.receive(data, self.peer(), 0)
    }

    /// Nothing, to be sent.
    fn nothing(&self) -> Block {
        self.data.part(0, 0)
    }

    /// The place of the message of this number.
    fn place(&self, number: u32, bytes: u64) -> Block {
        self.data.part(u64::from(number) * bytes, bytes)
    }

    /// To and fro; the vertex after which both ranks are in the run.
    fn meet(&mut self) -> Vertex {
        let nothing = self.nothing();
        if self.graph.rank() == FIRST {
            let sent = self.send(nothing);
            let answer = self.receive(nothing);
            self.graph.requires(answer, sent);
            answer
        } else {
            let heard = self.receive(nothing);
            let sent = self.send(nothing);
            self.graph.requires(sent, heard);
            sent
        }
    }

    fn after(&mut self, before: Vertex, vertex: Vertex) -> Vertex {
        self.graph.requires(vertex, before);
        vertex
    }

    /// So many messages of a size, each to or from its place.
    fn each(
        &mut self,
        (bytes, count): (u64, u32),
        one: impl Fn(&mut Self, Block) -> Vertex,
    ) -> Vec<Vertex> {
        (0..count).map(|number| one(self, self.place(number, bytes))).collect()
    }
}

/// The graph of a rank: two ranks meet, and then build the rest.
fn pattern(
    (rank, ranks): (u32, u32),
    length: u64,
    build: impl FnOnce(&mut Sheet, Vertex),
) -> Graph {
    let mut sheet = Sheet::new((rank, ranks), length);
    if rank < PAIR {
        let both_there = sheet.meet();
        build(&mut sheet, both_there);
    }
    sheet.graph
}

/// Bytes of the buffer that the patterns of so many messages of a size need.
pub(super) fn buffer_bytes(bytes: u64, count: u32) -> u64 {
    (2 * bytes * u64::from(count)).clamp(8, LONGEST_BUFFER)
}

/// Messages to and fro, each sent on from where the one before was received: what algorithms do
/// that pass data on. Receives wait for nothing but their messages, as those of algorithms do; only
/// the last one goes to where the first message came from, so that the next run has fresh data too.
/// Timestamps 0 and 1 are around `count` round trips.
pub(super) fn round_trips(rank: (u32, u32), length: u64, (bytes, count): (u64, u32)) -> Graph {
    pattern(rank, length, |sheet, both_there| {
        if sheet.graph.rank() != FIRST {
            for trip in 0..count {
                let place = sheet.place(trip, bytes);
                let received = sheet.receive(place);
                let answer = sheet.send(place);
                sheet.after(received, answer);
            }
            return;
        }
        let begin = sheet.timestamp(0);
        let mut last = sheet.after(both_there, begin);
        let mut first_sent = None;
        for trip in 0..count {
            let place = sheet.place(trip, bytes);
            let sent = sheet.send(place);
            sheet.after(last, sent);
            let first_sent = *first_sent.get_or_insert(sent);
            let next = sheet.place((trip + 1) % count, bytes);
            last = sheet.receive(next);
            if trip + 1 == count {
                sheet.after(first_sent, last);
            }
        }
        let end = sheet.timestamp(1);
        sheet.after(last, end);
    })
}

/// Messages one after the other to different places, and an empty answer when all have arrived.
/// Timestamps 0 and 1 are around all of it.
pub(super) fn stream(rank: (u32, u32), length: u64, messages: (u64, u32)) -> Graph {
    pattern(rank, length, |sheet, both_there| {
        let nothing = sheet.nothing();
        if sheet.graph.rank() == FIRST {
            let begin = sheet.timestamp(0);
            sheet.after(both_there, begin);
            for sent in sheet.each(messages, Sheet::send) {
                sheet.after(begin, sent);
            }
            let answer = sheet.receive(nothing);
            sheet.after(begin, answer);
            let end = sheet.timestamp(1);
            sheet.after(answer, end);
        } else {
            let received = sheet.each(messages, Sheet::receive);
            let answer = sheet.send(nothing);
            for one in received {
                sheet.after(both_there, one);
                sheet.after(one, answer);
            }
        }
    })
}

/// Sends to a rank that does not receive yet, and then receives of messages that wait. Timestamps 0
/// and 1 are around nothing, 1 and 2 around the sends, 3 and 4 around the receives; the data are
/// written anew before they are sent.
pub(super) fn overheads(rank: (u32, u32), length: u64, messages: (u64, u32)) -> Graph {
    pattern(rank, length, |sheet, both_there| {
        let nothing = sheet.nothing();
        let its_timestamps = sheet.timestamps.part(24, 16);
        if sheet.graph.rank() == FIRST {
            let (bytes, count) = messages;
            let all = u64::from(count) * bytes;
            let fresh = sheet.data.part(0, all);
            let old = sheet.data.part(sheet.length / 2, all);
            let written = sheet.graph.copy(old, fresh);
            sheet.after(both_there, written);
            let nothing_between = sheet.timestamp(0);
            sheet.after(written, nothing_between);
            let begin = sheet.timestamp(1);
            sheet.after(nothing_between, begin);
            for sent in sheet.each(messages, Sheet::send) {
                sheet.after(begin, sent);
            }
            let end = sheet.timestamp(2);
            sheet.after(begin, end);
            let all_sent = sheet.send(nothing);
            sheet.after(end, all_sent);
            sheet.receive(its_timestamps);
        } else {
            let received = sheet.each(messages, Sheet::receive);
            let all_sent = sheet.receive(nothing);
            sheet.after(both_there, all_sent);
            let begin = sheet.timestamp(3);
            sheet.after(all_sent, begin);
            for one in received {
                sheet.after(begin, one);
            }
            let end = sheet.timestamp(4);
            sheet.after(begin, end);
            let told = sheet.send(its_timestamps);
            sheet.after(end, told);
        }
    })
}

/// One message from the first rank to the second, or none. A copy of no bytes comes first, so that
/// there is something to run.
pub(super) fn lone_message((rank, ranks): (u32, u32), bytes: u64, has_message: bool) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let data = graph.buffer(Access::InOut, buffer_bytes(bytes, 1));
    let nothing = data.part(0, 0);
    let begin = graph.copy(nothing, nothing);
    let data = data.part(0, bytes);
    let message = match rank {
        _ if !has_message => return graph,
        FIRST => graph.send(data, 1, 0),
        1 => graph.receive(data, FIRST, 0),
        _ => return graph,
    };
    graph.requires(message, begin);
    graph
}

/// An empty message to and fro and nothing else, with a private buffer of this length if it has
/// one.
pub(super) fn bare_round_trip((rank, ranks): (u32, u32), private_bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    if private_bytes > 0 {
        graph.buffer(Access::Input, private_bytes);
    }
    let nothing = graph.scratchpad(8).part(0, 0);
    let (first, second) = match rank {
        FIRST => (graph.send(nothing, 1, 0), graph.receive(nothing, 1, 0)),
        PAIR.. => return graph,
        _ => (graph.receive(nothing, 0, 0), graph.send(nothing, 0, 0)),
    };
    graph.requires(second, first);
    graph
}

/// So many combinations of as many bytes, one after the other; every rank for itself.
pub(super) fn combinations((rank, ranks): (u32, u32), bytes: u64, count: u32) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let data = graph.scratchpad(2 * bytes);
    let left = data.part(0, bytes);
    let right = data.part(bytes, bytes);
    let mut last = None;
    for _ in 0..count {
        let sum = graph.local(Arithmetic::Add, DataType::F64, left, right, left);
        if let Some(last) = last.replace(sum) {
            graph.requires(sum, last);
        }
    }
    graph
}

/// One combination of as many bytes, with timestamps 0 and 1 around it; every rank for itself.
pub(super) fn combination(rank: u32, ranks: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let data = graph.buffer(Access::InOut, 2 * bytes);
    let timestamps = graph.buffer(Access::Output, 16);
    let left = data.part(0, bytes);
    let right = data.part(bytes, bytes);
    let begin = graph.timestamp(timestamps.part(0, 8));
    let sum = graph.local(Arithmetic::Add, DataType::F64, left, right, left);
    let end = graph.timestamp(timestamps.part(8, 8));
    graph.requires(sum, begin);
    graph.requires(end, sum);
    graph
}
