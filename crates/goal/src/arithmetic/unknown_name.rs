//! The error of names that do not exist.

/// A name that is not that of a [`DataType`](super::DataType) or an [`Arithmetic`](super::Arithmetic).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no {kind}; use one of {}", .known.join(", "))]
pub struct UnknownName {
    /// The kind of name: "data type" or "local operation".
    pub kind: &'static str,
    /// The name as it was given.
    pub name: String,
    /// The names that exist.
    pub known: Vec<&'static str>,
}
