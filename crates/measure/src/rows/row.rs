//! One measured time with its coordinates.

use super::exchange::Exchange;
use super::mechanism::Mechanism;
use collectives::{Choice, Collective};
use models::decision::{CallForm, Query};
use models::machine::PairClass;
use models::machine_file::Engine;
use models::statistics::{Sample, median};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Subject of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A collective among all ranks.
    Collective(Collective),
    /// An exchange with the neighbours on a torus of two dimensions.
    NeighborAlltoall,
    /// A computation without any call.
    Computation,
    /// Messages from one rank to the other by a mechanism.
    Messages(Mechanism),
    /// A bare word that one rank stores and the other loads.
    Word,
    /// Messages between pairs of ranks, by linked schedules.
    Exchange(Exchange),
    /// Messages of one schedule from one rank to the other, as collectives send them. Their times
    /// are differences, from a run or a reading of the clock without them, and may be negative.
    Linked,
    /// A run of a schedule that is an empty message to and fro; its size is that of a private
    /// buffer beside it.
    RoundTrip,
    /// Two contributions that become one.
    Combination,
    /// A loop that does nothing but look at the clock.
    Looks,
    /// A copy within the memory of each rank, with the offsets of both pieces in bytes from a multiple
    /// of 64.
    Copy {
        /// Offset of the piece that is read.
        source: u32,
        /// Offset of the piece that is written.
        target: u32,
    },
}

/// The time of the subject that a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// From call to result, with nothing between start and wait.
    Alone,
    /// From start to result, with a computation between start and wait.
    Over,
    /// [`Over`](Self::Over) less the computation alone. It may be negative: it is a difference.
    Exposed,
    /// Half a round trip.
    Latency,
    /// A message of a stream.
    Gap,
    /// A send while there is space for it.
    SendOverhead,
    /// A receive of a message that waits.
    ReceiveOverhead,
    /// A wait for messages that do not come.
    Sleep,
    /// The first run, which receives into memory that nothing has touched.
    First,
    /// A later run that receives into memory that nothing has touched.
    Untouched,
    /// The least time that a clock shows.
    Least,
    /// A time for which something else ran on the core.
    Interruption,
    /// [`Alone`](Self::Alone) as the models predicted it before it was measured.
    Predicted,
    /// [`Alone`](Self::Alone) in a network that carries as much as its links together.
    LowerBound,
    /// [`Alone`](Self::Alone) in a network that carries one message at a time.
    UpperBound,
}

collectives::named_enum! {
    /// Source of the choice among the algorithms of a call.
    pub enum Chooser ("source of a choice") {
        /// Parameters and rules that are built in: without a table they choose.
        BuiltIn = "built-in",
        /// The models of the machine.
        Models = "models",
        /// The decision table of the machine.
        Table = "table",
    }
}

/// Use of the cores by others than the job while it was measured, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Time of the cores that other processes used.
    pub others: f64,
    /// Time of the cores that the hypervisor gave to other virtual machines.
    pub stolen: f64,
}

/// Cores of the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cores {
    /// The core that each rank is bound to, in the order of the ranks.
    Bound(Vec<usize>),
    /// Number of cores that the ranks share, each wherever the system puts it.
    Shared(u32),
}

impl Cores {
    /// Number of different cores.
    pub fn number(&self) -> u32 {
        match self {
            Cores::Bound(cores) => cores.iter().collect::<BTreeSet<_>>().len() as u32,
            Cores::Shared(number) => *number,
        }
    }
}

/// One measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// The subject.
    pub what: What,
    /// The time of it.
    pub quantity: Quantity,
    /// The engine that ran it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The algorithm of a collective.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "choice_text")]
    pub algorithm: Option<Choice>,
    /// Sources that choose this algorithm, on this engine, for the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen_by: Vec<Chooser>,
    /// Form of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<CallForm>,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes that they are on.
    pub nodes: u32,
    /// Number of ranks on the first node.
    pub ranks_per_node: u32,
    /// The node of each rank, in the order of the ranks; empty where an experiment does not need it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_of_rank: Vec<u32>,
    /// The cores of the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Cores>,
    /// Class of the two ranks, where it was measured because of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairClass>,
    /// Size in bytes, as the subject counts it.
    pub bytes: u64,
    /// Number of threads that send; those that receive where nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Speed of the link between virtual nodes in bits a second; absent where nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
    /// The machine in words.
    pub machine: String,
    /// Microseconds of each repetition: of the rank that takes longest, or of the ranks together.
    pub times: Vec<f64>,
    /// Calls that each time is the mean of.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub calls: u32,
    /// Processor time that it took from the machine, in microseconds a repetition. A difference:
    /// below zero it is lost in the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<f64>,
    /// Share of the repetitions that were complete before their rank made another call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<f64>,
    /// Load by others meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(calls: &u32) -> bool {
    *calls == 1
}

impl Row {
    /// A row of ranks on one node, of no size, engine or machine.
    ///
    /// ```
    /// use measure::rows::{Quantity, Row, What};
    /// let row = Row::new("trial", What::Computation, Quantity::Alone, 2, vec![1.5]);
    /// assert_eq!((row.nodes, row.ranks_per_node, row.check()), (1, 2, Ok(())));
    /// ```
    pub fn new(
        experiment: &str,
        what: What,
        quantity: Quantity,
        ranks: u32,
        times: Vec<f64>,
    ) -> Self {
        Row {
            experiment: experiment.to_owned(),
            what,
            quantity,
            engine: None,
            algorithm: None,
            chosen_by: Vec::new(),
            form: None,
            ranks,
            nodes: 1,
            ranks_per_node: ranks,
            node_of_rank: Vec::new(),
            cores: None,
            pair: None,
            bytes: 0,
            threads: None,
            link: None,
            machine: String::new(),
            times,
            calls: 1,
            processor: None,
            unattended: None,
            load: None,
        }
    }

