//! Text of sizes, times and shares.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, TableComponent, presets,
};
use measure::experiments::overlap::{Collective, OverlapRow};

/// A size in bytes, in the largest unit that it is a multiple of; nothing for nothing.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Microseconds with about three digits that mean something.
pub(crate) fn microseconds(time: f64) -> String {
    match time.abs() {
        large if large >= 99.95 => format!("{time:.0}"),
        middling if middling >= 9.995 => format!("{time:.1}"),
        _ => format!("{time:.2}"),
    }
}

/// A share from 0 to 1 in percent. Only all is 100 and only none is 0.
pub(crate) fn percent_of(share: f64) -> String {
    match share {
        1.0 => "100".to_owned(),
        share if share > 0.99 => ">99".to_owned(),
        share if share > 0.0 && share < 0.01 => "<1".to_owned(),
        share => format!("{:.0}", share * 100.0),
    }
}

/// "allreduce 8 B"; nothing but "barrier", which has no size.
pub(crate) fn name_and_size(collective: Collective, bytes: u64) -> String {
    format!("{collective} {}", size(bytes)).trim_end().to_owned()
}

/// "4 ranks on 2 cores".
pub(crate) fn ranks_on_cores(ranks: u32) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = |number: usize, what: &str| {
        if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
    };
    format!("{} on {}", count(ranks as usize, "rank"), count(cores, "core"))
}

/// Times below this many microseconds are not told apart.
pub(crate) const RESOLUTION_US: f64 = 0.05;

/// Returns the standard error of a median towards one side, on which a tenth of the times lies
/// further away than `tenth`: that of a normal distribution, 1.253 σ / √n, where a tenth lies beyond
/// 1.282 σ. The other side may have a long tail, which moves the median little.
pub(crate) fn error_of_median(tenth: f64, repetitions: u32) -> f64 {
    1.253 * tenth / 1.282 / f64::from(repetitions.max(1)).sqrt()
}

/// The exposed time; where it is a difference within its own noise, zero with that noise.
pub(crate) fn exposed(row: &OverlapRow) -> String {
    let tenth = (row.p90_us - row.exposed_us).max(row.exposed_us - row.p10_us);
    let noise = (2.0 * error_of_median(tenth, row.repetitions)).max(RESOLUTION_US);
    difference(row.exposed_us, noise)
}

/// The processor time that a collective adds. A negative one is noise of at least its size.
pub(crate) fn processor_time(row: &OverlapRow) -> String {
    difference(row.stolen_us, RESOLUTION_US.max(-row.stolen_us))
}

fn difference(time: f64, noise: f64) -> String {
    if time.abs() <= noise { format!("0 ± {}", microseconds(noise)) } else { microseconds(time) }
}

/// Explanation of the differences in a table.
pub(crate) const DIFFERENCES: &str = "0 ± x: not distinguishable from zero.";

/// The exposed time and its spread.
pub(crate) fn spread(row: &OverlapRow) -> String {
    format!("{} .. {}", microseconds(row.p10_us), microseconds(row.p90_us))
}

/// An empty table with these heads, in which only the head has lines.
pub(crate) fn table_with(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled);
    for line in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(line);
    }
    table.set_header(heads.iter().map(|head| Cell::new(head).add_attribute(Attribute::Bold)));
    table
}

/// A figure, to the right.
pub(crate) fn figure(text: impl std::fmt::Display) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A figure to trust, which terminals show in another colour.
pub(crate) fn trusted(text: impl std::fmt::Display) -> Cell {
    figure(text).fg(Color::Green)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_largest_unit_that_fits() {
        let sizes = [0, 8, 1000, 1024, 1536, 65536, 1 << 20, (1 << 20) + 1];
        let read: Vec<_> = sizes.into_iter().map(size).collect();
        assert_eq!(read, ["", "8 B", "1000 B", "1 KiB", "1536 B", "64 KiB", "1 MiB", "1048577 B"]);
    }

    #[test]
    fn what_has_no_size_is_named_without() {
        assert_eq!(name_and_size(Collective::Barrier, 0), "barrier");
        assert_eq!(name_and_size(Collective::Bcast, 1024), "bcast 1 KiB");
    }

    #[test]
    fn times_have_the_digits_that_mean_something() {
        let read = [0.184, -0.02, 9.99, 9.999, 99.9, 99.96, 1234.5].map(microseconds);
        assert_eq!(read, ["0.18", "-0.02", "9.99", "10.0", "99.9", "100", "1234"]);
    }

    #[test]
    fn no_difference_is_below_its_own_noise() {
        assert_eq!(difference(1.5, 0.2), "1.50");
        assert_eq!([0.1, -0.1].map(|time| difference(time, 0.2)), ["0 ± 0.20"; 2]);
        assert_eq!(difference(-30.0, 30.0), "0 ± 30.0");
    }

    #[test]
    fn only_all_is_a_hundred_percent_and_only_none_is_zero() {
        assert_eq!([1.0, 0.9999, 0.5, 0.001, 0.0].map(percent_of), ["100", ">99", "50", "<1", "0"]);
    }
}
