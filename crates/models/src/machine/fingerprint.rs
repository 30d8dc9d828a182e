//! Properties that distinguish machines with different costs of messages.

use serde::{Deserialize, Serialize};

/// Properties that distinguish machines. [`Topology`](super::Topology) determines them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The processor's model name.
    pub processor: String,
    /// The number of cores that may be used.
    pub cores: u32,
    /// Hardware threads a core.
    pub threads_per_core: u32,
    /// The number of sockets.
    pub sockets: u32,
    /// Bytes of the largest cache of each level, from the first.
    pub caches: Vec<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The hypervisor, if there is one.
    pub hypervisor: Option<String>,
}

impl Fingerprint {
    /// In which way the machine here differs from this one, each in words; empty if it is the same.
    ///
    /// ```
    /// use models::machine::Fingerprint;
    /// let there = Fingerprint { cores: 4, ..Fingerprint::default() };
    /// let here = Fingerprint { cores: 8, ..Fingerprint::default() };
    /// assert_eq!(there.differences(&here), ["cores: 4 there, 8 here"]);
    /// ```
    pub fn differences(&self, here: &Fingerprint) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, there: String, here: String| {
            if there != here {
                differences.push(format!("{what}: {there} there, {here} here"));
            }
        };
        compare("processor", self.processor.clone(), here.processor.clone());
        compare("cores", self.cores.to_string(), here.cores.to_string());
        compare(
            "threads a core",
            self.threads_per_core.to_string(),
            here.threads_per_core.to_string(),
        );
        compare("sockets", self.sockets.to_string(), here.sockets.to_string());
        compare("caches", format!("{:?}", self.caches), format!("{:?}", here.caches));
        compare("kernel", self.kernel.clone(), here.kernel.clone());
        let name =
            |hypervisor: &Option<String>| hypervisor.clone().unwrap_or_else(|| "none".to_owned());
        compare("hypervisor", name(&self.hypervisor), name(&here.hypervisor));
        differences
    }
}
