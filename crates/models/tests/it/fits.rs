//! Fits of what the papers publish, of noise, and of outliers.

use models::fit::{self, ContentionSample, FitError, Weights};
use models::formulas::alltoall;
use models::parameters::Parameters;
use proptest::prelude::*;

/// Bokhari 1995: 0 to 16000 bytes in steps of 64, with the machine's line for each.
fn lengths() -> impl Iterator<Item = u64> {
    (0..=250).map(|step| 64 * step)
}

/// The same half microsecond up or down each time.
fn noise(bytes: u64) -> f64 {
    ((bytes * 2_654_435_761) % 1000) as f64 / 1000.0 - 0.5
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance
}

/// Paragon: zero 58, short 75 + 0.011 m, long 135 + 0.011 m, divided at 8640 (Bokhari 1995, table 1
/// and section 2).
#[test]
fn the_paragon_s_messages_are_found_again() {
    let time = |bytes: u64| match bytes {
        0 => 58.0,
        1..=8640 => 75.0 + 0.011 * bytes as f64,
        _ => 135.0 + 0.011 * bytes as f64,
    };
    let points: Vec<_> = lengths().map(|bytes| (bytes, time(bytes))).collect();
    let messages = fit::messages(&points, 3, Weights::Equal).expect("fits");
    assert_eq!(messages.zero, Some(58.0));
    assert_eq!(messages.pieces.len(), 2);
    let (short, long) = (&messages.pieces[0], &messages.pieces[1]);
    assert_eq!((short.from, short.to, long.from, long.to), (64.0, 8640.0, 8704.0, 16000.0)); // 8640 + 64 is the next
    assert!(near(short.line.intercept, 75.0, 1e-6) && near(short.line.slope, 0.011, 1e-9));
    assert!(near(long.line.intercept, 135.0, 1e-6) && near(long.line.slope, 0.011, 1e-9));
    assert!(messages.outliers.is_empty());
    // 75 + 0.011 × 1000, and 135 + 0.011 × 10000.
    assert_eq!(messages.at(0), Some(58.0));
    assert!(near(messages.at(1000).expect("fitted"), 86.0, 1e-6));
    assert!(near(messages.at(10_000).expect("fitted"), 245.0, 1e-6));
}

/// SP2: zero 48, short 70 + 0.043 m, −50 + 0.056 m beyond 10000 (Bokhari 1995, table 1). At 10000
/// the lines are 500 and 510.
#[test]
fn the_sp2_s_break_is_found_among_spikes() {
    let time = |bytes: u64| match bytes {
        0 => 48.0,
        1..=10_000 => 70.0 + 0.043 * bytes as f64,
        _ => -50.0 + 0.056 * bytes as f64,
    };
    // Every eleventh measurement met other users' messages.
    let spike =
        |index: usize| if index % 11 == 7 { 100.0 + 37.0 * (index % 5) as f64 } else { 0.0 };
    let measured = |(index, bytes)| (bytes, time(bytes) + noise(bytes) + spike(index));
    let points: Vec<_> = lengths().enumerate().map(measured).collect();
    let messages = fit::messages(&points, 2, Weights::Equal).expect("fits");
    let spikes: Vec<usize> = (1..points.len()).filter(|index| spike(*index) > 0.0).collect();
    assert_eq!(messages.outliers, spikes);
    let (short, long) = (&messages.pieces[0], &messages.pieces[1]);
    assert!(
        near(short.line.intercept, 70.0, 0.5) && near(short.line.slope, 0.043, 1e-4),
        "{short:?}"
    );
    assert!(
        near(long.line.intercept, -50.0, 2.0) && near(long.line.slope, 0.056, 2e-4),
        "{long:?}"
    );
    assert!(short.to <= 10_000.0 && long.from > 10_000.0 && long.from - short.to <= 128.0);
}

