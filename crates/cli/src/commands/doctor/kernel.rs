//! `tradewind doctor kernel`: interfaces of this node that take the kernel engine.

use crate::format::Format;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Table};
use serde::Serialize;
use std::process::ExitCode;

/// Reports whether this node can use the kernel engine, by loading its BPF program on each Ethernet
/// interface for a moment.
///
/// Jobs on several nodes use the kernel engine where the node service of every node can load it.
/// That requires the rights CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. The exit status is 1 if the
/// program can be loaded on no interface.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Loads the program on this interface only.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

#[derive(Serialize)]
struct KernelReport {
    interfaces: Vec<Interface>,
}

#[derive(Serialize)]
struct Interface {
    name: String,
    /// Instructions that the verifier examined; none where the program cannot be loaded, or where
    /// the kernel does not report them.
    verified_instructions: Option<u32>,
    /// Why it cannot be loaded.
    problem: Option<String>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let names = match &arguments.interface {
        Some(name) => vec![name.clone()],
        None => kernel::ethernet_interfaces()
            .map_err(|error| anyhow::anyhow!("no kernel engine here: {error}"))?,
    };
    let interfaces: Vec<Interface> = names.into_iter().map(try_out).collect();
    let report = KernelReport { interfaces };
    format.print(|| describe(&report), &report)?;
    let found = report.interfaces.iter().any(|interface| interface.problem.is_none());
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_out(name: String) -> Interface {
    match kernel::probe(&name) {
        Ok(verified_instructions) => Interface { name, verified_instructions, problem: None },
        Err(error) => {
            Interface { name, verified_instructions: None, problem: Some(error.to_string()) }
        }
    }
}

fn describe(report: &KernelReport) -> String {
    if report.interfaces.is_empty() {
        return "no interface of this node is an Ethernet with an address, which the kernel engine needs: collectives between \
                nodes use the agent engine".into();
    }
    let mut table = Table::new();
    table.load_preset(NOTHING);
    for Interface { name, verified_instructions, problem } in &report.interfaces {
        let outcome = problem.clone().unwrap_or_else(|| {
            let count =
                verified_instructions.map_or("unknown".to_owned(), |count| count.to_string());
            format!("takes the kernel engine; instructions that the verifier examined: {count}")
        });
        table.add_row([Cell::new(name), Cell::new(outcome)]);
    }
    table.to_string()
}
