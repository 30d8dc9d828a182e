//! Bytes flow down a tree, whole or in segments, with or without a handshake before each message.

use crate::blocks::Segments;
use crate::drawing::Drawing;
use crate::tree::Tree;
use goal::graph::{Block, Blocks, Vertex};

/// What goes before a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handshake {
    None,
    /// An empty message to the receiver and one back.
    Rendezvous,
}

const DATA: u32 = 0;
const ANNOUNCEMENT: u32 = 1;
const READY: u32 = 2;

pub(super) fn draw(
    drawing: &mut Drawing,
    tree: &Tree,
    data: Block,
    segments: Segments,
    handshake: Handshake,
) {
    for segment in segments.of(data) {
        let received = tree.parent.map(|parent| receive(drawing, segment, parent, handshake));
        for child in &tree.children {
            let first = send(drawing, segment, *child, handshake);
            // Empty data leave no trace of their order, and neither does an announcement.
            if let Some(received) = received
                && (segment.length == 0 || handshake == Handshake::Rendezvous)
            {
                drawing.requires(first, received);
            }
        }
    }
}

fn receive(drawing: &mut Drawing, segment: Block, parent: u32, handshake: Handshake) -> Vertex {
    let received = drawing.receive(segment, parent, DATA);
    if handshake == Handshake::Rendezvous {
        let announced = drawing.receive(Blocks::none(), parent, ANNOUNCEMENT);
        let ready = drawing.send(Blocks::none(), parent, READY);
        drawing.requires(ready, announced);
        // To be ready is to wait for the bytes.
        drawing.irequires(ready, received);
    }
    received
}

/// Gives the first of the vertices drawn.
fn send(drawing: &mut Drawing, segment: Block, child: u32, handshake: Handshake) -> Vertex {
    if handshake == Handshake::None {
        return drawing.send(segment, child, DATA);
    }
    let announcement = drawing.send(Blocks::none(), child, ANNOUNCEMENT);
    let ready = drawing.receive(Blocks::none(), child, READY);
    let sent = drawing.send(segment, child, DATA);
    drawing.requires(sent, ready);
    announcement
}
