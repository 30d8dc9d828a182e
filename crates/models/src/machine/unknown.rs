//! What a machine may hide.

/// Something that could not be found out. Its text says what is assumed instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unknown {
    /// Which cores there are.
    Cores,
    /// Which cores this process may use.
    Allowed,
    /// Which numbers are threads of one core.
    Threads,
    /// Which socket a core belongs to.
    Sockets,
    /// What caches there are, or who shares them.
    Caches,
    /// What the processor is called.
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
