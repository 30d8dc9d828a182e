//! Collectives that run in the background: jobs, communicators, requests, schedules
