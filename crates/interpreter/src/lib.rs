//! The sans-IO state machine that defines what a schedule does
