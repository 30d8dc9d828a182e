//! Arbitrary bytes as a frame between agents, and as the nodes of a job.
#![no_main]

use libfuzzer_sys::fuzz_target;
use network::job_nodes::JobNodes;
use network::transport::frame::{Frame, HEADER_BYTES, payload_bytes};

fuzz_target!(|bytes: &[u8]| {
    if let Some(job) = JobNodes::decode(bytes) {
        assert_eq!(JobNodes::decode(&job.encode()), Some(job));
    }
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(frame) = Frame::decode(header, payload.to_vec()) {
        assert_eq!(payload_bytes(header), Ok(payload.len() as u64));
        let (header, payload) = frame.clone().encode();
        assert_eq!(Frame::decode(&header, payload), Ok(frame));
    }
});
