//! Bytes flow down a tree, whole or in segments, with or without a handshake before each message.

use crate::blocks::Segments;
use crate::builder::GraphBuilder;
use crate::tree::Tree;
use goal::graph::{Block, Blocks, Vertex};

/// Exchange before a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handshake {
    None,
    /// An empty message to the receiver and one back.
    Rendezvous,
}

const DATA: u32 = 0;
const REQUEST_TO_SEND: u32 = 1;
const CLEAR_TO_SEND: u32 = 2;

pub(super) fn build(
    builder: &mut GraphBuilder,
    tree: &Tree,
    data: Block,
    segments: Segments,
    handshake: Handshake,
) {
    for segment in segments.of(data) {
        let received = tree.parent.map(|parent| receive(builder, segment, parent, handshake));
        for child in &tree.children {
            let first = send(builder, segment, *child, handshake);
            // Empty data leave no trace of their order, and neither does a request to send.
            if let Some(received) = received
                && (segment.length == 0 || handshake == Handshake::Rendezvous)
            {
                builder.requires(first, received);
            }
        }
    }
}

fn receive(
    builder: &mut GraphBuilder,
    segment: Block,
    parent: u32,
    handshake: Handshake,
) -> Vertex {
    let received = builder.receive(segment, parent, DATA);
    if handshake == Handshake::Rendezvous {
        let requested = builder.receive(Blocks::none(), parent, REQUEST_TO_SEND);
        let ready = builder.send(Blocks::none(), parent, CLEAR_TO_SEND);
        builder.requires(ready, requested);
        // To be ready is to wait for the bytes.
        builder.irequires(ready, received);
    }
    received
}

/// Returns the first of the vertices added.
fn send(builder: &mut GraphBuilder, segment: Block, child: u32, handshake: Handshake) -> Vertex {
    if handshake == Handshake::None {
        return builder.send(segment, child, DATA);
    }
    let request = builder.send(Blocks::none(), child, REQUEST_TO_SEND);
    let ready = builder.receive(Blocks::none(), child, CLEAR_TO_SEND);
    let sent = builder.send(segment, child, DATA);
    builder.requires(sent, ready);
    request
}
