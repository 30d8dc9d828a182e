//! The page in a real browser: that it draws everything at two widths, on light and dark ground,
//! without a complaint; and that its figures answer.
//!
//! Without Chromium these tests count as ignored; with `TRADEWIND_REQUIRE_TOOLS` set, they fail.
//! `TRADEWIND_SCREENSHOTS=DIRECTORY` keeps pictures of what the browser showed.

mod devtools;
mod tuned;

// What the page itself draws with, to be held against its scripts.
#[path = "../../src/page/ticks.rs"]
#[expect(unused_imports, reason = "its unit tests run in the library")]
mod ticks;
#[path = "../../src/page/units.rs"]
#[expect(dead_code, unused_imports, reason = "only what the scripts repeat is compared here")]
mod units;

use super::page_fixture as fixture;
use base64::prelude::{BASE64_STANDARD, Engine};
use devtools::Browser;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use ticks::Rounding;
use units::Unit;

testing::tests![
    needs(Chromium):
    everything_is_drawn_at_both_widths_on_both_grounds,
    pointing_tells_the_values_of_the_nearest_point,
    a_dragged_rectangle_is_enlarged_and_a_double_click_shows_all_again,
    a_logarithmic_axis_says_what_it_cannot_show,
    the_legend_hides_a_curve_and_shows_it_alone,
    a_figure_can_be_read_by_the_keyboard_and_as_a_table,
    tables_are_sorted_and_maps_tell_their_cells,
    drawing_and_script_find_the_same_round_numbers,
    the_switch_changes_the_ground_and_paper_stays_light,
    every_colour_stands_out_from_its_ground,
    twenty_curves_of_hundreds_of_points_are_drawn_by_few_elements,
    the_page_shows_its_drawings_without_scripts,
];

/// Starts the browser, which the runner has made sure of.
fn browser() -> Browser {
    Browser::start(&devtools::chromium().expect("Chromium in PATH, or its path in CHROMIUM"))
}

/// The page in a file, compared or not.
fn written(directory: &Path, compared: bool) -> PathBuf {
    let path = directory.join("report.html");
    std::fs::write(&path, measure::page::render(&fixture::input(compared)))
        .expect("the page can be written");
    path
}

fn set_view(browser: &mut Browser, width: u32, colours: &str) {
    let metrics =
        json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
    browser.command("Emulation.setDeviceMetricsOverride", metrics);
    let features = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
    browser.command("Emulation.setEmulatedMedia", features);
}

fn keep_picture(browser: &mut Browser, name: &str) {
    let Some(directory) = std::env::var_os("TRADEWIND_SCREENSHOTS") else { return };
    let parameters = json!({"format": "png", "captureBeyondViewport": true});
    let picture = browser.command("Page.captureScreenshot", parameters);
    let bytes =
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap_or_default()).expect("a picture");
    std::fs::write(Path::new(&directory).join(format!("{name}.png")), bytes)
        .expect("the picture can be written");
}

fn everything_is_drawn_at_both_widths_on_both_grounds() {
    let mut browser = browser();
    let directory = tempfile::tempdir().expect("a directory");
    for compared in [false, true] {
        let page = written(directory.path(), compared);
        for (width, colours) in [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")] {
            let view = format!("{width}-{colours}{}", if compared { "-compared" } else { "" });
            set_view(&mut browser, width, colours);
            browser.open(&page);
            keep_picture(&mut browser, &view);
            assert_eq!(browser.complaints(), [""; 0], "{view}");
            assert_eq!(
                browser.evaluate(UNDRAWN),
                json!([]),
                "figures without a curve's path, {view}"
            );
            assert_eq!(browser.evaluate(TOO_WIDE), json!([]), "wider than the screen, {view}");
            assert_eq!(browser.evaluate(TOO_CLOSE), json!([]), "labels that touch, {view}");
            let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor");
            assert_eq!(ground == "rgb(16, 19, 24)", colours == "dark", "{ground}, {view}");
        }
    }
}

