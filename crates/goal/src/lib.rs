//! GOAL dependency graphs: built, checked, compiled to schedules, read and written
