//! The Trace Event format (JSON object form), as far as the picture needs it.

use super::arrows::Arrow;
use super::slices::{Details, Slice, Track};
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use std::collections::BTreeMap;

/// One event of the format; its field names are the format's.
#[derive(Debug, Serialize)]
struct TraceEvent<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    ph: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// "e": the arrow ends at the slice that surrounds its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    pid: u32,
    tid: u64,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Slice(&'a Details),
    Name { name: String },
    Order { sort_index: u64 },
}

/// The whole file.
pub(super) fn encode(slices: &[Slice], arrows: &[Arrow]) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    let file = File { display_time_unit: "ns", trace_events: Events { slices, arrows } };
    serde_json::to_writer(&mut bytes, &file)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    display_time_unit: &'a str,
    trace_events: Events<'a>,
}

struct Events<'a> {
    slices: &'a [Slice],
    arrows: &'a [Arrow],
}

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Events { slices, arrows } = self;
        let start = slices.first().map_or(0, |slice| slice.begun);
        let microseconds = |nanoseconds: u64| (nanoseconds - start) as f64 / 1000.0;
        let mut list = serializer.serialize_seq(None)?;
        for event in names(slices) {
            list.serialize_element(&event)?;
        }
        for slice in *slices {
            list.serialize_element(&TraceEvent {
                cat: Some(if slice.event.is_some() { "operation" } else { "collective" }),
                ts: microseconds(slice.begun),
                dur: Some((slice.ended - slice.begun) as f64 / 1000.0),
                args: Some(Arguments::Slice(&slice.details)),
                ..plain(&slice.name, "X", slice.rank, slice.thread)
            })?;
        }
        for (id, arrow) in arrows.iter().enumerate() {
            for (phase, bp, (slice, at)) in [("s", None, arrow.from), ("f", Some("e"), arrow.to)] {
                let slice = &slices[slice];
                list.serialize_element(&TraceEvent {
                    cat: Some("order"),
                    id: Some(id),
                    bp,
                    ts: microseconds(at),
                    ..plain(arrow.name, phase, slice.rank, slice.thread)
                })?;
            }
        }
        list.end()
    }
}

fn plain<'a>(name: &'a str, ph: &'a str, pid: u32, tid: u64) -> TraceEvent<'a> {
    TraceEvent { name, cat: None, ph, id: None, bp: None, pid, tid, ts: 0.0, dur: None, args: None }
}

/// Names of ranks and tracks, and their order from top to bottom.
fn names(slices: &[Slice]) -> impl Iterator<Item = TraceEvent<'static>> {
    let tracks: BTreeMap<(u32, u64), Track> =
        slices.iter().map(|slice| ((slice.rank, slice.thread), slice.track)).collect();
    let ranks: BTreeMap<u32, u64> = tracks.keys().copied().collect();
    let ranks = ranks.into_iter().flat_map(|(rank, thread)| {
        let named = Arguments::Name { name: format!("rank {rank}") };
        let ordered = Arguments::Order { sort_index: u64::from(rank) };
        [
            TraceEvent { args: Some(named), ..plain("process_name", "M", rank, thread) },
            TraceEvent { args: Some(ordered), ..plain("process_sort_index", "M", rank, thread) },
        ]
    });
    let tracks = tracks.into_iter().flat_map(|((rank, thread), track)| {
        let name = match track {
            Track::Collectives(_) => "collectives".to_owned(),
            Track::Own(_) => "operations, by itself".to_owned(),
            Track::Other(_, executor) => format!("operations, by rank {executor}"),
        };
        let ordered = Arguments::Order { sort_index: thread };
        [
            TraceEvent {
                args: Some(Arguments::Name { name }),
                ..plain("thread_name", "M", rank, thread)
            },
            TraceEvent { args: Some(ordered), ..plain("thread_sort_index", "M", rank, thread) },
        ]
    });
    ranks.chain(tracks)
}
