//! Writes the text format.

use crate::graph::{Graph, Until, Vertex};
use crate::portable::{self, NotPortable, Portable};
use std::collections::HashSet;
use std::fmt::Write;

/// Words that cannot be labels, because statements begin with them.
const RESERVED: [&str; 5] = ["num_ranks", "rank", "send", "recv", "calc"];

pub(super) fn write(graphs: &[Graph]) -> Result<String, NotPortable> {
    portable::check(graphs)?;
    let mut text = String::new();
    line(&mut text, format_args!("num_ranks {}", graphs.len()));
    for graph in graphs {
        line(&mut text, format_args!("\nrank {} {{", graph.rank()));
        rank(&mut text, graph)?;
        line(&mut text, format_args!("}}"));
    }
    Ok(text)
}

/// Adds a line. Writing to a string does not fail.
fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{content}");
}

/// Adds a rank's statements. Edges keep their order: each comes as early as it can behind its two
/// operations and the edges before it.
fn rank(text: &mut String, graph: &Graph) -> Result<(), NotPortable> {
    let labels = Labels::of(graph)?;
    let mut edges = graph.edges().iter().peekable();
    for index in 0..graph.vertices().len() {
        if let Some(label) = labels.of_vertex(index) {
            let _ = write!(text, "{label}: ");
        }
        operation(text, graph, index)?;
        while let Some(edge) =
            edges.next_if(|edge| edge.after.index().max(edge.before.index()) <= index)
        {
            let word = match edge.until {
                Until::Complete => "requires",
                Until::Started => "irequires",
            };
            if let (Some(after), Some(before)) =
                (labels.of_vertex(edge.after.index()), labels.of_vertex(edge.before.index()))
            {
                line(text, format_args!("{after} {word} {before}"));
            }
        }
    }
    Ok(())
}

/// Adds an operation without its label.
fn operation(text: &mut String, graph: &Graph, index: usize) -> Result<(), NotPortable> {
    let entry = &graph.vertices()[index];
    let any = |value: Option<u32>| value.map_or(-1, i64::from);
    let tag = match Portable::of(graph, index)? {
        Portable::Send { bytes, peer, tag } => {
            let _ = write!(text, "send {bytes}b to {peer}");
            i64::from(tag)
        }
        Portable::Receive { bytes, source, tag } => {
            let _ = write!(text, "recv {bytes}b from {}", any(source));
            any(tag)
        }
        Portable::Calc { .. } if entry.nic != 0 => {
            return Err(NotPortable::CalcInterface {
                vertex: graph.describe(Vertex(index as u32)),
            });
        }
        Portable::Calc { nanoseconds } => {
            let _ = write!(text, "calc {nanoseconds}");
            0
        }
    };
    for (word, value) in
        [("tag", tag), ("cpu", i64::from(entry.cpu)), ("nic", i64::from(entry.nic))]
    {
        if value != 0 {
            let _ = write!(text, " {word} {value}");
        }
    }
    text.push('\n');
    Ok(())
}

/// The labels of a rank's vertices: those they have, and invented ones for others that edges name.
struct Labels<'a> {
    graph: &'a Graph,
    in_edge: Vec<bool>,
    prefix: String,
}

impl<'a> Labels<'a> {
    fn of(graph: &'a Graph) -> Result<Self, NotPortable> {
        let mut seen = HashSet::new();
        let mut underscores = 0;
        for (index, entry) in graph.vertices().iter().enumerate() {
            let Some(label) = &entry.label else { continue };
            let why = if !is_identifier(label) {
                "it should be a letter followed by letters, digits and `_`"
            } else if RESERVED.contains(&label.as_str()) {
                "statements begin with this word, choose another"
            } else if !seen.insert(label.as_str()) {
                "another vertex of this rank has it, choose another"
            } else {
                // Invented labels have more `_` behind the `v` than any that exist.
                if let Some(rest) = label.strip_prefix('v') {
                    underscores =
                        underscores.max(1 + rest.bytes().take_while(|byte| *byte == b'_').count());
                }
                continue;
            };
            let vertex = graph.describe(Vertex(index as u32));
            return Err(NotPortable::Label { vertex, label: label.clone(), why });
        }
        let mut in_edge = vec![false; graph.vertices().len()];
        for edge in graph.edges() {
            in_edge[edge.after.index()] = true;
            in_edge[edge.before.index()] = true;
        }
        Ok(Labels { graph, in_edge, prefix: format!("v{}", "_".repeat(underscores)) })
    }

    fn of_vertex(&self, index: usize) -> Option<std::borrow::Cow<'_, str>> {
        match &self.graph.vertices()[index].label {
            Some(label) => Some(label.as_str().into()),
            None => self.in_edge[index].then(|| format!("{}{index}", self.prefix).into()),
        }
    }
}

fn is_identifier(label: &str) -> bool {
    label.starts_with(|first: char| first.is_ascii_alphabetic())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
