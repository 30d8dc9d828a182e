//! Comparison of two runs.

use crate::results::{Figure, Part, Role, Series, Table, Value, values};
use models::machine::Fingerprint;

/// The figure of the same part and name.
pub(crate) fn counterpart<'a>(other: Option<&'a Part>, figure: &Figure) -> Option<&'a Figure> {
    other?
        .figures
        .iter()
        .find(|candidate| candidate.name == figure.name && same_axes(candidate, figure))
}

fn same_axes(one: &Figure, another: &Figure) -> bool {
    (&one.x.unit, &one.y.unit) == (&another.x.unit, &another.y.unit)
}

/// Compares this machine's values with the other's: for every measured curve that both have, the
/// ratio of the medians where both have a point.
pub(crate) fn ratios<'a>(
    pairs: impl Iterator<Item = (&'a Part, &'a Part)>,
    label: &str,
    other_label: &str,
) -> Table {
    let mut rows = Vec::new();
    for (part, other) in pairs {
        for figure in &part.figures {
            let Some(counterpart) = counterpart(Some(other), figure) else { continue };
            for (series, other) in common(figure, counterpart) {
                rows.extend(row(&part.title, &figure.title, series, other));
            }
        }
    }
    let columns =
        ["part", "figure", "curve", "points in common", "ratio, median", "least", "greatest"];
    Table {
        name: "ratios".to_owned(),
        title: format!("{label} over {other_label}"),
        caption: format!(
            "Medians of {label} divided by those of {other_label} where both have a point; below \
             1, {label} has the smaller value. Measured curves only."
        ),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    }
}

fn common<'a>(
    figure: &'a Figure,
    other: &'a Figure,
) -> impl Iterator<Item = (&'a Series, &'a Series)> {
    let measured = figure.series.iter().filter(|series| series.role == Role::Measured);
    measured.filter_map(|series| {
        let same =
            |candidate: &&Series| candidate.role == Role::Measured && candidate.name == series.name;
        Some((series, other.series.iter().find(same)?))
    })
}

fn row(part: &str, figure: &str, series: &Series, other: &Series) -> Option<Vec<Value>> {
    let ratio = |point: &crate::results::Point| {
        let counterpart = other.points.iter().find(|candidate| candidate.x == point.x)?;
        Some(point.median / counterpart.median).filter(|ratio| ratio.is_finite())
    };
    let mut ratios: Vec<f64> = series.points.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let least = *ratios.first()?;
    let greatest = *ratios.last()?;
    let median = models::statistics::percentile(&ratios, 0.5);
    Some(values![part, figure, series.name.as_str(), ratios.len(), median, least, greatest])
}

/// Settings in which the parts differ: such ratios do not compare the machines.
pub(crate) fn settings<'a>(
    pairs: impl Iterator<Item = (&'a Part, &'a Part)>,
    label: &str,
    other_label: &str,
) -> Table {
    let mut rows = Vec::new();
    for (part, other) in pairs {
        for name in part
            .setting
            .keys()
            .chain(other.setting.keys().filter(|name| !part.setting.contains_key(*name)))
        {
            let here = part.setting.get(name);
            let there = other.setting.get(name);
            if here != there {
                let [here, there] = [here, there].map(|value| value.map(String::as_str));
                rows.push(values![part.title.as_str(), name.as_str(), here, there]);
            }
        }
    }
    Table {
        name: "settings".to_owned(),
        title: "What differs between the measurements".to_owned(),
        caption: "What was measured differently can hardly be compared.".to_owned(),
        columns: ["part", "what", label, other_label].map(str::to_owned).to_vec(),
        rows,
    }
}

