//! The enum of a collective's algorithms, with the names people type.

/// Defines `Algorithm` for the collective of this name.
macro_rules! algorithms {
    ($collective:literal, $($(#[$documentation:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        #[doc = concat!("The algorithms for ", $collective, ", to be chosen by name.")]
        ///
        /// They are displayed as, and parsed from, the names that [`name`](Self::name) gives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$documentation])* $variant),+
        }

        impl Algorithm {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for Algorithm {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for Algorithm {
            type Err = goal::arithmetic::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| Self::Err {
                    kind: concat!($collective, " algorithm"),
                    name: name.to_owned(),
                    known: Self::ALL.iter().map(|algorithm| algorithm.name()).collect(),
                })
            }
        }
    };
}
