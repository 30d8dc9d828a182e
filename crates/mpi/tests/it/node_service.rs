//! This test binary as the `tradewind` command, which runs the node service.

use engine::node::EngineKind;
use service::spawn::{ServeOptions, serve};
use std::process::ExitCode;

/// Runs the node service if the command line is `internal serve NAME --ranks N …`.
pub(crate) fn run_if_named() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [internal, command, name, rest @ ..] = &arguments[..] else { return None };
    if (internal.as_str(), command.as_str()) != ("internal", "serve") {
        return None;
    }
    let text = |option: &str| {
        let at = rest.iter().position(|word| word == option)?;
        rest.get(at + 1)
    };
    let value =
        |option: &str| text(option).expect("the option is there").parse().expect("a number");
    let options = ServeOptions {
        name: name.clone(),
        ranks: value("--ranks"),
        engine: EngineKind::Peers,
        cores: value("--cores"),
        listen: text("--listen").map(|address| address.parse().expect("an address")),
        is_embedded: rest.iter().any(|word| word == "--embedded"),
    };
    Some(if serve(&options).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