/// Figures in which a curve that has something to show has no path.
const UNDRAWN: &str = "[...document.querySelectorAll('[data-figure]')].filter(figure => {
    const { x, y, curves } = JSON.parse(figure.querySelector('script').textContent);
    const shows = (value, axis) => value !== null && (!axis.logarithmic || value > 0);
    const wanted = curves.map(curve => curve.points.some(point => shows(point[0], x) && shows(point[1], y)));
    const drawn = [...figure.querySelectorAll('.live > g > g.curve')].map(group =>
        [...group.querySelectorAll('.line, .marks')].some(path => path.getAttribute('d').startsWith('M')));
    return drawn.length !== curves.length || wanted.some((is, place) => is !== drawn[place]);
}).map(figure => figure.id)";

/// Elements that stick out to the right and cannot be scrolled to.
const TOO_WIDE: &str = "[...document.querySelectorAll('body *')].filter(element =>
    element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll, svg'))
    .map(element => element.outerHTML.slice(0, 200))";

/// Labels of an axis that lie on each other.
const TOO_CLOSE: &str = "[...document.querySelectorAll('.live')].flatMap(drawing => {
    const labels = [...drawing.querySelectorAll('text')].map(label => ({ label, frame: label.getBoundingClientRect() }));
    const touch = (one, other) => one.left < other.right && other.left < one.right && one.top + 2 < other.bottom && other.top + 2 < one.bottom;
    return labels.flatMap((one, place) => labels.slice(place + 1).filter(other => touch(one.frame, other.frame))
        .map(other => `${drawing.closest('figure').id}: ${one.label.textContent} on ${other.label.textContent}`));
})";

/// A page with one figure of the suite scrolled to its middle, and where the area of that figure
/// is.
struct Scene {
    browser: Browser,
    area: [f64; 4],
    _directory: tempfile::TempDir,
}

const FIGURE: &str = "document.getElementById('pingpong--long')";

impl Scene {
    fn open() -> Self {
        let mut browser = browser();
        let directory = tempfile::tempdir().expect("a directory");
        set_view(&mut browser, 1400, "light");
        browser.open(&written(directory.path(), false));
        browser.evaluate(&format!(
            "{FIGURE}.scrollIntoView({{ block: 'center', behavior: 'instant' }})"
        ));
        let frame = browser.evaluate(&format!(
            "(({{ x, y, width, height }}) => [x, y, width, height])({FIGURE}.querySelector('.area').getBoundingClientRect())"
        ));
        let area = serde_json::from_value(frame).expect("four numbers");
        Scene { browser, area, _directory: directory }
    }

    /// A place in the area, as shares of its width and height from its upper left corner.
    fn at(&self, (across, down): (f64, f64)) -> (f64, f64) {
        let [x, y, width, height] = self.area;
        (x + across * width, y + down * height)
    }

    fn of_figure(&mut self, expression: &str) -> Value {
        self.browser.evaluate(&format!("(figure => {expression})({FIGURE})"))
    }

    fn labels(&mut self) -> Value {
        self.of_figure(
            "[...figure.querySelectorAll('.live .tick')].map(label => label.textContent)",
        )
    }

    fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let (from, to) = (self.at(from), self.at(to));
        self.browser.mouse("mouseMoved", from, 0);
        self.browser.mouse("mousePressed", from, 1);
        self.browser.mouse("mouseMoved", to, 1);
        self.browser.mouse("mouseReleased", to, 1);
    }

    fn finish(self) {
        assert_eq!(self.browser.complaints(), [""; 0]);
    }
}

fn pointing_tells_the_values_of_the_nearest_point() {
    let mut scene = Scene::open();
    let place = scene.at((0.5, 0.9));
    scene.browser.mouse("mouseMoved", place, 0);
    let note = scene.of_figure("figure.querySelector('.note').textContent");
    let note = note.as_str().expect("words");
    assert!(
        note.contains("message length7") || note.contains("message length8"),
        "about the middle of 16000 bytes: {note}"
    );
    for part in ["\u{a0}KiB)", "median", "quartiles", "least, greatest", "repetitions31"] {
        assert!(note.contains(part), "{part} in {note}");
    }
    assert_eq!(scene.of_figure("figure.querySelectorAll('.ring').length"), 1);
    let away = scene.at((0.5, -0.5));
    scene.browser.mouse("mouseMoved", away, 0);
    assert_eq!(scene.of_figure("figure.querySelector('.note').hidden"), true);
    scene.finish();
}

