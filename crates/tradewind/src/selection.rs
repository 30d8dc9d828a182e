//! Selection of algorithms: the caller's, the decision table's, or the built-in rules'.

pub(crate) mod algorithms;
pub(crate) mod choice;
pub(crate) mod explanation;
pub(crate) mod job_table;
pub(crate) mod rules;
pub(crate) mod selector;
