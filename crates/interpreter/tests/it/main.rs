//! Tests of the interpreter.

mod adversarial_network;
mod conformance;
mod events;
mod external_buffer;
mod unexpected;
