//! The two forms of a collective call.

/// Form of a call that starts or prepares a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// May wait for other ranks before it starts, and waits for the result at once.
    Blocking,
    /// Never waits for another rank: a nonblocking start, or the preparation of a persistent
    /// collective, whose starts match nonblocking ones.
    Nonblocking,
}
