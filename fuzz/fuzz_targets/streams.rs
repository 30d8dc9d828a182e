//! Arbitrary bytes as what the name server of another node sends: as frames, and as both halves of
//! a conversation, between which streams are accepted and messages consumed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use network::streams::frame::{Frame, PROTOCOL};
use network::streams::multiplexer::{Multiplexer, Side, StreamEvent};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((frame, length))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes[..length]);
    }
    let mut greeting = Vec::new();
    Frame::Greeting { protocol: PROTOCOL, version: "" }.encode(&mut greeting);
    for side in [Side::Connecting, Side::Accepting] {
        let mut end = Multiplexer::new(side);
        end.open(b"name");
        let mut events = Vec::new();
        let half = bytes.len() / 2;
        for piece in [&greeting, &bytes[..half], &bytes[half..]] {
            if end.receive(piece, &mut events).is_err() {
                break;
            }
            for event in events.drain(..) {
                match event {
                    StreamEvent::Opened { stream, .. } => end.accept(stream),
                    StreamEvent::Message { stream, bytes, .. } => end.consumed(stream, bytes.len()),
                    StreamEvent::Accepted { stream } => drop(end.send(stream, 1, b"message")),
                    StreamEvent::Closed { stream, code } => end.close(stream, code),
                    StreamEvent::Left { .. } | StreamEvent::Refused { .. } => {}
                }
            }
        }
    }
});
