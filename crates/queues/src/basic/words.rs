//! Bytes in and out of words that another process may change meanwhile.

use crate::sync::{AtomicU64, Ordering};

/// Copies `bytes` into words; the rest of the last one is 0. What lies beyond the words is left
/// out.
pub(crate) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, last) = bytes.as_chunks::<8>();
    let mut words = words.iter();
    for (chunk, word) in whole.iter().zip(words.by_ref()) {
        // Relaxed, all of them: a stamp publishes and protects the words.
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        let mut padded = [0; 8];
        padded[..last.len()].copy_from_slice(last);
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
}

/// Copies words into `bytes`, each word loaded once. What would come from beyond the words stays as
/// it is.
pub(crate) fn load_bytes(words: &[AtomicU64], bytes: &mut [u8]) {
    let (whole, last) = bytes.as_chunks_mut::<8>();
    let mut words = words.iter();
    for (chunk, word) in whole.iter_mut().zip(words.by_ref()) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        last.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..last.len()]);
    }
}
