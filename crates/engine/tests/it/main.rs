//! Tests of the engine.

mod errors;
mod linking;
mod observed;
mod outstanding;
mod shortage;
mod streams;
