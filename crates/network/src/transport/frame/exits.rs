//! Exits of ranks, and the runs that they had started, as payloads of frames.

use crate::error::RankExit;
use crate::run_counts::StartedRuns;

/// Encodes an exit: u8 1 if in order, 0 if failed; the length (u32) of the text, the text; then the
/// runs that the rank had started.
pub(super) fn encode_exit(how: &RankExit, started: &[StartedRuns]) -> Vec<u8> {
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

/// Encodes the runs that a rank had started: the first and the last communicator (u32 each) and a
/// count (u64) each.
pub(super) fn encode_started(started: &[StartedRuns]) -> Vec<u8> {
    let entry = |StartedRuns { first, last, count }: &StartedRuns| {
        let communicators = [first.to_le_bytes(), last.to_le_bytes()];
        communicators.into_iter().flatten().chain(count.to_le_bytes())
    };
    started.iter().flat_map(entry).collect()
}

/// Decodes the runs that a rank had started.
pub(super) fn decode_started(bytes: &[u8]) -> Option<Vec<StartedRuns>> {
    let (entries, rest) = bytes.as_chunks::<16>();
    let entry = |bytes: &[u8; 16]| {
        let (first, rest) = bytes.split_first_chunk()?;
        let (last, count) = rest.split_first_chunk()?;
        let [first, last] = [first, last].map(|number| u32::from_le_bytes(*number));
        Some(StartedRuns { first, last, count: u64::from_le_bytes(count.try_into().ok()?) })
    };
    entries.iter().map(entry).collect::<Option<Vec<_>>>().filter(|_| rest.is_empty())
}

/// Decodes an exit, and the runs that the rank had started.
pub(super) fn decode_exit(bytes: &[u8]) -> Option<(RankExit, Vec<StartedRuns>)> {
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