fn a_dragged_rectangle_is_enlarged_and_a_double_click_shows_all_again() {
    let mut scene = Scene::open();
    let all = scene.labels();
    scene.drag((0.25, 0.3), (0.5, 0.7));
    let enlarged = scene.labels();
    assert!(enlarged.to_string().contains("5\u{a0}KiB") && enlarged != all, "{enlarged}");
    assert_eq!(
        scene.of_figure("[...figure.querySelectorAll('.controls button')].at(-1).disabled"),
        false
    );
    let place = scene.at((0.5, 0.5));
    for count in [1, 2] {
        scene.browser.mouse("mousePressed", place, count);
        scene.browser.mouse("mouseReleased", place, count);
    }
    assert_eq!(scene.labels(), all);
    // Along one axis the other stays.
    scene.drag((0.25, 0.5), (0.5, 0.5));
    let across = scene.labels();
    assert_ne!(across, all);
    scene.browser.command(
        "Input.dispatchMouseEvent",
        json!({
            "type": "mouseWheel", "x": place.0, "y": place.1, "deltaX": 0, "deltaY": 300, "modifiers": 2,
        }),
    );
    assert_ne!(scene.labels(), across, "Ctrl and the wheel");
    scene.finish();
}

fn a_logarithmic_axis_says_what_it_cannot_show() {
    let mut scene = Scene::open();
    assert_eq!(scene.of_figure("figure.querySelector('.message').hidden"), true);
    scene.of_figure(
        "[...figure.querySelectorAll('.controls button')].find(({ textContent }) => textContent === 'log x').click()",
    );
    // Each of the five curves begins at 0 bytes.
    let message = scene.of_figure("figure.querySelector('.message').textContent");
    assert_eq!(message, "5 values of zero or less have no place on a logarithmic axis.");
    let labels = scene.labels();
    assert!(
        labels.to_string().contains("64\u{a0}B") || labels.to_string().contains("256\u{a0}B"),
        "{labels}"
    );
    assert_eq!(
        scene.of_figure("figure.querySelector('.live .line').getAttribute('d').includes('NaN')"),
        false
    );
    scene.of_figure(
        "[...figure.querySelectorAll('.controls button')].find(({ textContent }) => textContent === 'reset').click()",
    );
    assert_eq!(scene.of_figure("figure.querySelector('.message').hidden"), true);
    scene.finish();
}

fn the_legend_hides_a_curve_and_shows_it_alone() {
    let mut scene = Scene::open();
    const SHOWN: &str = "[...figure.querySelectorAll('.live .curve')].map(curve => getComputedStyle(curve).display !== 'none')";
    scene.of_figure("figure.querySelectorAll('.key')[1].click()");
    assert_eq!(scene.of_figure(SHOWN), json!([true, false, true, true, true]));
    assert_eq!(scene.of_figure("figure.querySelectorAll('.key')[1].ariaPressed"), "false");
    scene.of_figure("figure.querySelectorAll('.key')[2].dispatchEvent(new MouseEvent('dblclick'))");
    assert_eq!(scene.of_figure(SHOWN), json!([false, false, true, false, false]));
    scene.finish();
}

fn a_figure_can_be_read_by_the_keyboard_and_as_a_table() {
    let mut scene = Scene::open();
    scene.of_figure("figure.querySelector('.live').focus()");
    scene.browser.key("ArrowRight");
    let first = scene.of_figure("figure.querySelector('.note').textContent");
    scene.browser.key("ArrowRight");
    let second = scene.of_figure("figure.querySelector('.note').textContent");
    scene.browser.key("ArrowDown");
    let third = scene.of_figure("figure.querySelector('.note').textContent");
    assert!(first != second && second != third && third != "", "{first}, {second}, {third}");
    let all = scene.labels();
    scene.browser.key("+");
    assert_ne!(scene.labels(), all);
    scene.browser.key("Escape");
    assert_eq!(scene.labels(), all);
    scene.of_figure("figure.querySelector('.data').open = true");
    let rows = scene.of_figure("figure.querySelectorAll('.data tbody tr').length");
    assert_eq!(rows, 3 * 251 + 2 + 2);
    scene.finish();
}