/// In which way the machines differ, a row for each difference.
pub(crate) fn machines(
    here: &Fingerprint,
    there: &Fingerprint,
    label: &str,
    other_label: &str,
) -> Table {
    let mut rows = Vec::new();
    let mut compare = |what: &str, here: String, there: String| {
        if here != there {
            rows.push(values![what, here, there]);
        }
    };
    for ((what, here), (_, there)) in facts(here).into_iter().zip(facts(there)) {
        compare(what, here, there);
    }
    let caption = if rows.is_empty() { "Both machines have the same fingerprint." } else { "" };
    Table {
        name: "machines".to_owned(),
        title: "What differs between the machines".to_owned(),
        caption: caption.to_owned(),
        columns: ["what", label, other_label].map(str::to_owned).to_vec(),
        rows,
    }
}

/// A fingerprint in words.
pub(crate) fn facts(fingerprint: &Fingerprint) -> Vec<(&'static str, String)> {
    let Fingerprint { processor, cores, threads_per_core, sockets, caches, kernel, hypervisor } =
        fingerprint;
    let level = |(place, bytes): (usize, &u64)| {
        format!("L{} {}", place + 1, crate::page::units::Unit::Bytes.tick(*bytes as f64))
    };
    let caches: Vec<String> = caches.iter().enumerate().map(level).collect();
    vec![
        ("processor", processor.clone()),
        ("cores", cores.to_string()),
        ("threads a core", threads_per_core.to_string()),
        ("sockets", sockets.to_string()),
        ("caches", if caches.is_empty() { "unknown".to_owned() } else { caches.join(", ") }),
        ("kernel", kernel.clone()),
        ("hypervisor", hypervisor.clone().unwrap_or_else(|| "none".to_owned())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Axis, Point};

    fn part(values: &[(f64, f64)]) -> Part {
        let mut figure = Figure::new("f", "F", Axis::bytes("size"), Axis::microseconds("time"));
        let points: Vec<Point> = values.iter().map(|(x, value)| Point::exact(*x, *value)).collect();
        figure.series.push(Series {
            name: "a".into(),
            role: Role::Measured,
            points: points.clone(),
        });
        figure.series.push(Series { name: "model".into(), role: Role::Predicted, points });
        Part { figures: vec![figure], ..Part::new("p", "P") }
    }

    #[test]
    fn ratios_are_taken_where_both_have_a_number() {
        let here = part(&[(0.0, 1.0), (8.0, 2.0), (16.0, f64::NAN), (32.0, 9.0), (64.0, 3.0)]);
        let there = part(&[(0.0, 2.0), (8.0, 1.0), (16.0, 1.0), (64.0, 3.0), (128.0, 1.0)]);
        let table = ratios([(&here, &there)].into_iter(), "here", "there");
        let expected: Vec<Value> = ["P", "F", "a"]
            .map(Value::from)
            .into_iter()
            .chain([3.0, 1.0, 0.5, 2.0].map(Value::from))
            .collect();
        assert_eq!(table.rows, [expected]);
        assert!(
            ratios([(&here, &part(&[(1.0, 0.0)]))].into_iter(), "here", "there").rows.is_empty()
        );
    }

    #[test]
    fn settings_that_differ_are_told() {
        let with = |pairs: &[(&str, &str)]| {
            let setting = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            Part { setting, ..Part::new("p", "P") }
        };
        let here = with(&[("cores", "0,1"), ("quick", "yes")]);
        let there = with(&[("cores", "0,1"), ("map", "0,2")]);
        let rows = settings([(&here, &there)].into_iter(), "a", "b").rows;
        let expected = [
            vec!["P".into(), "quick".into(), "yes".into(), Value::None],
            vec!["P".into(), "map".into(), Value::None, "0,2".into()],
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn only_differences_are_told() {
        let here = Fingerprint { cores: 4, caches: vec![32768], ..Fingerprint::default() };
        let there = Fingerprint { cores: 8, ..here.clone() };
        assert_eq!(
            machines(&here, &there, "a", "b").rows,
            [["cores", "4", "8"].map(Value::from).to_vec()]
        );
        assert!(machines(&here, &here, "a", "b").rows.is_empty());
    }
}
