//! Relative errors of predictions, by operation and algorithm.

use super::grid::shape_of;
use crate::harness::Error;
use crate::results::{Figure, Part, Role, Table, Value};
use models::statistics::percentile;
use std::collections::BTreeMap;

const NAME: &str = "errors";

/// The table, before anything is measured.
pub(super) fn outline() -> Table {
    Table {
        name: NAME.to_owned(),
        title: "Relative errors of the models".to_owned(),
        caption: "Of the predictions of plans that were timed, over sizes, forms and ranks."
            .to_owned(),
        columns: ["operation", "algorithm", "median", "90th percentile", "predictions"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    }
}

/// Fills the table by the figures.
pub(super) fn conclude(part: &mut Part) -> Result<(), Error> {
    let mut errors: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for figure in &part.figures {
        let Some((operation, ..)) = shape_of(&figure.name) else { continue };
        for (algorithm, error) in of_figure(figure) {
            errors.entry((operation.to_string(), algorithm)).or_default().push(error);
        }
    }
    let row = |((operation, algorithm), mut errors): ((String, String), Vec<f64>)| {
        errors.sort_by(f64::total_cmp);
        let [median, p90] = [0.5, 0.9].map(|share| Value::from(percentile(&errors, share)));
        let count = Value::from(errors.len() as f64);
        vec![operation.as_str().into(), algorithm.as_str().into(), median, p90, count]
    };
    part.replace_rows(NAME, errors.into_iter().map(row).collect());
    Ok(())
}

/// The algorithm and the relative error of each prediction that has been measured.
fn of_figure(figure: &Figure) -> Vec<(String, f64)> {
    let measured = figure.series.iter().filter(|series| series.role == Role::Measured);
    let mut errors = Vec::new();
    for series in measured {
        let name = format!("{}, predicted", series.name);
        let Some(predicted) = figure.series.iter().find(|other| other.name == name) else {
            continue;
        };
        let algorithm = series.name.split(' ').next().unwrap_or_default();
        for point in &series.points {
            let at = predicted.points.iter().find(|other| other.x == point.x);
            errors.extend(at.map(|at| {
                (algorithm.to_owned(), (at.median / point.median.max(1e-3) - 1.0).abs())
            }));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Axis, Point, Series};

    #[test]
    fn each_prediction_is_compared_with_the_time_of_its_plan_and_size() {
        let axes = || (Axis::bytes("bytes"), Axis::microseconds("time"));
        let (x, y) = axes();
        let mut figure = Figure::new("bcast-2-blocking", "", x, y);
        let series = |name: &str, role, points: &[(f64, f64)]| {
            let points = points.iter().map(|(x, time)| Point::exact(*x, *time)).collect();
            Series { name: name.to_owned(), role, points }
        };
        figure.series = vec![
            series("dary of degree 3", Role::Measured, &[(8.0, 2.0), (64.0, 4.0), (512.0, 1.0)]),
            series("dary of degree 3, predicted", Role::Predicted, &[(8.0, 1.0), (64.0, 5.0)]),
            series("chain, predicted", Role::Predicted, &[(8.0, 1.0)]),
        ];
        let mut part = Part::new("decisions", "");
        part.tables.push(outline());
        part.figures.push(figure);
        conclude(&mut part).expect("nothing can fail");
        let row: Vec<Value> =
            vec!["bcast".into(), "dary".into(), 0.375.into(), 0.475.into(), 2.0.into()];
        assert_eq!(part.table(NAME).expect("there is one").rows, [row]);
    }
}
