//! The collectives of MPI.

macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// A collective of MPI: nonblocking, persistent or blocking.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(non_camel_case_types, reason = "the names of the MPI standard")]
        pub(crate) enum Kind { $($kind),* }

        impl Kind {
            pub(crate) const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The kind's place in a set of kinds.
            pub(crate) fn bit(self) -> u128 {
                1 << self as u32
            }

            /// Name of the call without `MPI_`.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Kind::$kind => stringify!($kind)),* }
            }
        }
    };
}

kinds! {
    Ibarrier, Ibcast, Igather, Igatherv, Iscatter, Iscatterv, Iallgather, Iallgatherv, Ialltoall,
    Ialltoallv, Ialltoallw, Ireduce, Iallreduce, Ireduce_scatter, Ireduce_scatter_block, Iscan,
    Iexscan, Ineighbor_allgather, Ineighbor_allgatherv, Ineighbor_alltoall, Ineighbor_alltoallv,
    Ineighbor_alltoallw,
    Barrier_init, Bcast_init, Gather_init, Gatherv_init, Scatter_init, Scatterv_init,
    Allgather_init, Allgatherv_init, Alltoall_init, Alltoallv_init, Alltoallw_init,
    Reduce_init, Allreduce_init, Reduce_scatter_init, Reduce_scatter_block_init, Scan_init,
    Exscan_init, Neighbor_allgather_init, Neighbor_allgatherv_init, Neighbor_alltoall_init,
    Neighbor_alltoallv_init, Neighbor_alltoallw_init,
    Barrier, Bcast, Gather, Gatherv, Scatter, Scatterv, Allgather, Allgatherv, Alltoall, Alltoallv,
    Alltoallw, Reduce, Allreduce, Reduce_scatter, Reduce_scatter_block, Scan, Exscan,
    Neighbor_allgather, Neighbor_allgatherv, Neighbor_alltoall, Neighbor_alltoallv,
    Neighbor_alltoallw,
}

impl Kind {
    /// The blocking ones.
    pub(crate) const BLOCKING: &[Kind] = Kind::ALL.split_at(Kind::Barrier as usize).1;

    /// The set of the blocking ones.
    pub(crate) const ALL_BLOCKING: u128 = Kind::END - (1 << Kind::Barrier as u32);

    /// The set of all others.
    pub(crate) const ALL_BACKGROUND: u128 = (1 << Kind::Barrier as u32) - 1;

    const END: u128 = 1 << Kind::ALL.len();

    pub(crate) fn is_blocking(self) -> bool {
        self as u32 >= Kind::Barrier as u32
    }

    /// The length of a call counts the blocks of all ranks.
    pub(crate) fn counts_all_blocks(self) -> bool {
        use Kind::*;
        matches!(
            self.blocking_form(),
            Gather
                | Scatter
                | Allgather
                | Allgatherv
                | Alltoall
                | Reduce_scatter
                | Reduce_scatter_block
        )
    }

    /// Calls with lengths that only some ranks have. They run here if that is faster at all lengths.
    pub(crate) fn has_unknown_lengths(self) -> bool {
        use Kind::*;
        matches!(
            self.blocking_form(),
            Gatherv
                | Scatterv
                | Alltoallv
                | Alltoallw
                | Neighbor_allgather
                | Neighbor_allgatherv
                | Neighbor_alltoall
                | Neighbor_alltoallv
                | Neighbor_alltoallw
        )
    }

    /// Calls with a list of lengths. Summing the list takes as long as the shortest calls, so all
    /// lengths are left if the shortest are.
    pub(crate) fn has_listed_lengths(self) -> bool {
        matches!(self.blocking_form(), Kind::Allgatherv | Kind::Reduce_scatter)
    }

    /// The form that `tradewind tune --mpi` measures: the nonblocking one of a persistent collective.
    pub(crate) fn measured_form(self) -> Kind {
        match self as usize / Kind::BLOCKING.len() {
            1 => Kind::ALL[self as usize % Kind::BLOCKING.len()],
            _ => self,
        }
    }

    /// The blocking form of any one.
    pub(crate) fn blocking_form(self) -> Kind {
        Kind::BLOCKING[self as usize % Kind::BLOCKING.len()]
    }

    /// The form of a kind, nonblocking, persistent or blocking, and its place among all of that form.
    pub(crate) const fn place(self) -> (usize, usize) {
        (self as usize / Kind::BLOCKING.len(), self as usize % Kind::BLOCKING.len())
    }
}
