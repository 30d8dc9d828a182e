//! A program that starts others on the nodes, for launchers that know ssh.

use crate::error::Error;
use crate::node::Node;
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Program in the place of ssh: `PROGRAM [OPTION]... NODE COMMAND...` executes a command line by a
/// shell on a node. It works while the process that has the nodes is alive.
#[derive(Debug)]
pub struct Entrance {
    script: String,
}

/// Skips the options of ssh, some of which have a value.
const HEAD: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case $1 in -l | -p | -o | -i) shift ;; esac
    shift
done
name=$1; shift
case $name in
"#;

const TAIL: &str = r#"esac
echo "there is no node $name" >&2
exit 255
"#;

impl Entrance {
    /// Creates the program for nodes with these names: letters, digits, dots and dashes. Each has
    /// words of a command line that execute the shell, such as `setpriv --no-new-privs`; they may
    /// be empty.
    pub fn new<'a>(nodes: impl IntoIterator<Item = (String, &'a Node, String)>) -> Self {
        let mut script = HEAD.to_owned();
        for (name, node, words) in nodes {
            let namespace = node.namespace();
            let _ = writeln!(
                script,
                r#"{name}) exec nsenter --net={namespace} -- {words} sh -c "$*" ;;"#
            );
        }
        script.push_str(TAIL);
        Entrance { script }
    }

    /// Writes the program to a file, which the user may execute.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        std::fs::write(path, &self.script)
            .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o755)))
            .map_err(Error::system("writing the program that enters nodes"))
    }
}
