//! Tests of the engine.

mod errors;
mod shortage;
mod streams;
