//! Arbitrary bytes as a frame between agents, and as the invitation of a job.
#![no_main]

use libfuzzer_sys::fuzz_target;
use network::invitation::Invitation;
use network::transport::frame::{Frame, HEAD_BYTES, payload_bytes};

fuzz_target!(|bytes: &[u8]| {
    if let Some(invitation) = Invitation::decode(bytes) {
        assert_eq!(Invitation::decode(&invitation.encode()), Some(invitation));
    }
    let Some((head, payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    if let Ok(frame) = Frame::decode(head, payload.to_vec()) {
        assert_eq!(payload_bytes(head), Ok(payload.len() as u64));
        let (head, payload) = frame.clone().encode();
        assert_eq!(Frame::decode(&head, payload), Ok(frame));
    }
});
