//! Tests of the engine.

mod errors;
mod linking;
mod observed;
mod outstanding;
mod ranks;
mod shortage;
mod streams;
