//! Tests of the engine.

mod errors;
mod linking;
mod shortage;
mod streams;
