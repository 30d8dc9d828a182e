//! Failures of libfabric.

/// A failure of libfabric, or of the search for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library cannot be opened.
    #[error(
        "libfabric cannot be opened: {why}; install it (Debian: libfabric1), or set TRADEWIND_LIBFABRIC to its path"
    )]
    NoLibrary {
        /// Reason of the dynamic linker.
        why: String,
    },
    /// The library lacks a function, or has it with another interface only.
    #[error(
        "{path} has no {function} of interface {version}: is it libfabric 1.17 or later? set TRADEWIND_LIBFABRIC to another one"
    )]
    NoFunction {
        /// Path of the library.
        path: String,
        /// Name of the function.
        function: &'static str,
        /// Version of the symbol.
        version: &'static str,
    },
    /// The library is too old.
    #[error(
        "{path} is libfabric {major}.{minor}, 1.17 or later is needed: set TRADEWIND_LIBFABRIC to another one"
    )]
    Version {
        /// Path of the library.
        path: String,
        /// First number of its version.
        major: u32,
        /// Second number of its version.
        minor: u32,
    },
    /// A provider that does not work with a process that sleeps.
    #[error("libfabric's provider {provider} is not used: {why}")]
    Refused {
        /// Name of the provider.
        provider: String,
        /// The reason, and the way out.
        why: &'static str,
    },
    /// There is no provider that fits.
    #[error("libfabric {version} has no {provider} for {address}: `fi_info -l` lists what it has")]
    NoProvider {
        /// Version of the library.
        version: String,
        /// Description of the provider.
        provider: String,
        /// Address of this node.
        address: String,
    },
    /// The system has no memory for a call, or limits what may be locked.
    #[error("{call} of libfabric's provider {provider} gets no memory: {why}; see `ulimit -l`")]
    NoMemory {
        /// Name of the function.
        call: &'static str,
        /// Name of the provider.
        provider: String,
        /// The reason.
        why: String,
    },
    /// A call has failed.
    #[error("{call} of libfabric's provider {provider} fails: {why}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Name of the provider.
        provider: String,
        /// The reason.
        why: String,
    },
}

/// Text of a status that a function of libfabric returns.
pub(crate) fn status_text(status: i64) -> String {
    let number = i32::try_from(status.unsigned_abs()).unwrap_or(i32::MAX);
    // Numbers from 256 on are libfabric's own.
    if number < 256 {
        std::io::Error::from_raw_os_error(number).to_string()
    } else {
        format!("error {number} of libfabric")
    }
}
