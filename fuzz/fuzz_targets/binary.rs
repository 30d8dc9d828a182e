//! Arbitrary bytes as a binary GOAL file.
#![no_main]

use goal::binary;
use goal::check::{self, GlobalOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The magic number is put right: nothing is to be learned behind a wrong one.
    let mut bytes = bytes.to_vec();
    if let Some(magic) = bytes.get_mut(..8) {
        magic.copy_from_slice(&4223u64.to_le_bytes());
    }
    let graphs = match binary::read(&bytes) {
        Ok(graphs) => graphs,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = binary::write(&graphs).expect("what was read can be written");
    assert_eq!(written.len(), bytes.len(), "no byte of an accepted file is left over");
    assert_eq!(binary::read(&written).as_ref(), Ok(&graphs), "what was written means the same");
    if let Err(problems) = check::global(&graphs, &GlobalOptions { eager_limit: 32 }) {
        assert!(!check::list(&problems).is_empty());
    }
});
