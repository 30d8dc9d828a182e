//! Exits of ranks, and the runs that they had started, as payloads of frames.

use crate::error::RankExit;

/// Encodes an exit: u8 1 if in order, 0 if failed; the length (u32) of the text, the text; then the
/// runs that the rank had started.
pub(super) fn encode_exit(how: &RankExit, started: &[(u32, u64)]) -> Vec<u8> {
    let (left, text) = match how {
        RankExit::Left => (1, ""),
        RankExit::Failed(text) => (0, text.as_str()),
    };
    let mut bytes = vec![left];
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend(encode_started(started));
    bytes
}

/// Encodes the runs that a rank had started: a communicator (u32) and a count (u64) each.
pub(super) fn encode_started(started: &[(u32, u64)]) -> Vec<u8> {
    let pair = |(communicator, count): &(u32, u64)| {
        communicator.to_le_bytes().into_iter().chain(count.to_le_bytes())
    };
    started.iter().flat_map(pair).collect()
}

/// Decodes the runs that a rank had started.
pub(super) fn decode_started(bytes: &[u8]) -> Option<Vec<(u32, u64)>> {
    let (pairs, rest) = bytes.as_chunks::<12>();
    let pair = |bytes: &[u8; 12]| {
        let (communicator, count) = bytes.split_first_chunk()?;
        Some((u32::from_le_bytes(*communicator), u64::from_le_bytes(count.try_into().ok()?)))
    };
    pairs.iter().map(pair).collect::<Option<Vec<_>>>().filter(|_| rest.is_empty())
}

/// Decodes an exit, and the runs that the rank had started.
pub(super) fn decode_exit(bytes: &[u8]) -> Option<(RankExit, Vec<(u32, u64)>)> {
    let (left, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let started = decode_started(rest)?;
    let how = match left {
        1 if text.is_empty() => RankExit::Left,
        0 => RankExit::Failed(String::from_utf8_lossy(text).into_owned()),
        _ => return None,
    };
    Some((how, started))
}
