//! Arbitrary bytes as a GOAL text file.
#![no_main]

use goal::check::{self, GlobalOptions};
use goal::{binary, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let graphs = match text::read_bytes(bytes) {
        Ok(graphs) => graphs,
        Err(error) => return assert!(error.to_string().starts_with("line ")),
    };
    let written = text::write(&graphs).expect("what was read can be written");
    let again = text::read(&written).expect("what was written can be read");
    assert_eq!(binary::write(&again), binary::write(&graphs), "and means the same");
    if let Err(problems) = check::global(&graphs, &GlobalOptions { eager_limit: 32 }) {
        assert!(!check::list(&problems).is_empty());
    }
});
