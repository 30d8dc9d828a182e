//! The collectives of MPI and their forms.

use crate::signatures::with_collectives;

/// The lengths that make the length of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// No data.
    Nothing,
    /// One block, of one length on all ranks.
    Block,
    /// A block of each rank, all of one length.
    Blocks,
    /// A block of each rank, of lengths in a list that all ranks have. Summing it takes as long as the
    /// shortest calls, so all lengths are left if the shortest are.
    List,
    /// Blocks of lengths that only some ranks have. Calls run here if that is faster at all lengths.
    Unknown,
    /// As [`Unknown`](Self::Unknown), of blocks to and from neighbours.
    Neighbors,
}

/// Defines the collectives and the names of their forms.
macro_rules! collectives {
    ($($Name:ident $name:ident $lengths:ident $decisive:tt $arguments:tt $(lists $lists:expr,)?
        |$call:ident| $start:expr;)*) => {
        /// A collective of MPI in any form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "the names of the MPI standard")]
        pub(crate) enum Collective { $($Name),* }

        impl Collective {
            const ALL: &[Collective] = &[$(Collective::$Name),*];

            /// The lengths that make its own.
            pub(crate) fn lengths(self) -> Lengths {
                match self { $(Collective::$Name => Lengths::$lengths),* }
            }
        }

        /// Names of the calls without `MPI_`, by form.
        const NAMES: [&[&str]; 3] = [
            &[$(concat!("I", stringify!($name))),*],
            &[$(concat!(stringify!($Name), "_init")),*],
            &[$(stringify!($Name)),*],
        ];
    };
}

with_collectives! { collectives }

/// Number of collectives of a form.
const OF_FORM: usize = Collective::ALL.len();

/// A form of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Nonblocking,
    Persistent,
    Blocking,
}

/// A collective in a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) form: Form,
    pub(crate) collective: Collective,
}

impl Kind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = NAMES.len() * OF_FORM;

    /// All kinds, the nonblocking ones first and the blocking ones last.
    pub(crate) const ALL: [Kind; Kind::COUNT] = {
        let forms = [Form::Nonblocking, Form::Persistent, Form::Blocking];
        let mut all =
            [Kind { form: Form::Nonblocking, collective: Collective::Barrier }; Kind::COUNT];
        let mut index = 0;
        while index < Kind::COUNT {
            let collective = Collective::ALL[index % OF_FORM];
            all[index] = Kind { form: forms[index / OF_FORM], collective };
            index += 1;
        }
        all
    };

    /// The set of the nonblocking and persistent ones, a bit for each by its index.
    pub(crate) const ALL_BACKGROUND: u128 = (1 << (2 * OF_FORM)) - 1;

    /// The set of all.
    pub(crate) const ALL_KINDS: u128 = (1 << Kind::COUNT) - 1;

    /// The index in [`ALL`](Self::ALL).
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.form as usize * OF_FORM + self.collective as usize
    }

    /// The kind's place in a set of kinds.
    pub(crate) fn bit(self) -> u128 {
        1 << self.index()
    }

    /// Name of the call without `MPI_`.
    pub(crate) fn name(self) -> &'static str {
        NAMES[self.form as usize][self.collective as usize]
    }

    /// The kind with this name, whatever its case.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn is_blocking(self) -> bool {
        self.form == Form::Blocking
    }

    /// The length of a call counts the blocks of all ranks.
    pub(crate) fn counts_all_blocks(self) -> bool {
        matches!(self.collective.lengths(), Lengths::Blocks | Lengths::List)
    }

    /// Only some ranks have the lengths of a call.
    pub(crate) fn has_unknown_lengths(self) -> bool {
        matches!(self.collective.lengths(), Lengths::Unknown | Lengths::Neighbors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_index_and_their_name() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind.index(), Kind::named(kind.name())), (index, Some(kind)));
        }
    }
}
