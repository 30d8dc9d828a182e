//! One line of the result.

use super::collective::Collective;
use models::machine_file::Engine;
use serde::{Deserialize, Serialize};

/// Measurement of one collective of one size; the [module](super) defines the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverlapRow {
    /// The collective.
    pub op: Collective,
    /// The algorithm.
    pub algorithm: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Size, as [`Collective`] counts it.
    pub bytes: u64,
    /// The engine that ran the operations.
    #[serde(with = "engine_name")]
    pub engine: Engine,
    /// Start and wait with nothing between them, in microseconds.
    pub alone_us: f64,
    /// The computation alone, in microseconds.
    pub compute_us: f64,
    /// Start, computation and wait, in microseconds.
    pub total_us: f64,
    /// Time that the collective adds to the computation, in microseconds. Below zero, it is lost in
    /// the noise.
    pub exposed_us: f64,
    /// The share of the collective that was hidden, in percent.
    pub overlap: f64,
    /// The share found complete before the rank had made any call, from 0 to 1.
    pub unattended: f64,
    /// Processor time that the collective took from the machine, in microseconds.
    pub stolen_us: f64,
    /// Repetitions of each kind.
    pub repetitions: u32,
    /// A tenth of the exposed times lies below, in microseconds.
    pub p10_us: f64,
    /// A tenth of the exposed times lies above, in microseconds.
    pub p90_us: f64,
}

/// An engine as its name.
mod engine_name {
    use models::machine_file::Engine;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        engine: &Engine,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(engine.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Engine, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_fields_are_those_that_were_promised() {
        let row = OverlapRow {
            op: Collective::Neighbor,
            algorithm: "direct".into(),
            ranks: 4,
            bytes: 64,
            engine: Engine::Caller,
            alone_us: 1.5,
            compute_us: 20.25,
            total_us: 21.0,
            exposed_us: 0.75,
            overlap: 50.0,
            unattended: 0.5,
            stolen_us: 3.0,
            repetitions: 10,
            p10_us: 0.5,
            p90_us: 1.0,
        };
        let json = r#"{"op":"neighbor","algorithm":"direct","ranks":4,"bytes":64,"engine":"caller","alone_us":1.5,"compute_us":20.25,"total_us":21.0,"exposed_us":0.75,"overlap":50.0,"unattended":0.5,"stolen_us":3.0,"repetitions":10,"p10_us":0.5,"p90_us":1.0}"#;
        assert_eq!(serde_json::to_string(&row).expect("numbers and names"), json);
        assert_eq!(serde_json::from_str::<OverlapRow>(json).expect("a row"), row);
        assert!(serde_json::from_str::<OverlapRow>(&json.replace("caller", "nobody")).is_err());
    }
}
