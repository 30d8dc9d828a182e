//! Tests and parts of the test binary, as the macros register them.

use crate::need::Need;

/// Function registered by [`tests!`](crate::tests).
#[derive(Debug)]
pub struct Test {
    /// Module path and name.
    pub path: &'static str,
    /// Body of the test.
    pub run: fn(),
    /// Tools and rights without which it is ignored.
    pub needs: &'static [Need],
    /// Reason why it runs only on request; none or one.
    pub slow: &'static [&'static str],
}

inventory::collect!(Test);

/// Function registered by [`parts!`](crate::parts).
#[derive(Debug)]
pub struct Part {
    /// Module path and name.
    pub path: &'static str,
    /// Body of the process.
    pub run: fn(),
}

inventory::collect!(Part);
