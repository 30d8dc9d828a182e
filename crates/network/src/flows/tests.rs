//! Flows without a node service, their ends and their transport in one thread.

mod channels;
mod kinds;
mod queues;
mod windows;

use crate::transport::frame::Frame;
use crate::transport::payloads::NoPayloads;
use crate::transport::records::flows::{self as record, Content, FlowId};
use crate::transport::{Arrival, Transport, memory};

const LIMIT: u64 = 1 << 20;
const PORT: u64 = 5;

/// Returns a record.
fn of(id: FlowId, content: Content<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    id.append(content, &mut record);
    record
}

/// Sends what is queued. Returns the records that the other node has got, each as its flow, its
/// class, and its number of words, its rank or its credit.
fn sent_to(
    transport: &mut memory::Memory,
    other: &mut memory::Memory,
) -> Vec<(FlowId, &'static str, u64)> {
    transport.flush(&mut NoPayloads);
    let mut arrivals = Vec::new();
    other.poll(&mut NoPayloads, &mut arrivals).expect("it works");
    let mut all = Vec::new();
    for arrival in arrivals {
        let Arrival::Frame { frame: Frame::Flows { records }, .. } = arrival else {
            panic!("{arrival:?}");
        };
        let mut rest = &records[..];
        while let Some((id, content, behind)) = record::split_first(rest) {
            let (name, word) = match content {
                Content::Data(bytes) => ("data", bytes.len() as u64 / 8),
                Content::Exit(rank) => ("exit", rank.into()),
                Content::Credit(bytes) => ("credit", bytes),
                Content::SenderClosed => ("sender closed", 0),
                Content::ReceiverClosed => ("receiver closed", 0),
            };
            all.push((id, name, word));
            rest = behind;
        }
    }
    all
}
