//! Tests of the engine.

mod shortage;
mod streams;
