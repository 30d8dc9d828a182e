//! Copies of bytes into and out of words that another process may change concurrently.

use crate::sync::{AtomicU64, Ordering};

/// Copies `bytes` into words, padding the last one with zeros. Ignores bytes beyond the words.
pub fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, last) = bytes.as_chunks::<8>();
    let mut words = words.iter();
    for (chunk, word) in whole.iter().zip(words.by_ref()) {
        // Relaxed throughout: a header word publishes and protects the words.
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        let mut padded = [0; 8];
        padded[..last.len()].copy_from_slice(last);
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
}

/// Copies words into `bytes`, loading each word once. Bytes beyond the words keep their values.
pub fn load_bytes(words: &[AtomicU64], bytes: &mut [u8]) {
    let (whole, last) = bytes.as_chunks_mut::<8>();
    let mut words = words.iter();
    for (chunk, word) in whole.iter_mut().zip(words.by_ref()) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let (false, Some(word)) = (last.is_empty(), words.next()) {
        last.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..last.len()]);
    }
}
