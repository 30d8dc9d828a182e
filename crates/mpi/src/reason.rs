//! Reasons for which calls are left to the MPI library.

/// Defines the reasons, with their names in a report.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident $name:literal;)+) => {
        /// Why a call is left to the MPI library.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Reason { $($(#[doc = $doc])+ $reason,)+ }

        /// Their names, in the order of their numbers.
        pub(crate) const REASON_NAMES: &[&str] = &[$($name),+];

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub(crate) const ALL: &[Reason] = &[$(Reason::$reason),+];
        }
    };
}

reasons! {
    /// Tradewind serves no communicator, for a cause that the first line of the report names.
    Job "no job";
    /// The user has switched the library off.
    Off "TRADEWIND_MPI";
    /// The job has one rank.
    OneRank "one rank";
    /// The rule says nothing about jobs of so many ranks, and the user's table neither.
    Ranks "ranks";
    /// Tradewind does not serve the communicator.
    Communicator "communicator";
    /// The user has excluded the call.
    Excluded "TRADEWIND_MPI_ONLY";
    /// The buffers are too long.
    Length "length";
    /// The arguments are invalid, in a persistent collective on any rank: the MPI library reports
    /// that.
    Arguments "arguments";
    /// Only the MPI library has the operation.
    Operation "operation";
    /// The communicator has ranks on several nodes, where nothing has been measured.
    Nodes "nodes";
    /// A rank has no shared memory for the communicator of a persistent collective.
    Memory "memory";
    /// By the table or the rule the call is not surely faster here.
    Slower "not faster";
    /// The communicator was revoked, or one of its processes has failed.
    Failure "failure";
}
