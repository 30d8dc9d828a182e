//! Linking schedules and running them: the caller and peers engines
