//! Tests of the engine.

mod errors;
mod linking;
mod outstanding;
mod shortage;
mod streams;
