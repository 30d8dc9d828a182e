//! Enums with names for the command line and for files.

/// Defines an enum with `ALL`, `name`, `Display`, `FromStr`, and its name as its form in files.
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$outer:meta])*
        pub enum $type:ident ($kind:expr) {
            $($(#[$documentation:meta])* $variant:ident = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$outer])*
        ///
        /// Displayed as, parsed from and stored as its [`name`](Self::name).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$documentation])* $variant),+
        }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name on the command line, in files and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| $crate::UnknownName {
                    kind: $kind,
                    name: name.to_owned(),
                    known: Self::ALL.iter().map(|one| one.name()).collect(),
                })
            }
        }

        impl $crate::serde::Serialize for $type {
            fn serialize<S: $crate::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as $crate::serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err($crate::serde::de::Error::custom)
            }
        }
    };
}