    /// The same in this form of a call, on this engine, by this algorithm.
    #[must_use]
    pub fn by(self, engine: Engine, form: CallForm, algorithm: Option<Choice>) -> Self {
        Row { engine: Some(engine), form: Some(form), algorithm, ..self }
    }

    /// The same with this size.
    #[must_use]
    pub fn sized(self, bytes: u64) -> Self {
        Row { bytes, ..self }
    }

    /// The same among ranks on these nodes, in the order of the ranks.
    #[must_use]
    pub fn among(self, node_of_rank: &[u32]) -> Self {
        let nodes = node_of_rank.iter().collect::<BTreeSet<_>>().len() as u32;
        let on_first = node_of_rank.iter().filter(|node| node_of_rank.first() == Some(node));
        let ranks_per_node = on_first.count() as u32;
        let ranks = node_of_rank.len() as u32;
        let node_of_rank = if nodes > 1 { node_of_rank.to_vec() } else { Vec::new() };
        Row { ranks, nodes, ranks_per_node, node_of_rank, ..self }
    }

    /// The call of a collective that it is about.
    pub fn query(&self) -> Option<Query> {
        let What::Collective(operation) = self.what else { return None };
        let Row { ranks, ranks_per_node, bytes, .. } = *self;
        Some(Query { operation, form: self.form?, ranks, ranks_per_node, bytes })
    }

    /// Returns true if ranks had to share cores.
    pub fn is_crowded(&self) -> bool {
        self.cores.as_ref().is_some_and(|cores| self.ranks > cores.number())
    }

    /// The cores that the ranks are bound to; none where they are not bound.
    pub fn bound(&self) -> &[usize] {
        match &self.cores {
            Some(Cores::Bound(cores)) => cores,
            Some(Cores::Shared(_)) | None => &[],
        }
    }

    /// The median time in microseconds.
    pub fn median(&self) -> f64 {
        median(&self.times)
    }

    /// The time in microseconds below which a quarter lies.
    pub fn lower_quartile(&self) -> f64 {
        Sample::of(self.times.clone()).quantiles.p25
    }

    /// Checks that a measurement can have given this row.
    ///
    /// # Errors
    /// The field, its value and the values that it can have.
    pub fn check(&self) -> Result<(), String> {
        let is_difference = self.quantity == Quantity::Exposed || self.what == What::Linked;
        let least = if is_difference { f64::NEG_INFINITY } else { 0.0 };
        let is_time = |time: &f64| time.is_finite() && *time >= least;
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        if self.experiment.is_empty() {
            return Err("`experiment` is empty, and every row has one".to_owned());
        }
        let Row { ranks, nodes, ranks_per_node, .. } = *self;
        if [nodes, ranks_per_node].iter().any(|count| !(1..=ranks).contains(count)) {
            return Err(format!(
                "{ranks} ranks on {nodes} nodes, {ranks_per_node} of them on the first, and each \
                 node has one or more"
            ));
        }
        self.check_places()?;
        if self.algorithm.is_none() && !self.chosen_by.is_empty() {
            return Err("`chosen_by` is there without the `algorithm` that was chosen".to_owned());
        }
        if self.calls == 0 {
            return Err("`calls` is 0, and a time is one of calls".to_owned());
        }
        if self.times.is_empty() {
            return Err("`times` is empty, and a row is made of repetitions".to_owned());
        }
        if let Some(time) = self.times.iter().find(|time| !is_time(time)) {
            return Err(format!("`times` has {time}, which is no time in microseconds"));
        }
        if let Some(time) = self.processor.filter(|time| !time.is_finite()) {
            return Err(format!("`processor` is {time}, which is no time in microseconds"));
        }
        let Load { others, stolen } = self.load.unwrap_or_default();
        match [self.unattended.unwrap_or(0.0), others, stolen].iter().find(|one| !is_share(one)) {
            Some(share) => Err(format!("{share} is no share, which lies from 0 to 1")),
            None => Ok(()),
        }
    }
}

impl Row {
    /// Checks nodes, cores and partners of the ranks.
    fn check_places(&self) -> Result<(), String> {
        let ranks = self.ranks;
        let is_of_each = |length: usize| length == ranks as usize;
        if !self.node_of_rank.is_empty() && !is_of_each(self.node_of_rank.len()) {
            let found = &self.node_of_rank;
            return Err(format!("`node_of_rank` is {found:?}, and {ranks} ranks have a node each"));
        }
        match &self.cores {
            Some(Cores::Bound(cores)) if !is_of_each(cores.len()) => {
                return Err(format!(
                    "`cores` are {cores:?}, and {ranks} ranks are bound to one each"
                ));
            }
            Some(Cores::Shared(0)) => {
                return Err("`cores` are 0, and ranks run on one or more".to_owned());
            }
            _ => {}
        }
        match &self.what {
            What::Exchange(exchange) => exchange.pairs.check(ranks),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl Row {
    /// A row of ranks on one node, each with a core of its own.
    pub(crate) fn trial(what: What, ranks: u32, bytes: u64, times: &[f64]) -> Self {
        let cores = Some(Cores::Bound((0..ranks as usize).collect()));
        Row { cores, bytes, ..Row::new("trial", what, Quantity::Alone, ranks, times.to_vec()) }
    }
}

/// A choice as its text.
mod choice_text {
    use collectives::Choice;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        choice: &Option<Choice>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match choice {
            Some(choice) => serializer.collect_str(choice),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Choice>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
