//! Arbitrary bytes as what the name server of another node sends: as frames, and as both halves of
//! a conversation, between which streams are accepted and messages consumed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use network::streams::frame::{Frame, PROTOCOL};
use network::streams::multiplexer::{Multiplexer, Side, StreamEvent};
use network::streams::seal::{Seal, SessionKeys};

const KEYS: SessionKeys = SessionKeys { send: [1; 16], receive: [2; 16] };

/// Appends the frames of these bytes with their codes, and the rest as it is.
fn sealed(seal: &mut Seal, mut bytes: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    while let Ok(Some((frame, length))) = Frame::decode(bytes) {
        seal.encode(&frame, &mut sealed);
        bytes = &bytes[length..];
    }
    sealed.extend_from_slice(bytes);
    sealed
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((frame, length))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes[..length]);
    }
    let hello = Frame::Hello { protocol: PROTOCOL, version: "" };
    for side in [Side::Connecting, Side::Accepting] {
        let mut end = Multiplexer::new(side, KEYS);
        end.open(b"name");
        let mut events = Vec::new();
        let mut seal = Seal::new(KEYS.receive);
        let mut start = Vec::new();
        seal.encode(&hello, &mut start);
        let half = bytes.len() / 2;
        let rest = [&bytes[..half], &bytes[half..]].map(|piece| sealed(&mut seal, piece));
        for piece in [start].into_iter().chain(rest) {
            if end.receive(&piece, &mut events).is_err() {
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
