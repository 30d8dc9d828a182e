//! The files in which the kernel describes the machine.

use super::core_list::{self, CoreSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with `sys` and `proc` in it.
pub(super) struct SysFiles {
    root: PathBuf,
}

impl SysFiles {
    pub(super) fn new(root: &Path) -> Self {
        SysFiles { root: root.to_owned() }
    }

    /// The whole file, if it can be read. Not everything there is UTF-8.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The file's one line, if there is anything in it.
    pub(super) fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        // Device trees end their strings with a zero.
        let text = self.text(path)?;
        let line =
            text.trim_matches(|character: char| character.is_whitespace() || character == '\0');
        (!line.is_empty()).then(|| line.to_owned())
    }

    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u32> {
        self.line(path)?.parse().ok()
    }

    /// The cores in a file; `None` if it is not there, or not a list.
    pub(super) fn list(&self, path: impl AsRef<Path>) -> Option<CoreSet> {
        core_list::parse(&self.text(path)?)
    }

    /// The names in a directory that are this word and a number, by number.
    pub(super) fn numbered(&self, directory: impl AsRef<Path>, word: &str) -> CoreSet {
        let Ok(entries) = fs::read_dir(self.root.join(directory)) else { return CoreSet::new() };
        let number =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(word)?.parse().ok();
        entries.flatten().filter_map(number).collect()
    }

    /// The cores that are online.
    pub(super) fn online(&self) -> Option<CoreSet> {
        const DIRECTORY: &str = "sys/devices/system/cpu";
        let reported = self.list(Path::new(DIRECTORY).join("online"));
        // A core that is offline has a directory, but no topology in it.
        let has_topology =
            |core: &u32| self.root.join(format!("{DIRECTORY}/cpu{core}/topology")).is_dir();
        let found = || self.numbered(DIRECTORY, "cpu").into_iter().filter(has_topology).collect();
        reported.or_else(|| Some(found())).filter(|cores: &CoreSet| !cores.is_empty())
    }

    /// The cores that this thread may run on.
    pub(super) fn allowed(&self) -> Option<CoreSet> {
        let status =
            self.text("proc/thread-self/status").or_else(|| self.text("proc/self/status"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        core_list::parse(list).filter(|cores| !cores.is_empty())
    }

    /// The cores that the control group leaves to its processes, in the newer of the kernel's two
    /// forms or the older; `None` if it says nothing about cores.
    pub(super) fn cpuset(&self) -> Option<CoreSet> {
        let own = self.text("proc/self/cgroup")?;
        let newer = own.lines().find_map(|line| line.strip_prefix("0::/")).and_then(|group| {
            // A group without that controller has the cores of the next one above it that has.
            Path::new(group).ancestors().find_map(|group| {
                self.list(Path::new("sys/fs/cgroup").join(group).join("cpuset.cpus.effective"))
            })
        });
        let older = || {
            let is_cpuset = |line: &&str| {
                line.split(':')
                    .nth(1)
                    .is_some_and(|names| names.split(',').any(|name| name == "cpuset"))
            };
            let group = own.lines().find(is_cpuset)?.splitn(3, ':').nth(2)?.trim_start_matches('/');
            let directory = Path::new("sys/fs/cgroup/cpuset");
            // Inside a container the path is that of the node, and the group is the root of what is
            // mounted.
            [directory.join(group), directory.to_owned()]
                .iter()
                .find_map(|group| self.list(group.join("cpuset.effective_cpus")))
        };
        newer.or_else(older).filter(|cores| !cores.is_empty())
    }
}
