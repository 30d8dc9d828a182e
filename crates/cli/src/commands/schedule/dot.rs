//! All ranks' graphs in the language of Graphviz.

use super::layout::{Layout, shown};
use goal::graph::{Graph, Until};
use std::fmt::Write;

/// A cluster for each rank; dependencies are thin, messages thick.
pub(super) fn draw(title: &str, graphs: &[Graph], rank: Option<u32>) -> String {
    let Layout { messages, .. } = Layout::new(graphs);
    let shown = shown(&messages, rank);
    let mut text = format!(
        "digraph schedule {{\n  label={};\n  node [shape=box, fontname=sans];\n",
        quoted(title)
    );
    // Writing to a string cannot fail.
    for (number, graph) in graphs.iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster_{number} {{\n    label=\"rank {number}\";");
        for (vertex, entry) in
            graph.vertices().iter().enumerate().filter(|(vertex, _)| shown((number, *vertex)))
        {
            let _ = writeln!(
                text,
                "    r{number}v{vertex} [label={}];",
                quoted(&entry.operation.describe())
            );
        }
        for edge in graph.edges() {
            let before = edge.before.index();
            let after = edge.after.index();
            if shown((number, before)) && shown((number, after)) {
                let style = if edge.until == Until::Started { " [style=dashed]" } else { "" };
                let _ = writeln!(text, "    r{number}v{before} -> r{number}v{after}{style};");
            }
        }
        text.push_str("  }\n");
    }
    for (send, receive) in messages.iter().filter(|(send, receive)| shown(*send) && shown(*receive))
    {
        let ((from, sent), (to, received)) = (send, receive);
        let _ = writeln!(
            text,
            "  r{from}v{sent} -> r{to}v{received} [color=blue, penwidth=2, constraint=true];"
        );
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
