//! Reading the Trace Event format as a viewer does, and holding a profile to its rules.

use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    trace_events: Vec<serde_json::Value>,
}

/// A bar.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) cat: String,
    pub(crate) pid: u32,
    tid: u64,
    ts: f64,
    dur: f64,
    pub(crate) args: serde_json::Value,
}

impl Slice {
    /// Begin and end in nanoseconds.
    pub(crate) fn span(&self) -> (u64, u64) {
        let begun = nanoseconds(self.ts);
        (begun, begun + nanoseconds(self.dur))
    }

    pub(crate) fn cpu(&self) -> u64 {
        self.args["cpu"].as_u64().expect("an operation has a cpu")
    }
}

/// One end of an arrow.
#[derive(Debug, Deserialize)]
struct End {
    name: String,
    id: u64,
    ph: String,
    bp: Option<String>,
    pid: u32,
    tid: u64,
    ts: f64,
}

/// A profile that keeps the rules.
pub(crate) struct Profile {
    pub(crate) slices: Vec<Slice>,
    /// Name, from, to.
    pub(crate) arrows: Vec<(String, Slice, Slice)>,
    /// Names of processes.
    pub(crate) processes: HashMap<u32, String>,
    threads: HashMap<(u32, u64), String>,
}

/// Microseconds with fractions are whole nanoseconds.
fn nanoseconds(microseconds: f64) -> u64 {
    let nanoseconds = microseconds * 1000.0;
    assert!(
        nanoseconds >= 0.0 && (nanoseconds - nanoseconds.round()).abs() < 1e-3,
        "{microseconds} µs"
    );
    nanoseconds.round() as u64
}

fn parse<T: serde::de::DeserializeOwned>(event: &serde_json::Value) -> T {
    serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event}"))
}

impl Profile {
    /// Reads a file and checks that every arrow has two ends that lie in slices, the second not
    /// before the first, and that slices of a track lie one after the other or one within the
    /// other.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read(path).expect("the profile is there");
        let file: File = serde_json::from_slice(&text).expect("it is JSON");
        let mut profile = Profile {
            slices: Vec::new(),
            arrows: Vec::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
        };
        let mut ends: HashMap<u64, Vec<End>> = HashMap::new();
        for event in &file.trace_events {
            match event["ph"].as_str() {
                Some("X") => profile.slices.push(parse(event)),
                Some("s" | "f") => {
                    let end: End = parse(event);
                    ends.entry(end.id).or_default().push(end);
                }
                Some("M") => profile.note(event),
                other => panic!("an event of kind {other:?}: {event}"),
            }
        }
        profile.check_tracks();
        for (id, ends) in ends {
            let [from, to] = &ends[..] else { panic!("arrow {id} has {} ends", ends.len()) };
            assert_eq!(
                (from.ph.as_str(), to.ph.as_str(), to.bp.as_deref()),
                ("s", "f", Some("e")),
                "arrow {id}"
            );
            assert!(from.ts <= to.ts, "arrow {id} ({}) leads back in time: {ends:?}", from.name);
            let (left, reached) = (profile.surrounding(from), profile.surrounding(to));
            profile.arrows.push((from.name.clone(), left, reached));
        }
        profile
    }

    fn note(&mut self, event: &serde_json::Value) {
        let number = |key: &str| event[key].as_u64().expect("a number");
        let (process, thread) = (number("pid") as u32, number("tid"));
        let name = event["args"]["name"].as_str().map(str::to_owned);
        match event["name"].as_str() {
            Some("process_name") => {
                drop(self.processes.insert(process, name.expect("it has a name")))
            }
            Some("thread_name") => {
                drop(self.threads.insert((process, thread), name.expect("it has a name")))
            }
            Some("process_sort_index" | "thread_sort_index") => {
                assert!(event["args"]["sort_index"].is_u64())
            }
            other => panic!("{other:?} is not a name: {event}"),
        }
    }

    fn check_tracks(&self) {
        let mut tracks: HashMap<(u32, u64), Vec<(u64, u64)>> = HashMap::new();
        for slice in &self.slices {
            let track = (slice.pid, slice.tid);
            assert!(
                self.threads.contains_key(&track) && self.processes.contains_key(&slice.pid),
                "{slice:?}"
            );
            let (begun, ended) = slice.span();
            assert!(begun < ended, "an empty slice cannot be seen: {slice:?}");
            tracks.entry(track).or_default().push((begun, ended));
        }
        for (track, mut spans) in tracks {
            spans.sort_by_key(|(begun, ended)| (*begun, std::cmp::Reverse(*ended)));
            let mut open: Vec<u64> = Vec::new();
            for (begun, ended) in spans {
                open.retain(|end| *end > begun);
                assert!(
                    open.last().is_none_or(|end| ended <= *end),
                    "slices of track {track:?} overlap at {begun}"
                );
                open.push(ended);
            }
        }
    }

    /// The innermost slice around an end of an arrow: where a viewer puts it.
    fn surrounding(&self, end: &End) -> Slice {
        let at = nanoseconds(end.ts);
        let around = self.slices.iter().filter(|slice| {
            let (begun, ended) = slice.span();
            (slice.pid, slice.tid) == (end.pid, end.tid) && begun <= at && at < ended
        });
        let innermost = around.min_by_key(|slice| slice.span().1 - slice.span().0);
        innermost.unwrap_or_else(|| panic!("{end:?} lies in no slice")).clone()
    }

    /// Slices of operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|slice| slice.cat == "operation")
    }

    /// Number of arrows with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.arrows.iter().filter(|arrow| arrow.0 == name).count()
    }
}