/// CS-2: 105 + 0.025 m for short and long messages alike (Bokhari 1995, table 1): noise must not
/// make two of them.
#[test]
fn the_cs_2_has_one_line() {
    let points: Vec<_> =
        lengths().map(|bytes| (bytes, 105.0 + 0.025 * bytes as f64 + noise(bytes))).collect();
    let messages = fit::messages(&points[1..], 3, Weights::Equal).expect("fits");
    assert_eq!((messages.pieces.len(), messages.zero), (1, None));
    let line = messages.pieces[0].line;
    assert!(near(line.intercept, 105.0, 3.0 * line.intercept_error), "{line:?}");
    assert!(near(line.slope, 0.025, 3.0 * line.slope_error), "{line:?}");
}

/// A line by hand: x = 0, 1, 2, 3 and y = 1, 3, 4, 8. Means 1.5 and 4; Sxx = 5, Sxy = (−1.5)(−3) +
/// (−0.5)(−1) + 0 + 1.5 × 4 = 11; b = 2.2, a = 0.7. Residuals 0.3, 0.1, −1.1, 0.7: squares 1.8, s²
/// = 0.9, so b ± √(0.9/5) = 0.424 and a ± √(0.9 × (1/4 + 2.25/5)) = √0.63 = 0.794.
#[test]
fn a_line_of_least_squares_and_its_errors_by_hand() {
    let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 4.0), (3.0, 8.0)];
    let line = fit::line(&points, Weights::Equal).expect("fits");
    assert!(near(line.slope, 2.2, 1e-12) && near(line.intercept, 0.7, 1e-12));
    assert!(
        near(line.slope_error, 0.18f64.sqrt(), 1e-12)
            && near(line.intercept_error, 0.63f64.sqrt(), 1e-12)
    );
    // Slopes of pairs: 2, 1.5, 7/3, 1, 2.5, 4; their median is (2 + 7/3)/2 = 13/6. What it leaves:
    // 1, 5/6, −1/3, 3/2, with median (5/6 + 1)/2 = 11/12.
    let robust = fit::theil_sen(&points).expect("fits");
    assert!(
        near(robust.slope, 13.0 / 6.0, 1e-12) && near(robust.intercept, 11.0 / 12.0, 1e-12),
        "{robust:?}"
    );
}

/// Relative weights by hand: y = 1 at 0 and 0 again 4 would be 2.5 at equal weights; weighted by 1
/// and 1/16 it is (1 + 4/16)/(1 + 1/16) = 1.25/1.0625 at 0, and both lines go through (1, 10).
#[test]
fn relative_weights_count_short_messages_as_much_as_long_ones() {
    let line = fit::line(&[(0.0, 1.0), (0.0, 4.0), (1.0, 10.0)], Weights::Relative).expect("fits");
    assert!(
        near(line.intercept, 1.25 / 1.0625, 1e-12) && near(line.at(1.0), 10.0, 1e-12),
        "{line:?}"
    );
}

