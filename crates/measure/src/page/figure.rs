//! A figure: its drawing and its legend.

use crate::page::curves::{self, Curve};
use crate::page::drawing;
use crate::results::Figure;
use maud::{Markup, html};

/// The figure, with the other machine's curves where there are any.
pub(crate) fn figure(id: &str, figure: &Figure, other: Option<(&Figure, &str)>) -> Markup {
    let curves = curves::of(figure, other);
    html! {
        figure class=(if curves.len() > 8 { "figure wide" } else { "figure" }) id=(id) {
            figcaption { h3 { (figure.title) } }
            div.chart { (drawing::draw(figure, &curves)) }
            ul class=(if curves.len() > 6 { "legend many" } else { "legend" }) { @for curve in &curves { (key(curve)) } }
            @if !figure.caption.is_empty() { p.caption { (figure.caption) } }
        }
    }
}

/// A line of the legend.
fn key(curve: &Curve) -> Markup {
    html! {
        li.key {
            svg.swatch viewBox="0 0 34 12" aria-hidden="true" {
                g class=(curve.classes()) {
                    @if curve.is_joined() { path.line d="M1 6H33" {} }
                    @if curve.is_marked() { path.marks d=(curve.mark.path(17.0, 6.0, 3.0)) {} }
                }
            }
            span { (curve.name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Axis, Point, Role, Series};

    #[test]
    fn names_open_no_element() {
        let name = "</script><img src=x onerror=alert(1)> & \"quoted\" 'too' <!--";
        let mut drawn = Figure::new("f", name, Axis::bytes(name), Axis::number(name));
        let points = vec![Point::exact(1.0, 2.0)];
        drawn.series.push(Series { name: name.to_owned(), role: Role::Measured, points });
        let page = figure("id", &drawn, Some((&drawn, name))).into_string();
        assert!(!["<script", "</script", "<img", "<!--"].iter().any(|text| page.contains(text)));
        assert!(page.contains("&lt;/script&gt;"), "{page}");
    }
}