fn tables_are_sorted_and_maps_tell_their_cells() {
    let mut scene = Scene::open();
    const COLUMN: &str = "[...document.querySelectorAll('#machine--latency tbody tr')].map(row => row.cells[1].dataset.sort)";
    let before = scene.browser.evaluate(COLUMN);
    scene.browser.evaluate("document.querySelectorAll('#machine--latency th button')[1].click()");
    let upwards = scene.browser.evaluate(COLUMN);
    let mut sorted: Vec<f64> = serde_json::from_value::<Vec<String>>(before.clone())
        .expect("words")
        .iter()
        .map(|number| number.parse().expect("a number"))
        .collect();
    sorted.sort_by(f64::total_cmp);
    assert_ne!(upwards, before);
    assert_eq!(upwards, json!(sorted.iter().map(f64::to_string).collect::<Vec<_>>()));
    scene.browser.evaluate(
        "document.querySelector('#tune--bcast td[data-place]').dispatchEvent(new PointerEvent('pointerenter'))",
    );
    let note =
        scene.browser.evaluate("document.querySelector('#tune--bcast .cell-note').textContent");
    assert!(
        note.as_str().is_some_and(|note| note.contains("ranks 2, bytes 1") && note.contains("next binomial")),
        "{note}"
    );
    scene.finish();
}

fn drawing_and_script_find_the_same_round_numbers() {
    let mut browser = browser();
    let scripts = concat!(
        include_str!("../../src/page/script/units.js"),
        include_str!("../../src/page/script/ticks.js")
    );
    let roundings =
        [("decimal", Rounding::Decimal), ("whole", Rounding::Whole), ("binary", Rounding::Binary)];
    let ends = [
        (1.0, 16000.0),
        (0.3, 0.9),
        (0.02, 4.1),
        (1.0, 1048576.0),
        (7.0, 7.0),
        (3.0, 3.5),
        (1e-9, 1e12),
        (999.0, 1e5),
    ];
    let mut calls = Vec::new();
    let mut expected = Vec::new();
    for (name, rounding) in roundings {
        for (first, last) in ends {
            for wanted in [2, 5, 9] {
                let arguments = format!("({first:e}, {last:e}, {wanted}, '{name}')");
                calls.push(format!("linearTicks{arguments}"));
                expected.push(ticks::linear(first, last, wanted, rounding));
                calls.push(format!("logarithmicTicks{arguments}"));
                expected.push(ticks::logarithmic(first, last, wanted, rounding));
            }
        }
    }
    // In one script: the browser draws two pictures before and after each.
    let mut results = |calls: &[String]| {
        browser.evaluate(&format!("(() => {{ {scripts}; return [{}]; }})()", calls.join(", ")))
    };
    let found: Vec<Vec<f64>> = serde_json::from_value(results(&calls)).expect("numbers");
    assert_eq!(found.len(), expected.len());
    for ((found, expected), call) in found.iter().zip(&expected).zip(&calls) {
        let close = |(one, other): (&f64, &f64)| (one - other).abs() <= 1e-9 * other.abs();
        let same = found.len() == expected.len() && found.iter().zip(expected).all(close);
        assert!(same, "{call}: {found:?}, not {expected:?}");
    }
    let mut calls = Vec::new();
    let mut expected = Vec::new();
    for value in [0.0, 0.00012, 0.5, 1.0, 12.34567, 999.96, 1536.0, 12345.678, 1e6, 3.3e9, -2.5] {
        for (name, unit) in [
            ("bytes", Unit::Bytes),
            ("µs", Unit::Time(1.0)),
            ("ns", Unit::Time(1e3)),
            ("s", Unit::Time(1e-6)),
            ("", Unit::Plain),
        ] {
            calls.push(format!("tickLabel(stepsOf('{name}'), {value})"));
            expected.push(unit.tick(value));
        }
    }
    let found: Vec<String> = serde_json::from_value(results(&calls)).expect("labels");
    assert_eq!(found.len(), expected.len());
    for ((found, expected), call) in found.iter().zip(&expected).zip(&calls) {
        assert_eq!(found, expected, "{call}");
    }
}

