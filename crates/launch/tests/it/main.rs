//! Integration tests of the crate `launch`.

mod pmi;
