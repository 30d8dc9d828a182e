//! Properties that a machine may hide.

/// A property that could not be determined. Its text states the assumption instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unknown {
    /// The cores.
    Cores,
    /// The cores that this process may use.
    Allowed,
    /// The numbers that are threads of one core.
    Threads,
    /// The socket of a core.
    Sockets,
    /// The caches, or the cores that share them.
    Caches,
    /// The model of the processor.
    Processor,
    /// The kernel's release.
    Kernel,
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Unknown::Cores => "which cores there are is not known: taken for one",
            Unknown::Allowed => "which cores this process may use is not known: taken for all",
            Unknown::Threads => "which cores are threads of one core is not known: each is taken for a core of its own",
            Unknown::Sockets => "which socket a core belongs to is not known: all of these are taken for one socket's",
            Unknown::Caches => "which caches cores share is not known: none but their socket's",
            Unknown::Processor => "what the processor is called is not known: left empty",
            Unknown::Kernel => "the kernel's release is not known: left empty",
        })
    }
}
