//! Who is at the other end: a process, named in shared memory so that its number cannot be mistaken
//! for a later process's.

use shm::process::{ProcessError, ProcessHandle, ProcessState, StartTime, start_time};

/// A process's name as one word of shared memory: its number and the lower half of its start time.
/// 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) u64);

impl Name {
    pub(crate) const NOBODY: Name = Name(0);

    /// The name of the calling process.
    pub(crate) fn own() -> Result<Name, ProcessError> {
        let pid = std::process::id();
        Ok(Name::of(pid, start_time(pid)?))
    }

    fn of(pid: u32, started: StartTime) -> Name {
        Name(u64::from(pid) << 32 | started.0 & 0xffff_ffff)
    }

    /// The process's number.
    pub(crate) fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Looks now and then whether the process at the other end still lives. Only those who wait ask.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    watched: Option<(Name, ProcessHandle)>,
}

impl Watch {
    /// Whether the process of this name has ended. Nobody has not.
    pub(crate) fn has_ended(&mut self, name: Name) -> bool {
        if name == Name::NOBODY {
            return false;
        }
        if self.watched.as_ref().is_none_or(|&(watched, _)| watched != name) {
            match ProcessHandle::open(name.pid()) {
                Ok(handle) if Name::of(name.pid(), handle.start_time()) == name => {
                    self.watched = Some((name, handle))
                }
                // Another process has the number by now, or none.
                Ok(_) | Err(ProcessError::NoSuchProcess { .. }) => return true,
                // No pidfd is to be had here, but /proc may tell.
                Err(_) => return ended_by_proc(name),
            }
        }
        self.watched.as_ref().is_some_and(|(_, handle)| handle.has_exited())
    }
}

/// What /proc knows of a process. If it knows nothing for certain, the process lives.
pub(crate) fn ended_by_proc(name: Name) -> bool {
    let other = match start_time(name.pid()) {
        Ok(started) => Name::of(name.pid(), started) != name,
        Err(ProcessError::NoSuchProcess { .. }) => true,
        Err(_) => false,
    };
    other || shm::process::state(name.pid()).is_ok_and(|state| state == ProcessState::Zombie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_lives_and_one_that_has_been_waited_for_does_not() {
        let mut watch = Watch::default();
        assert!(!watch.has_ended(Name::own().expect("/proc")));
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let name = Name::of(child.id(), start_time(child.id()).expect("it lives"));
        assert!(!watch.has_ended(name) && !ended_by_proc(name));
        drop(child.stdin.take());
        child.wait().expect("a child");
        assert!(watch.has_ended(name) && ended_by_proc(name));
        assert!(Watch::default().has_ended(name));
    }

    #[test]
    fn a_number_that_belongs_to_somebody_else_by_now_is_a_dead_process() {
        let own = Name::own().expect("/proc");
        assert_eq!(own.pid(), std::process::id());
        assert!(Watch::default().has_ended(Name(own.0 ^ 1)), "the same number, another start");
        assert!(!Watch::default().has_ended(Name::NOBODY));
    }
}