fn the_switch_changes_the_ground_and_paper_stays_light() {
    let mut scene = Scene::open();
    const GROUND: &str = "getComputedStyle(document.querySelector('.figure')).backgroundColor";
    let light = scene.browser.evaluate(GROUND);
    scene.browser.evaluate("document.querySelector('.theme').click()");
    let dark = scene.browser.evaluate(GROUND);
    assert_ne!(light, dark);
    scene.browser.command("Emulation.setEmulatedMedia", json!({"media": "print", "features": []}));
    assert_eq!(scene.browser.evaluate(GROUND), light);
    scene.finish();
}

fn every_colour_stands_out_from_its_ground() {
    let mut browser = browser();
    let directory = tempfile::tempdir().expect("a directory");
    let page = written(directory.path(), false);
    for colours in ["light", "dark"] {
        set_view(&mut browser, 1400, colours);
        browser.open(&page);
        // Lines need a contrast of 3, words 4.5 (WCAG 2.2, 1.4.11 and 1.4.3).
        assert_eq!(browser.evaluate(PALE), json!([]), "{colours}");
    }
}

/// Colours of curves and of words that are too near to what they stand on.
const PALE: &str = "(() => {
    const channels = colour => {
        const canvas = new OffscreenCanvas(1, 1).getContext('2d');
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const linear = value => value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const light = colour => { const [r, g, b] = channels(colour).map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const contrast = (one, other) => { const [a, b] = [light(one), light(other)].sort((a, b) => a - b); return (b + 0.05) / (a + 0.05); };
    const ground = element => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor;
            if (!/^rgba\\(.*, 0\\)$/.test(colour)) return colour;
        }
        return 'white';
    };
    const lines = [...document.querySelectorAll('.live .line')]
        .filter(line => contrast(getComputedStyle(line).stroke, ground(line.closest('figure'))) < 3)
        .map(line => line.parentElement.getAttribute('class'));
    const words = [...document.querySelectorAll('p, li, td, th, dt, dd, h1, h2, h3, button:enabled, summary, .badge')]
        .filter(word => contrast(getComputedStyle(word).color, ground(word)) < 4.5)
        .map(word => word.outerHTML.slice(0, 120));
    return [...new Set(lines), ...new Set(words)];
})()";

fn twenty_curves_of_hundreds_of_points_are_drawn_by_few_elements() {
    let mut scene = Scene::open();
    let most = scene.browser.evaluate(
        "Math.max(...[...document.querySelectorAll('.live')].map(drawing => drawing.querySelectorAll('*').length))",
    );
    // A curve is a group of three paths, however many points it has; the rest is the frame.
    assert!(most.as_u64().is_some_and(|most| most <= 20 * 4 + 80), "{most}");
    scene.finish();
}

fn the_page_shows_its_drawings_without_scripts() {
    let mut browser = browser();
    let directory = tempfile::tempdir().expect("a directory");
    let page = written(directory.path(), true);
    let text = std::fs::read_to_string(&page).expect("the page");
    // As a browser reads it that runs no script.
    let bare = text.replace("takeOver();\n", "document.documentElement.dataset.ready = 'yes';\n");
    std::fs::write(&page, bare).expect("the page can be written");
    set_view(&mut browser, 1400, "light");
    browser.open(&page);
    let drawings =
        browser.evaluate("document.querySelectorAll('[data-figure] .drawing:not(.live)').length");
    assert_eq!(drawings, browser.evaluate("document.querySelectorAll('[data-figure]').length"));
    assert_eq!(
        browser.evaluate("document.querySelectorAll('[data-figure] path[d*=NaN]').length"),
        0
    );
    keep_picture(&mut browser, "static");
    assert_eq!(browser.complaints(), [""; 0]);
}
