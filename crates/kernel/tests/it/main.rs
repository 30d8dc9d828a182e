//! The kernel engine on virtual nodes.

mod arithmetic;
mod conformance;
mod endurance;
mod garbage;
mod hostile_network;
mod leaving;
mod many_runs;
mod memory_pressure;
mod mismatches;
mod object;
mod packets;
mod pair;
mod rights;
mod strangers;
mod verifier;
mod wire;
mod world;

fn main() -> std::process::ExitCode {
    testing::run_on_threads(2)
}
