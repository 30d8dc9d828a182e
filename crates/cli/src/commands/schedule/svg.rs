//! All ranks' graphs as a picture: a column for each rank, time downwards, an arrow for each
//! message.

use super::layout::{Layout, Place, shown};
use goal::graph::{Graph, Operation, Vertex};
use std::fmt::Write;

const COLUMN: usize = 96;
const ROW: usize = 28;
const LEFT: usize = 24;
const TOP: usize = 100;
const LEGEND: &str =
    "● sends ○ receives; in each step a rank does one operation, and a message takes a step";
/// Limit of labelled arrows: more would cover the labels.
const LABELLED: usize = 100;

const STYLE: &str = "\
text { font: 12px sans-serif; fill: #24292f } .title { font-size: 16px; font-weight: 600 } .small { font-size: 10px; fill: #57606a }
.back { fill: #ffffff } .life { stroke: #d0d7de } .message { stroke: #0969da; stroke-width: 1.5 } .head { fill: #0969da }
.send { fill: #0969da } .receive { fill: #ffffff; stroke: #0969da; stroke-width: 1.5 }
.local { fill: #fff8c5; stroke: #9a6700 } .copy { fill: #eaeef2; stroke: #57606a } .join { fill: #dafbe1; stroke: #1a7f37 } .join-line { stroke: #1a7f37; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .back { fill: #0d1117 } .life { stroke: #3d444d }
.message { stroke: #4493f8 } .head, .send { fill: #4493f8 } .receive { fill: #0d1117; stroke: #4493f8 }
.local { fill: #3b2e00; stroke: #d29922 } .copy { fill: #21262d; stroke: #9198a1 } .join { fill: #04260f; stroke: #3fb950 } .join-line { stroke: #3fb950 }
}";

pub(super) fn draw(title: &str, graphs: &[Graph], rank: Option<u32>) -> String {
    let layout = Layout::new(graphs);
    let shown = shown(&layout.messages, rank);
    let title = rank.map_or_else(|| title.to_owned(), |rank| format!("{title}: rank {rank}"));
    let least = 2 * LEFT + (title.chars().count() * 9).max(LEGEND.chars().count() * 6);
    let (width, height) =
        ((LEFT + graphs.len() * COLUMN + LEFT).max(least), TOP + layout.length * ROW + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"head\" d=\"M0 0 8 4 0 8z\"/></marker></defs>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"30\">{}</text>\n\
         <text class=\"small\" x=\"{LEFT}\" y=\"50\">{LEGEND}</text>\n",
        escaped(&title),
        escaped(&title),
    );
    // Writing to a string cannot fail.
    for column in 0..graphs.len() {
        let x = x(column);
        let end = height - 12;
        let _ =
            writeln!(svg, "<text x=\"{x}\" y=\"76\" text-anchor=\"middle\">rank {column}</text>");
        let _ = writeln!(svg, "<path class=\"life\" d=\"M{x} 84V{end}\"/>");
    }
    join_lines(&mut svg, graphs, &layout);
    let arrows: Vec<&(Place, Place)> =
        layout.messages.iter().filter(|(send, receive)| shown(*send) && shown(*receive)).collect();
    for (send, receive) in &arrows {
        arrow(&mut svg, graphs, &layout, *send, *receive, arrows.len() <= LABELLED);
    }
    for (column, graph) in graphs.iter().enumerate() {
        for vertex in (0..graph.vertices().len()).filter(|vertex| shown((column, *vertex))) {
            symbol(&mut svg, graph, vertex, x(column), y(layout.steps[column][vertex]));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line through all ranks for each join.
fn join_lines(svg: &mut String, graphs: &[Graph], layout: &Layout) {
    let Some((first, steps)) = graphs.first().zip(layout.steps.first()) else { return };
    for (entry, step) in first.vertices().iter().zip(steps) {
        if let Operation::Join { .. } = entry.operation {
            let _ = writeln!(
                svg,
                "<path class=\"join-line\" d=\"M{} {}H{}\"/>",
                x(0),
                y(*step),
                x(graphs.len() - 1)
            );
        }
    }
}

/// The middle of a rank's column.
fn x(column: usize) -> usize {
    LEFT + column * COLUMN + COLUMN / 2
}

fn y(step: usize) -> usize {
    TOP + step * ROW
}

fn arrow(
    svg: &mut String,
    graphs: &[Graph],
    layout: &Layout,
    send: Place,
    receive: Place,
    labelled: bool,
) {
    let place = |(rank, vertex): Place| (x(rank) as f64, y(layout.steps[rank][vertex]) as f64);
    let from = place(send);
    let to = place(receive);
    // It ends where the receive's circle begins.
    let across = to.0 - from.0;
    let down = to.1 - from.1;
    let length = across.hypot(down).max(1.0);
    let tip = (to.0 - across / length * 6.0, to.1 - down / length * 6.0);
    let operation = &graphs[send.0].vertices()[send.1].operation;
    let _ = writeln!(
        svg,
        "<path class=\"message\" marker-end=\"url(#head)\" d=\"M{} {}L{:.1} {:.1}\"><title>rank {}: {}</title></path>",
        from.0,
        from.1,
        tip.0,
        tip.1,
        send.0,
        escaped(&operation.describe()),
    );
    if let (true, Operation::Send { data, .. }) = (labelled, operation) {
        let bytes = data.bytes().unwrap_or(u64::MAX);
        let (side, anchor) = if across < 0.0 { (-8.0, "end") } else { (8.0, "start") };
        let x = from.0 + side;
        let y = from.1 - 4.0;
        let _ = writeln!(
            svg,
            "<text class=\"small\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{bytes} B</text>"
        );
    }
}

fn symbol(svg: &mut String, graph: &Graph, vertex: usize, x: usize, y: usize) {
    let operation = &graph.vertices()[vertex].operation;
    let about = escaped(&graph.describe(Vertex(vertex as u32)));
    let (class, label) = match operation {
        Operation::Send { .. } => ("send", None),
        Operation::Receive { .. } => ("receive", None),
        Operation::Local { operation, .. } => ("local", Some(operation.name())),
        Operation::Join { .. } => ("join", Some("join")),
        _ => ("copy", Some("copy")),
    };
    let _ = match label {
        None => {
            writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"5\"><title>{about}</title></circle>"
            )
        }
        Some(label) => {
            let left = x - 19;
            let top = y - 9;
            let middle = y + 4;
            writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"38\" height=\"18\" rx=\"4\"><title>{about}</title></rect>\
                 <text x=\"{x}\" y=\"{middle}\" text-anchor=\"middle\">{}</text>",
                escaped(label)
            )
        }
    };
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_escaped() {
        assert_eq!(super::escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