/// γ = 2/5 (2004, section 5.1) from exchanges that take it, two of ten with retransmissions of 200
/// ms.
#[test]
fn the_contention_ratio_is_found_among_retransmissions() {
    let network =
        Parameters::linear(60.0, (5.0, 0.002), (6.0, 0.003), (15.0, 0.009)).expect("valid");
    let sample = |index: u32| {
        let bounds = alltoall::bounds(&network, 4 + index, 1000 * u64::from(index));
        let late = if index % 5 == 3 { 200_000.0 } else { 0.0 };
        ContentionSample {
            bounds,
            measured: bounds.lower + 0.4 * (bounds.upper - bounds.lower) + late,
        }
    };
    let found = fit::contention(&(0..10).map(sample).collect::<Vec<_>>()).expect("fits");
    assert!(near(found.ratio, 0.4, 1e-9), "{found:?}");
    assert!(near(found.lower_quartile, 0.4, 1e-9));
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    assert_eq!(
        fit::line(&[(1.0, 1.0)], Weights::Equal),
        Err(FitError::TooFew { found: 1, needed: 2 })
    );
    assert!(matches!(
        fit::line(&[(1.0, 1.0), (1.0, 2.0)], Weights::Equal),
        Err(FitError::NoSpread { .. })
    ));
    assert!(matches!(fit::theil_sen(&[(1.0, 1.0), (1.0, 2.0)]), Err(FitError::NoSpread { .. })));
    let nan = fit::line(&[(1.0, 1.0), (2.0, f64::NAN)], Weights::Equal);
    assert!(matches!(nan, Err(FitError::NotUsable { position: 1, .. })));
    let zero = fit::line(&[(1.0, 1.0), (2.0, 0.0)], Weights::Relative);
    assert_eq!(zero, Err(FitError::NotUsable { position: 1, value: 0.0 }));
    let unsorted = fit::pieces(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0)], 1, Weights::Equal);
    assert_eq!(unsorted, Err(FitError::NotSorted { position: 2 }));
    assert!(matches!(
        fit::pieces(&[(1.0, 1.0); 5], 2, Weights::Equal),
        Err(FitError::TooFew { found: 5, needed: 6 })
    ));
    assert!(matches!(
        fit::pieces(&[(1.0, 1.0); 6], 2, Weights::Equal),
        Err(FitError::NoSpread { .. })
    ));
    assert!(matches!(fit::contention(&[]), Err(FitError::TooFew { .. })));
    assert!(matches!(
        fit::messages(&[(0, 1.0)], 3, Weights::Equal),
        Err(FitError::TooFew { found: 0, needed: 3 })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn three_lines_are_found_wherever_they_break(
        breaks in (10usize..30, 40usize..60), steps in (5.0f64..100.0, 5.0f64..100.0), slope in 0.01f64..0.1,
    ) {
        let time = |index: usize| {
            let jumps = [(breaks.0, steps.0), (breaks.1, steps.1)];
            let jumped: f64 = jumps.iter().filter(|(at, _)| index >= *at).map(|(_, step)| step).sum();
            50.0 + jumped + slope * 64.0 * index as f64
        };
        let points: Vec<_> = (1..80).map(|index| (64.0 * index as f64, time(index))).collect();
        let pieces = fit::pieces_as_needed(&points, 4, Weights::Equal).expect("fits");
        let starts: Vec<f64> = pieces.iter().map(|piece| piece.from / 64.0).collect();
        prop_assert_eq!(starts, vec![1.0, breaks.0 as f64, breaks.1 as f64]);
        for piece in &pieces {
            prop_assert!(near(piece.line.slope, slope, 1e-9));
        }
    }

    /// No division into two that somebody could think of leaves less.
    #[test]
    fn two_lines_leave_the_least_squares(values in prop::collection::vec(0.0f64..100.0, 6..30)) {
        let points: Vec<_> = values.iter().enumerate().map(|(index, value)| (index as f64, *value)).collect();
        let rest = |points: &[(f64, f64)]| {
            let line = fit::line(points, Weights::Equal).expect("fits");
            points.iter().map(|(x, y)| (y - line.at(*x)).powi(2)).sum::<f64>()
        };
        let pieces = fit::pieces(&points, 2, Weights::Equal).expect("fits");
        let middle = points.partition_point(|(x, _)| *x <= pieces[0].to);
        let found = rest(&points[..middle]) + rest(&points[middle..]);
        let least = (3..=points.len() - 3).map(|at| rest(&points[..at]) + rest(&points[at..])).fold(f64::INFINITY, f64::min);
        prop_assert!(found <= least * (1.0 + 1e-9) + 1e-9, "{found}, but {least}");
    }

    #[test]
    fn a_quarter_of_outliers_does_not_move_the_robust_line(
        outliers in prop::collection::vec((0usize..40, -1e6f64..1e6), 0..10), a in 0.0f64..100.0, b in 0.0f64..1.0,
    ) {
        let mut points: Vec<_> = (0..40).map(|index| (f64::from(index), a + b * f64::from(index))).collect();
        for (index, value) in outliers {
            points[index].1 = value;
        }
        let line = fit::theil_sen(&points).expect("fits");
        // The lines through two good points outnumber the others: 30 × 29 of 40 × 39 is more than
        // half.
        prop_assert!(near(line.slope, b, 1e-6), "{line:?}");
        prop_assert!(near(line.intercept, a, 1e-4), "{line:?}");
    }

    /// The interval of Sen by a plain reading of its definition.
    #[test]
    fn the_robust_line_is_that_of_its_definition(points in points()) {
        let line = fit::theil_sen(&points).expect("fits");
        let mut slopes = Vec::new();
        for (one, other) in pairs(&points) {
            if one.0 != other.0 {
                slopes.push((other.1 - one.1) / (other.0 - one.0));
            }
        }
        slopes.sort_by(f64::total_cmp);
        let count = points.len() as f64;
        let reach = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
        let at = |place: f64| slopes[(place.max(0.0) as usize).min(slopes.len() - 1)];
        let middle = slopes.len() as f64 / 2.0;
        let half = (at(middle + reach / 2.0) - at(middle - reach / 2.0)) / 2.0;
        prop_assert!(near(line.slope_error, half, 1e-9 * (1.0 + half)), "{line:?}, not {half}");
    }

    #[test]
    fn errors_are_not_negative_and_the_order_of_points_changes_nothing(
        (points, shuffled) in points().prop_flat_map(|points| (Just(points.clone()), Just(points).prop_shuffle())),
    ) {
        let robust = [&points, &shuffled].map(|points| fit::theil_sen(points).expect("fits"));
        prop_assert_eq!(robust[0], robust[1]);
        let [one, other] =
            [&points, &shuffled].map(|points| fit::line(points, Weights::Equal).expect("fits"));
        let values = |line: fit::Line| {
            [line.intercept, line.slope, line.intercept_error, line.slope_error]
        };
        for (one, other) in values(one).into_iter().zip(values(other)) {
            prop_assert!(near(one, other, 1e-3 * (1.0 + one.abs())), "{one}, but {other}");
        }
        for line in robust.into_iter().chain([one, other]) {
            prop_assert!(line.slope_error >= 0.0 && line.intercept_error >= 0.0, "{line:?}");
        }
    }

    #[test]
    fn the_contention_ratio_does_not_depend_on_the_order_of_samples(
        (samples, shuffled) in prop::collection::vec((0.1f64..10.0, 0.1f64..10.0, 0.1f64..40.0), 3..20)
            .prop_flat_map(|samples| (Just(samples.clone()), Just(samples).prop_shuffle())),
    ) {
        let fitted = |samples: &[(f64, f64, f64)]| {
            let samples: Vec<ContentionSample> = samples
                .iter()
                .map(|(lower, width, measured)| ContentionSample {
                    bounds: alltoall::Bounds { lower: *lower, upper: lower + width },
                    measured: *measured,
                })
                .collect();
            fit::contention(&samples).expect("fits")
        };
        let (one, other) = (fitted(&samples), fitted(&shuffled));
        prop_assert!(one.lower_quartile <= one.upper_quartile, "{one:?}");
        prop_assert_eq!(one, other);
    }
}

/// Points with at least two x.
fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let points = prop::collection::vec((0u32..50, 0.1f64..1e3), 3..40);
    points.prop_map(|points| {
        let mut points: Vec<_> = points.into_iter().map(|(x, y)| (f64::from(x), y)).collect();
        points[0].0 = 51.0;
        points
    })
}

