//! Results as experiments give them, invented: every feature that a page draws, and values that try
//! to break it.

use collectives::Collective;
use measure::page::{Input, Results};
use measure::results::{
    Axis, Categories, Colour, Figure, Map, Part, Point, Role, Series, Square, Table, Value,
};
use models::costs::{FlatCosts, FlatPoint, StartCosts};
use models::decision::CallForm;
use models::machine::{Fingerprint, PairClass};
use models::machine_file::{Engine, Machine, Noise, Samples, SizeSamples};
use models::parameters::{self, Parameters};
use models::statistics::Sample;

/// Must never be taken for markup.
pub(crate) const HOSTILE: &str =
    "</script><script>throw new Error('escaped')</script> & \"quoted\" <b>";

/// Numbers that look like measurements, the same every time.
struct Noisy(u64);

impl Noisy {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// So many repetitions of a time: never less than it, now and then much more.
    fn repetitions(&mut self, time: f64, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                time * (1.0 + 0.06 * self.next() + if self.next() > 0.985 { 0.9 } else { 0.0 })
            })
            .collect()
    }

    fn curve(&mut self, name: &str, xs: &[f64], time: impl Fn(f64) -> f64) -> Series {
        let points = xs.iter().map(|x| Point::of(*x, &self.repetitions(time(*x), 31))).collect();
        Series { name: name.to_owned(), role: Role::Measured, points }
    }
}

fn formula(name: &str, role: Role, xs: &[f64], value: impl Fn(f64) -> f64) -> Series {
    Series {
        name: name.to_owned(),
        role,
        points: xs.iter().map(|x| Point::exact(*x, value(*x))).collect(),
    }
}

fn steps(last: f64, step: f64) -> Vec<f64> {
    (0..=(last / step) as u32).map(|place| f64::from(place) * step).collect()
}

