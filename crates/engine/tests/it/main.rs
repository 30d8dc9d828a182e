//! Tests of the engine.

mod dropped;
mod errors;
mod linking;
mod observed;
mod outstanding;
mod ranks;
mod shortage;
mod streams;
