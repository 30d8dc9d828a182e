//! Program with its expected result.

use crate::conformance::engine::{Capabilities, Engine, Failure, Fault, Round, RoundOutcome};
use goal::graph::{Graph, JoinMode, Operation};

/// Checks the outcomes of all rounds; its error describes the first defect.
pub type Check = Box<dyn Fn(&[RoundOutcome]) -> Result<(), String> + Send + Sync>;

/// Expected result of a vector's program.
pub enum Expected {
    /// Exactly these bytes in every round.
    Bytes(Vec<Round>),
    /// These bytes, and at least one of these faults and no other in every round.
    Faults(Vec<Round>, Vec<Fault>),
    /// Any outcome that passes the check, without faults: for results that depend on time or order
    /// of arrival.
    Checked(Check),
    /// [`Failure::SizesDiffer`] with all these words in its text.
    SizesDiffer(Vec<String>),
}

/// Program written by hand.
pub struct Vector {
    /// Name in reports.
    pub name: String,
    /// Graphs of all ranks.
    pub program: Vec<Graph>,
    /// Buffers at the start of every round.
    pub inputs: Vec<Round>,
    /// Expected result.
    pub expected: Expected,
}

impl Vector {
    /// Returns true if an engine with these capabilities can run it.
    pub fn is_within(&self, capabilities: &Capabilities) -> bool {
        let operations =
            || self.program.iter().flat_map(Graph::vertices).map(|entry| &entry.operation);
        let wildcards = operations().any(|operation| {
            matches!(
                operation,
                Operation::Receive { source: None, .. } | Operation::Receive { tag: None, .. }
            )
        });
        let joins = operations().any(|operation| matches!(operation, Operation::Join { .. }));
        let other_types = operations().any(|operation| {
            let data_type = match operation {
                Operation::Local { data_type, .. } => data_type,
                Operation::Join { mode: JoinMode::Reduce { data_type, .. }, .. } => data_type,
                _ => return false,
            };
            !data_type.is_basic()
        });
        self.program.len() <= capabilities.max_ranks as usize
            && (capabilities.wildcards || !wildcards)
            && (capabilities.joins || !joins)
            && (capabilities.all_types || !other_types)
    }

    /// Runs it.
    ///
    /// # Errors
    /// The difference between the outcome and the expected result.
    pub fn run(&self, engine: &dyn Engine) -> Result<(), String> {
        let outcome = engine.run(&self.program, &self.inputs);
        if let Expected::SizesDiffer(words) = &self.expected {
            return match outcome {
                Err(Failure::SizesDiffer(text)) => {
                    match words.iter().find(|word| !text.contains(word.as_str())) {
                        Some(word) => Err(format!("the failure does not mention `{word}`: {text}")),
                        None => Ok(()),
                    }
                }
                Err(other) => Err(format!("expected a failure about sizes, found: {other}")),
                Ok(_) => {
                    Err("expected a failure about sizes, but the program ran to its end".into())
                }
            };
        }
        let outcomes = outcome.map_err(|failure| failure.to_string())?;
        match &self.expected {
            Expected::Bytes(rounds) => compare(rounds, &[], &outcomes),
            Expected::Faults(rounds, faults) => compare(rounds, faults, &outcomes),
            Expected::Checked(check) => {
                compare_faults(&[], &outcomes)?;
                check(&outcomes)
            }
            Expected::SizesDiffer(_) => Ok(()),
        }
    }
}

/// Compares outcomes with the bytes and the faults expected in every round.
///
/// # Errors
/// The first difference, with the position of its byte.
pub(crate) fn compare(
    rounds: &[Round],
    faults: &[Fault],
    outcomes: &[RoundOutcome],
) -> Result<(), String> {
    if rounds.len() != outcomes.len() {
        return Err(format!("{} rounds were run, {} were asked for", outcomes.len(), rounds.len()));
    }
    for (round, (expected, outcome)) in rounds.iter().zip(outcomes).enumerate() {
        compare_round(expected, &outcome.buffers)
            .map_err(|difference| format!("round {round}, {difference}"))?;
    }
    compare_faults(faults, outcomes)
}

/// Compares the faults of every round: none where none is expected, otherwise at least one, and
/// only expected ones.
pub(crate) fn compare_faults(faults: &[Fault], outcomes: &[RoundOutcome]) -> Result<(), String> {
    for (round, outcome) in outcomes.iter().enumerate() {
        if let Some(fault) = outcome.faults.iter().find(|fault| !faults.contains(fault)) {
            let Fault { rank, vertex } = fault;
            return Err(format!(
                "round {round}: a division by zero is reported for rank {rank}, vertex {vertex}, where none is"
            ));
        }
        if !faults.is_empty() && outcome.faults.is_empty() {
            return Err(format!(
                "round {round}: no division by zero is reported, expected one of {faults:?}"
            ));
        }
    }
    Ok(())
}

fn compare_round(expected: &Round, found: &Round) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("buffers of {} ranks instead of {}", found.len(), expected.len()));
    }
    for (rank, (expected, found)) in expected.iter().zip(found).enumerate() {
        if expected.len() != found.len() {
            return Err(format!(
                "rank {rank}: {} buffers instead of {}",
                found.len(),
                expected.len()
            ));
        }
        for (buffer, (expected, found)) in expected.iter().zip(found).enumerate() {
            compare_bytes(expected, found)
                .map_err(|text| format!("rank {rank}, buffer {buffer}: {text}"))?;
        }
    }
    Ok(())
}

/// Compares two buffers.
///
/// # Errors
/// The first differing byte with its neighbourhood.
pub(crate) fn compare_bytes(expected: &[u8], found: &[u8]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let Some(place) = expected.iter().zip(found).position(|(expected, found)| expected != found)
    else {
        return Ok(());
    };
    let differing =
        expected.iter().zip(found).filter(|(expected, found)| expected != found).count();
    let start = place / 8 * 8;
    let around = start..(start + 16).min(expected.len());
    Err(format!(
        "byte {place} is {:#04x} instead of {:#04x}; {differing} of {} bytes differ; from byte {start} expected \
         {:02x?}, found {:02x?}",
        found[place],
        expected[place],
        expected.len(),
        &expected[around.clone()],
        &found[around]
    ))
}
