//! The search for the library of the launcher.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the file in versions 3 to 6.
const NAME: &str = "libpmix.so.2";

/// Directories below a prefix. Some distributions of Open MPI have a private library.
const BELOW_PREFIX: [&str; 5] =
    ["lib", "lib64", "lib/openmpi", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];

/// Directions to the library.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Path of the library, which excludes all others.
    pub named: Option<OsString>,
    /// Directories below which the launcher is installed.
    pub prefixes: Vec<OsString>,
    /// Process of the launcher.
    pub launcher: Option<u32>,
}

impl Search {
    /// Returns the files to try, the most suitable first. A client library of another version than
    /// the launcher's works as a rule, and some combinations print warnings. So the library that
    /// the launcher itself has loaded comes first, then those near its prefix, then the system's.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(path) = &self.named {
            return vec![path.into()];
        }
        let loaded = self.launcher.and_then(|pid| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
            loaded_library(&maps)
        });
        let near = self.prefixes.iter().flat_map(|prefix| {
            BELOW_PREFIX.map(|directory| Path::new(prefix).join(directory).join(NAME))
        });
        let near = near.filter(|path| path.is_file());
        let mut all: Vec<PathBuf> = loaded.into_iter().chain(near).chain([NAME.into()]).collect();
        all.dedup();
        all
    }
}

/// Returns the path of libpmix in the memory map of a process.
fn loaded_library(maps: &str) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_library = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("libpmix.so.2") && !path.ends_with("(deleted)")
    };
    paths.filter(is_library).map(PathBuf::from).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_launcher_is_in_its_memory_map() {
        let maps = "7f00-7f01 r-xp 0000 08:01 7 /usr/lib/libc.so.6\n\
                    7f02-7f03 r--p 0000 08:01 8                  /opt/a b/lib/libpmix.so.2.6.2\n";
        assert_eq!(loaded_library(maps), Some("/opt/a b/lib/libpmix.so.2.6.2".into()));
        assert_eq!(loaded_library("7f00-7f01 r-xp 0000 08:01 7 /usr/lib/libc.so.6\n"), None);
    }

    #[test]
    fn a_named_library_excludes_all_others() {
        let named = Search {
            named: Some("/nowhere/libpmix.so.2".into()),
            prefixes: vec!["/usr".into()],
            launcher: Some(std::process::id()),
        };
        assert_eq!(named.candidates(), [PathBuf::from("/nowhere/libpmix.so.2")]);
        assert_eq!(Search::default().candidates(), [PathBuf::from(NAME)]);
    }
}
