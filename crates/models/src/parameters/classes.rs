//! The parameters of every class of pairs.

use super::plogp::Parameters;
use crate::machine::PairClass;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The parameters of every class of pairs that was measured.
///
/// ```
/// use models::parameters::Classes;
/// use models::machine::PairClass;
/// use models::parameters::Parameters;
///
/// let mut classes = Classes::default();
/// classes.insert(PairClass::SameSocket, Parameters::linear(0.3, (0.1, 0.0), (0.1, 0.0), (0.2, 0.001))?);
/// // Ranks that share a cache are not measured; the class of the socket is the nearest one.
/// assert_eq!(classes.for_pair(PairClass::SharedCache).map(|(class, _)| class), Some(PairClass::SameSocket));
/// // Classes inside a node do not stand in for other nodes.
/// assert!(classes.for_pair(PairClass::OtherNode).is_none());
/// # Ok::<(), models::parameters::ParametersError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Classes(BTreeMap<PairClass, Parameters>);

impl Classes {
    /// Keeps the parameters of a class; the earlier ones, if there were any, are given back.
    pub fn insert(&mut self, class: PairClass, parameters: Parameters) -> Option<Parameters> {
        self.0.insert(class, parameters)
    }

    /// The parameters of exactly this class.
    pub fn get(&self, class: PairClass) -> Option<&Parameters> {
        self.0.get(&class)
    }

    /// The classes measured, nearest pairs first.
    pub fn iter(&self) -> impl Iterator<Item = (PairClass, &Parameters)> {
        self.0.iter().map(|(class, parameters)| (*class, parameters))
    }

    /// The parameters to be used for a pair of this class, and the class that they were measured
    /// for: this one, else the next one farther away on the same side of the network, else the next
    /// one nearer. Predictions from a farther class are too long rather than too short. The network
    /// has no stand-in, nor does it stand in.
    pub fn for_pair(&self, class: PairClass) -> Option<(PairClass, &Parameters)> {
        let same_side = |other: &PairClass| other.is_inside_node() == class.is_inside_node();
        let farther = self.0.range(class..).find(|(other, _)| same_side(other));
        let nearer = || self.0.range(..class).rev().find(|(other, _)| same_side(other));
        farther.or_else(nearer).map(|(class, parameters)| (*class, parameters))
    }
}