fn powers() -> Vec<f64> {
    (0..=20).map(|power| f64::from(1 << power)).collect()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A page of everything; compared with a machine that is half as fast, if wanted.
pub(crate) fn input(compared: bool) -> Input {
    Input { results: results("results", 1.0), other: compared.then(|| results("cluster-b", 1.8)) }
}

pub(crate) fn results(label: &str, slowness: f64) -> Results {
    let mut noisy = Noisy(7);
    let parts = vec![
        hostile(),
        barrier(&mut noisy, slowness),
        pingpong(&mut noisy, slowness),
        matchings(&mut noisy, slowness),
        collectives(&mut noisy, slowness),
        decisions(),
        summary(slowness),
    ];
    let problems = if slowness > 1.0 {
        vec![format!("memory.json:1:70: damaged {HOSTILE}")]
    } else {
        Vec::new()
    };
    Results {
        parts,
        machine: Some(machine(&mut noisy, slowness)),
        problems,
        ..Results::named(label)
    }
}

fn summary(slowness: f64) -> Part {
    let mut part = Part::new("summary", "Summary");
    part.complete = true;
    part.about = "What communication costs here, in one table.".into();
    part.source = "Table 1 of Bokhari: Communication Overhead, 1995".into();
    let columns = [
        "transport",
        "memory copy (µs/byte)",
        "barrier, 2^d ranks (µs)",
        "zero (µs)",
        "short (µs)",
        "long (µs)",
    ];
    let row = |name: &str, copy: f64, zero: f64| {
        let line =
            |fixed: f64, slope: f64| format!("{:.2} + {:.5}m", fixed * slowness, slope * slowness);
        let barrier = format!("{:.2}d − 0.04", 0.21 * slowness);
        let words = [
            barrier.into(),
            (zero * slowness).into(),
            line(zero, 0.00031).into(),
            line(1.9, 0.00012).into(),
        ];
        [name.into(), copy.into()].into_iter().chain(words).collect::<Vec<Value>>()
    };
    let rows =
        vec![row("shared memory", 0.0000893, 0.34), row("bound to one core", 0.0000911, 1.42)];
    let (name, title) = ("table-1".to_owned(), "Summary of performance figures".to_owned());
    let caption =
        "m is the message length in bytes; short and long divide at the break that the fit finds."
            .to_owned();
    part.tables.push(Table { name, title, caption, columns: strings(&columns), rows });
    part
}

fn pingpong(noisy: &mut Noisy, slowness: f64) -> Part {
    let mut part = Part::new("pingpong", "Time against message length");
    part.complete = true;
    part.about = "Two ranks exchange messages, with the receive posted beforehand (forced) or not (unforced).".into();
    part.source = "Bokhari, section 2, figures 1 and 2".into();
    part.notes = strings(&[
        "more ranks than cores",
        "interrupts of the hypervisor were seen during this part",
    ]);
    for (name, title, last, step) in
        [("long", "Communication times", 16000.0, 64.0), ("short", "Short messages", 2000.0, 16.0)]
    {
        let mut figure =
            Figure::new(name, title, Axis::bytes("message length"), Axis::microseconds("time"));
        figure.caption =
            "Half the time of an exchange; the band lies between the quartiles.".into();
        let xs = steps(last, step);
        let eager = |m: f64| slowness * (0.42 + 0.00031 * m + if m > 8640.0 { 1.1 } else { 0.0 });
        figure.series.push(noisy.curve("exchange, posted", &xs, eager));
        figure.series.push(noisy.curve("exchange, not posted", &xs, |m| 1.25 * eager(m) + 0.1));
        figure.series.push(noisy.curve("ping-pong, posted", &xs, |m| 0.8 * eager(m)));
        figure.series.push(formula("exchange, posted, fitted", Role::Fitted, &[0.0, last], |m| {
            slowness * (0.45 + 0.0004 * m)
        }));
        figure
            .series
            .push(formula("memory floor", Role::Floor, &[0.0, last], |m| 0.1 + 0.0001 * m));
        part.figures.push(figure);
    }
    part
}

fn barrier(noisy: &mut Noisy, slowness: f64) -> Part {
    let mut part = Part::new("barrier", "Barrier on 2^d ranks");
    part.about =
        "The median of many barriers, in a loop; the line is fitted through the least times."
            .into();
    part.notes = strings(&[
        "more ranks than cores from 4 ranks on",
        "16 ranks could not be started: memory is short",
    ]);
    let mut figure =
        Figure::new("barrier", "Barrier", Axis::number("dimension d"), Axis::microseconds("time"));
    figure.series.push(noisy.curve("barrier", &[1.0, 2.0, 3.0], |d| slowness * (0.21 * d - 0.04)));
    figure.series.push(formula("0.21d − 0.04", Role::Fitted, &[1.0, 3.0], |d| {
        slowness * (0.21 * d - 0.04)
    }));
    part.figures.push(figure);
    part
}

fn matchings(noisy: &mut Noisy, slowness: f64) -> Part {
    let mut part = Part::new("matchings", "Random matchings");
    part.complete = true;
    let mut figure = Figure::new(
        "matchings",
        "256 random matchings of 8 ranks",
        Axis::bytes("message length"),
        Axis::microseconds("time"),
    );
    let mut points = Vec::new();
    for _ in 0..64 {
        let luck = 1.0 + noisy.next();
        points.extend(
            steps(16384.0, 1024.0)
                .into_iter()
                .map(|m| Point::exact(m, slowness * luck * (0.5 + 0.0003 * m))),
        );
    }
    figure.series.push(Series { name: "a matching".into(), role: Role::Measured, points });
    part.figures.push(figure);
    part
}

const ALGORITHMS: [&str; 10] = [
    "flat",
    "chain",
    "segmented-chain",
    "binary",
    "binomial",
    "segmented-binomial",
    "dary",
    "scatter-allgather",
    "two-tree",
    "join",
];

fn collectives(noisy: &mut Noisy, slowness: f64) -> Part {
    let mut part = Part::new("models", "Predicted against measured");
    part.complete = true;
    let axes =
        (Axis::bytes("message size").logarithmic(), Axis::microseconds("time").logarithmic());
    let mut figure = Figure::new(
        "bcast",
        "Broadcast on 4 ranks, all algorithms",
        axes.0.clone(),
        axes.1.clone(),
    );
    for (place, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let time = move |m: f64| {
            slowness
                * (0.4 + 0.25 * place as f64 + (0.0002 + 0.00009 * ((place * 5) % 7) as f64) * m)
        };
        figure.series.push(noisy.curve(&format!("{algorithm}, measured"), &powers(), time));
        figure.series.push(formula(
            &format!("{algorithm}, predicted"),
            Role::Predicted,
            &powers(),
            move |m| 0.93 * time(m),
        ));
    }
    part.figures.push(figure);
    let mut gamma = Figure::new("alltoall", "All-to-all between its bounds", axes.0, axes.1);
    gamma.caption = "T = lower + (upper − lower)·γ, with γ = 0.41 from half of the sizes.".into();
    gamma.series.push(noisy.curve("direct exchange", &powers(), |m| slowness * (1.4 + 0.0008 * m)));
    for (name, share) in
        [("lower bound", 0.7), ("upper bound", 1.5), ("direct exchange, predicted", 1.05)]
    {
        gamma.series.push(formula(name, Role::Predicted, &powers(), |m| {
            slowness * share * (1.4 + 0.0008 * m)
        }));
    }
    part.figures.push(gamma);
    part
}

fn decisions() -> Part {
    let mut part = Part::new("tune", "Which algorithm, and what a wrong one costs");
    part.complete = true;
    let columns = Categories {
        label: "bytes".into(),
        names: powers().iter().map(|bytes| bytes.to_string()).collect(),
    };
    let rows = Categories { label: "ranks".into(), names: strings(&["2", "4", "8"]) };
    let (mut best, mut regret) = (Vec::new(), Vec::new());
    for row in 0..rows.names.len() {
        for column in (0..columns.names.len()).filter(|column| (row, *column) != (2, 20)) {
            let text = ALGORITHMS[(9 + column / 3 + row) % 10].to_owned();
            let detail = format!("{text}: 1.24 µs; next binomial, 1.31 µs");
            best.push(Square { row, column, text, value: None, detail });
            let ratio =
                1.0 + ((column * 7 + row * 3) % 10) as f64 * if column == 9 { 0.12 } else { 0.01 };
            let detail = "chosen 1.31 µs, best 1.24 µs".to_owned();
            regret.push(Square {
                row,
                column,
                text: format!("{ratio:.2}"),
                value: Some(ratio),
                detail,
            });
        }
    }
    let map = |name: &str, title: &str, colour, cells| Map {
        name: name.into(),
        title: title.into(),
        caption: "Measured in a run of its own.".into(),
        columns: columns.clone(),
        rows: rows.clone(),
        colour,
        cells,
    };
    part.maps.push(map("bcast", "Broadcast: the algorithm chosen", Colour::ByText, best));
    part.maps.push(map("bcast-regret", "Broadcast: regret", Colour::ByRatio, regret));
    part
}

/// Everything that could go wrong.
fn hostile() -> Part {
    let mut part = Part::new("edges", HOSTILE);
    part.about = HOSTILE.into();
    part.notes = strings(&[HOSTILE]);
    let mut figure = Figure::new(
        "hostile",
        HOSTILE,
        Axis::bytes(HOSTILE).logarithmic(),
        Axis::number(HOSTILE).logarithmic(),
    );
    figure.caption = HOSTILE.into();
    let long = "a name that goes on and on and on, as names do that are made of an operation, an algorithm, a segment and a placement";
    let values = [0.0, -1.0, f64::NAN, 3.0, f64::INFINITY, 5.0, 1e-3];
    let points =
        values.iter().enumerate().map(|(x, value)| Point::exact(x as f64, *value)).collect();
    figure.series.push(Series { name: HOSTILE.into(), role: Role::Measured, points });
    figure.series.push(Series {
        name: long.into(),
        role: Role::Predicted,
        points: vec![Point::exact(2.0, 2.0), Point::exact(6.0, 1.0)],
    });
    part.figures.push(figure);
    for (name, points) in [
        ("none", vec![]),
        ("nan", vec![Point::exact(1.0, f64::NAN); 3]),
        ("one", vec![Point::exact(4096.0, 12.0)]),
    ] {
        let mut figure = Figure::new(
            name,
            &format!("Edge: {name}"),
            Axis::bytes("size"),
            Axis::microseconds("time"),
        );
        figure.series.push(Series { name: name.into(), role: Role::Measured, points });
        part.figures.push(figure);
    }
    part.figures.push(Figure::new(
        "empty",
        "Edge: no curves",
        Axis::number("x"),
        Axis::number("y"),
    ));
    let rows = vec![vec![HOSTILE.into(), f64::NAN.into()], vec![Value::None, 1.0.into()], vec![]];
    let (name, title) = ("table".to_owned(), HOSTILE.to_owned());
    part.tables.push(Table {
        name,
        title,
        caption: String::new(),
        columns: strings(&[HOSTILE, "number"]),
        rows,
    });
    part
}

fn machine(noisy: &mut Noisy, slowness: f64) -> Machine {
    let fingerprint = Fingerprint {
        processor: "Invented Processor 9000 @ 2.60GHz".into(),
        cores: if slowness > 1.0 { 64 } else { 8 },
        threads_per_core: 2,
        sockets: 2,
        caches: vec![32 << 10, 1 << 20, 33 << 20],
        kernel: "6.1.0-28-amd64".into(),
        hypervisor: None,
    };
    let mut machine = Machine::new(fingerprint);
    for (class, distance) in
        [(PairClass::SameCore, 2.4), (PairClass::SharedCache, 1.0), (PairClass::SameSocket, 1.6)]
    {
        let scale = distance * slowness;
        let sizes: Vec<u64> = [0].into_iter().chain((0..=20).map(|power| 1 << power)).collect();
        let mut sample = |time: f64| Sample::of(noisy.repetitions(scale * time, 21));
        let samples: Vec<SizeSamples> = sizes
            .iter()
            .map(|bytes| SizeSamples {
                bytes: *bytes,
                send_overhead: sample(0.06 + 0.00005 * *bytes as f64),
                receive_overhead: sample(0.05 + 0.00007 * *bytes as f64),
                gap: sample(0.11 + 0.00012 * *bytes as f64),
            })
            .collect();
        let points = samples.iter().map(|at| parameters::Point {
            bytes: at.bytes,
            send_overhead: at.send_overhead.quantiles.median,
            receive_overhead: at.receive_overhead.quantiles.median,
            gap: at.gap.quantiles.median,
        });
        let costs = machine.engine_mut(Engine::Caller);
        costs
            .classes
            .insert(class, Parameters::new(0.14 * scale, points.collect()).expect("parameters"));
        costs.samples.insert(class, Samples { round_trip: sample(0.5), sizes: samples });
        costs.starts.insert(class, StartCosts { fixed: 0.31 * scale, per_byte: 0.00002 });
        costs.contention.insert(class, 0.41);
        if class == PairClass::SameSocket {
            let parameters = costs.classes.get(class).cloned().expect("just inserted");
            machine.engine_mut(Engine::Peers).classes.insert(class, parameters);
        }
    }
    machine.clock_nanoseconds = 17.0;
    machine.noise = Noise { share: 0.0021, per_second: 251.0, longest: 84.2 };
    machine.combine = 0.000052;
    let point = |ranks, microseconds| FlatPoint { ranks, bytes: 0, microseconds };
    let flat = FlatCosts::new(vec![point(2, 0.18), point(4, 0.28)]).expect("times");
    machine.flat.entry(CallForm::Blocking).or_default().insert(Collective::Barrier, flat);
    machine
}
