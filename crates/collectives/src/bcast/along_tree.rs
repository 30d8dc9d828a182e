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
const ANNOUNCEMENT: u32 = 1;
const READY: u32 = 2;

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
            // Empty data leave no trace of their order, and neither does an announcement.
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
        let announced = builder.receive(Blocks::none(), parent, ANNOUNCEMENT);
        let ready = builder.send(Blocks::none(), parent, READY);
        builder.requires(ready, announced);
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
    let announcement = builder.send(Blocks::none(), child, ANNOUNCEMENT);
    let ready = builder.receive(Blocks::none(), child, READY);
    let sent = builder.send(segment, child, DATA);
    builder.requires(sent, ready);
    announcement
}
