//! Writes a page of invented results, to be looked at while the page is worked on:
//! `cargo run -p tradewind-measure --example report_specimen -- page.html [compared]`.

#[path = "../tests/it/page_fixture.rs"]
mod fixture;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "report.html".to_owned());
    std::fs::write(path, measure::page::render(&fixture::input(arguments.next().is_some())))
}
