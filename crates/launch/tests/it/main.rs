//! Integration tests of the crate `launch`.

mod environment;
mod pmi;
mod store;
