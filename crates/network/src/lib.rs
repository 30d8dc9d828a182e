//! Runs schedules whose ranks are on several hosts.
//!
//! A [`Carrier`](carrier::Carrier) is an engine that works between hosts: a rank hands it a compiled schedule once and
//! starts runs of it; the carrier exchanges the messages with the carriers of the other hosts and does the rank's
//! operations while the rank computes.
#![forbid(unsafe_code)]

pub mod carrier;
pub mod hosts;
