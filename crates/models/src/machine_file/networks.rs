//! The networks between two nodes of a machine, and the fastest of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of TCP among the networks.
pub const TCP: &str = "tcp";
/// Start of the name of a provider of libfabric among the networks.
const FABRIC: &str = "fabric:";
/// Start of the name of TCP over one of several networks.
const TCP_OVER: &str = "tcp@";

/// Times of messages by the agents of two nodes, over each network that was measured: in
/// microseconds, by length in bytes. Networks have the names of `TRADEWIND_NETWORK`; `tcp@10.1.0.0/16`
/// is TCP over one of several networks that the nodes have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Networks(pub BTreeMap<String, BTreeMap<u64, f64>>);

/// The fastest network of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastestNetwork {
    /// The provider of libfabric; `None` for TCP.
    pub provider: Option<String>,
    /// The reason, in a few words.
    pub why: String,
}

/// Times of a provider as parts of those of TCP at the same lengths.
struct Ratios<'a> {
    provider: &'a str,
    /// The largest one, and its length.
    most: f64,
    at: u64,
    mean: f64,
}

impl Networks {
    /// Name of a provider of libfabric among the networks.
    pub fn of_provider(provider: &str) -> String {
        format!("{FABRIC}{provider}")
    }

    /// Name of TCP over a network, such as `10.1.0.0/16`.
    pub fn of_range(range: &str) -> String {
        format!("{TCP_OVER}{range}")
    }

    /// The networks that two nodes have in common, by the time of the longest message over TCP.
    ///
    /// ```
    /// use models::machine_file::Networks;
    ///
    /// let mut networks = Networks::default();
    /// for (range, time) in [("10.0.0.0/8", 900.0), ("10.7.0.0/16", 90.0)] {
    ///     networks.0.insert(Networks::of_range(range), [(8, 5.0), (1 << 20, time)].into());
    /// }
    /// assert_eq!(networks.ranges(), ["10.7.0.0/16", "10.0.0.0/8"]);
    /// ```
    pub fn ranges(&self) -> Vec<String> {
        let range = |(name, times): (&String, &BTreeMap<u64, f64>)| {
            let (_, time) = times.last_key_value()?;
            Some((*time, name.strip_prefix(TCP_OVER)?.to_owned()))
        };
        let mut ranges: Vec<(f64, String)> = self.0.iter().filter_map(range).collect();
        ranges.sort_by(|left, right| left.0.total_cmp(&right.0));
        ranges.into_iter().map(|(_, range)| range).collect()
    }

    /// Returns the fastest network: a provider of libfabric that takes less time than TCP at every
    /// length that was measured, and of several the one with the least mean; otherwise TCP. `None`
    /// if TCP was not measured.
    ///
    /// ```
    /// use models::machine_file::Networks;
    ///
    /// let times = |short, long| [(8, short), (65536, long)].into();
    /// let mut networks = Networks([("tcp".to_owned(), times(5.0, 60.0))].into());
    /// networks.0.insert(Networks::of_provider("tcp"), times(4.0, 90.0));
    /// let fastest = networks.fastest().expect("TCP was measured");
    /// assert_eq!(fastest.provider, None);
    /// assert_eq!(fastest.why, "libfabric's tcp takes 1.50 of TCP's time at 65536 bytes");
    /// networks.0.insert(Networks::of_provider("efa"), times(2.0, 12.0));
    /// assert_eq!(networks.fastest().expect("measured").provider.as_deref(), Some("efa"));
    /// ```
    pub fn fastest(&self) -> Option<FastestNetwork> {
        let tcp = self.0.get(TCP).filter(|times| !times.is_empty())?;
        let providers =
            self.0.iter().filter_map(|(name, times)| Some((name.strip_prefix(FABRIC)?, times)));
        let compared: Vec<Ratios<'_>> =
            providers.filter_map(|(provider, times)| Ratios::of(provider, times, tcp)).collect();
        let by_mean = |left: &&Ratios<'_>, right: &&Ratios<'_>| left.mean.total_cmp(&right.mean);
        let is_faster = |ratios: &&Ratios<'_>| ratios.most < 1.0;
        if let Some(Ratios { provider, most, .. }) =
            compared.iter().filter(is_faster).min_by(by_mean)
        {
            let why = format!("at most {most:.2} of TCP's time");
            return Some(FastestNetwork { provider: Some((*provider).to_owned()), why });
        }
        let why = match compared.iter().min_by(by_mean) {
            Some(Ratios { provider, most, at, .. }) => {
                format!("libfabric's {provider} takes {most:.2} of TCP's time at {at} bytes")
            }
            None => "no provider of libfabric was measured".to_owned(),
        };
        Some(FastestNetwork { provider: None, why })
    }

    /// The first time that is none, with its place.
    pub(super) fn check(&self) -> Result<(), (String, f64)> {
        let times = self.0.iter().flat_map(|(name, times)| {
            times.iter().map(move |(bytes, time)| (format!("networks.{name}.{bytes}"), *time))
        });
        let is_wrong = |(_, time): &(String, f64)| !(*time > 0.0 && time.is_finite());
        times.into_iter().find(is_wrong).map_or(Ok(()), Err)
    }
}

impl<'a> Ratios<'a> {
    /// Compares the lengths that both have; `None` if TCP has others.
    fn of(provider: &'a str, times: &BTreeMap<u64, f64>, tcp: &BTreeMap<u64, f64>) -> Option<Self> {
        let ratios = tcp.iter().map(|(bytes, time)| Some((*bytes, times.get(bytes)? / time)));
        let ratios: Vec<(u64, f64)> = ratios.collect::<Option<_>>()?;
        let (at, most) = ratios.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
        let sum: f64 = ratios.iter().map(|(_, ratio)| ratio).sum();
        Some(Ratios { provider, most, at, mean: sum / ratios.len() as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(of: &[(&str, &[(u64, f64)])]) -> Networks {
        let times = |times: &[(u64, f64)]| times.iter().copied().collect();
        Networks(of.iter().map(|(name, list)| ((*name).to_owned(), times(list))).collect())
    }

    #[test]
    fn a_provider_that_is_slower_anywhere_is_not_taken() {
        let tcp: (&str, &[(u64, f64)]) = ("tcp", &[(8, 5.0), (100, 10.0)]);
        assert_eq!(networks(&[]).fastest(), None);
        assert_eq!(networks(&[("fabric:efa", &[(8, 1.0)])]).fastest(), None);
        let fastest = |others: &[(&str, &[(u64, f64)])]| {
            networks(&[&[tcp], others].concat()).fastest().expect("TCP was measured")
        };
        assert_eq!(fastest(&[]).why, "no provider of libfabric was measured");
        assert_eq!(fastest(&[("fabric:efa", &[(8, 1.0), (100, 10.0)])]).provider, None);
        assert_eq!(fastest(&[("fabric:efa", &[(8, 1.0)])]).provider, None, "a length is missing");
        let efa = fastest(&[
            ("fabric:cxi", &[(8, 4.0), (100, 9.0)]),
            ("fabric:efa", &[(8, 2.0), (100, 9.5)]),
        ]);
        assert_eq!(efa.provider.as_deref(), Some("efa"));
        assert_eq!(efa.why, "at most 0.95 of TCP's time");
    }

    #[test]
    fn times_that_are_none_are_named() {
        let wrong = networks(&[("tcp", &[(8, 5.0), (64, 0.0)])]);
        assert_eq!(wrong.check(), Err(("networks.tcp.64".to_owned(), 0.0)));
        assert_eq!(networks(&[("tcp", &[(8, 5.0)])]).check(), Ok(()));
    }
}