fn pairs(points: &[(f64, f64)]) -> impl Iterator<Item = ((f64, f64), (f64, f64))> {
    let pairs = move |at: usize| points[at + 1..].iter().map(move |other| (points[at], *other));
    (0..points.len()).flat_map(pairs)
}

/// With errors of a normal distribution, 68 % of the lines are within one standard error of the truth.
#[test]
fn two_thirds_of_the_lines_are_within_one_standard_error() {
    // Knuth's generator for 64 bits; the sum of twelve uniform numbers is nearly normal.
    let mut state = 1_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    const FITS: usize = 400;
    let mut within = [0; 4];
    for _ in 0..FITS {
        let points: Vec<_> =
            (0..25).map(f64::from).map(|x| (x, 10.0 + 0.5 * x + normal())).collect();
        let plain = fit::line(&points, Weights::Equal).expect("fits");
        let robust = fit::theil_sen(&points).expect("fits");
        for (place, line) in [plain, robust].into_iter().enumerate() {
            within[2 * place] += usize::from(near(line.slope, 0.5, line.slope_error));
            within[2 * place + 1] += usize::from(near(line.intercept, 10.0, line.intercept_error));
        }
    }
    for count in within {
        let share = count as f64 / FITS as f64;
        assert!((0.58..0.78).contains(&share), "{within:?} of {FITS}");
    }
}
