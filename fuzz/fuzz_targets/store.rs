//! Arbitrary bytes as what ranks and rank 0 send to each other while they exchange their addresses
//! over TCP: the handshake, and the frames behind it.
#![no_main]

use launch::store::messages::{
    ANSWER_BYTES, Frame, HELLO_BYTES, LENGTH_BYTES, answer, hello, read_answer, read_hello,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((rank, ranks, nonce)) = read_hello(bytes) {
        assert_eq!(bytes.len(), HELLO_BYTES);
        assert_eq!(hello(rank, ranks, &nonce), bytes);
    }
    if let Some((of_server, of_job, proof)) = read_answer(bytes) {
        assert_eq!(bytes.len(), ANSWER_BYTES);
        assert_eq!(answer(&of_server, &of_job, &proof), bytes);
    }
    // Frames that follow each other, as a connection delivers them.
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((contents, next)) = behind.split_at_checked(length) else { break };
        if let Some(frame) = Frame::decode(contents) {
            let again = frame.encode();
            assert_eq!(Frame::decode(&again[LENGTH_BYTES..]), Some(frame));
        }
        rest = next;
    }
});
