//! Starting jobs on the nodes of a testbed with hydra, and listening to their ranks.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use virtual_nodes::{Entrance, VirtualNodes};

/// Which of the programs in [`crate::nodes::rank`] a process is.
pub(crate) const PROGRAM: &str = "TRADEWIND_TEST_PROGRAM";

/// A file whose appearance ranks wait for before they go on.
pub(crate) const SIGN: &str = "TRADEWIND_TEST_SIGN";

/// Puts a node's part of a job into a process namespace of its own. When hydra's proxy, the first
/// process there, ends with the ranks of its node, the kernel kills all others: as Slurm does with
/// `proctrack/cgroup`.
const ENCLOSE: &str = "unshare --pid --fork --kill-child --mount-proc --";

/// Takes all rights of the superuser from the command that follows.
const TAKE_RIGHTS: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --";

/// Capabilities that the node service needs for the kernel engine.
const RIGHTS: &str = "cap_bpf,cap_net_admin,cap_perfmon+ep";

/// Ends a job that hangs, so that its test fails instead of hanging too.
const HANGS_AFTER: &str = "60";

/// Time in which processes end after their job.
const ENDING: Duration = Duration::from_secs(20);

/// A line of a rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Said {
    pub(crate) rank: u32,
    pub(crate) words: String,
}

impl Said {
    pub(crate) fn new(rank: u32, words: &str) -> Self {
        Said { rank, words: words.into() }
    }

    /// Of a line `> RANK WORDS`; others are the test framework's.
    fn of(line: &str) -> Option<Self> {
        let (rank, words) = line.strip_prefix("> ")?.split_once(' ')?;
        Some(Said { rank: rank.parse().ok()?, words: words.into() })
    }
}

/// A job to be started.
pub(crate) struct Hydra<'a> {
    testbed: &'a VirtualNodes,
    ranks: &'a [u32],
    options: Vec<String>,
    variables: Vec<(String, String)>,
    one_node: bool,
    encloses: bool,
    binds: bool,
    user: Option<User>,
}

/// An ordinary user, whose `tradewind` command may have been given rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Without,
    WithCommand,
}

impl<'a> Hydra<'a> {
    /// With so many ranks on each node.
    pub(crate) fn new(testbed: &'a VirtualNodes, ranks: &'a [u32]) -> Self {
        Hydra {
            testbed,
            ranks,
            options: Vec::new(),
            variables: Vec::new(),
            one_node: false,
            encloses: false,
            binds: false,
            user: None,
        }
    }

    /// All names of nodes mean the first one.
    pub(crate) fn all_on_one(mut self) -> Self {
        self.one_node = true;
        self
    }

    /// Whatever is left on a node is killed as soon as its ranks have ended.
    pub(crate) fn killing_what_is_left(mut self) -> Self {
        self.encloses = true;
        self
    }

    /// Each node has one core.
    pub(crate) fn on_one_core(mut self) -> Self {
        self.binds = true;
        self
    }

    /// The ranks are an ordinary user's.
    pub(crate) fn user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.into());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Which program of [`crate::nodes::rank`] its ranks are.
    pub(crate) fn program(self, name: &str) -> Self {
        self.variable(PROGRAM, name)
    }

    pub(crate) fn start(self) -> Job<'a> {
        let Hydra { testbed, ranks, options, variables, one_node, encloses, binds, user } = self;
        let directory = tempfile::tempdir().expect("there is space");
        let launcher = directory.path().join("launch");
        // Leaves one core to the ranks of a node and their service.
        let bind = format!("taskset --cpu-list {}", shm::process::allowed_cores()[0]);
        let within =
            [encloses.then_some(ENCLOSE), binds.then_some(&*bind), user.map(|_| TAKE_RIGHTS)];
        let within = within.map(Option::unwrap_or_default).join(" ");
        let named = (0..ranks.len()).map(|name| {
            // Names behind the last node mean that one, too.
            let number = if one_node { 0 } else { name.min(testbed.nodes().len() - 1) };
            (format!("h{name}"), &testbed.nodes()[number], within.clone())
        });
        Entrance::new(named).write(&launcher).expect("there is space");
        let mut programs =
            [std::env::current_exe().expect("this test"), env!("CARGO_BIN_EXE_tradewind").into()];
        if let Some(user) = user {
            programs = copies(programs, directory.path());
            give_rights(&programs[1], user);
        }
        let [program, tradewind] = programs;
        let first = &testbed.nodes()[0];
        let mut command = first.command("timeout");
        command.args([
            "--kill-after=1",
            HANGS_AFTER,
            "mpiexec.hydra",
            "-localhost",
            &first.address().to_string(),
        ]);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&launcher).args(options);
        let list: Vec<String> =
            ranks.iter().enumerate().map(|(node, ranks)| format!("h{node}:{ranks}")).collect();
        command.args(["-hosts", &list.join(","), "-n", &ranks.iter().sum::<u32>().to_string()]);
        command.arg(program).args(["--part", "nodes::rank::program"]);
        if user.is_some() {
            // The superuser's decisions are not theirs.
            command.env("TRADEWIND_DECISIONS", "");
        }
        command.envs(variables).env("TRADEWIND_COMMAND", tradewind);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("every system has timeout");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Job { testbed, child, output, _directory: directory }
    }

    /// Starts it, waits for its end, and returns what its ranks wrote, in their order.
    pub(crate) fn run(self) -> Vec<Said> {
        self.start().finish()
    }
}

/// Copies of programs where everybody can execute them.
fn copies<const N: usize>(programs: [PathBuf; N], directory: &Path) -> [PathBuf; N] {
    std::fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("it is ours");
    programs.map(|program| {
        let copy = directory.join(program.file_name().expect("a file"));
        std::fs::copy(&program, &copy).expect("there is space");
        copy
    })
}

/// Restricts a program to the rights that a user's is to have.
fn give_rights(program: &Path, user: User) {
    if user == User::WithCommand {
        let given = Command::new("setcap").arg(RIGHTS).arg(program).status();
        assert!(
            given.is_ok_and(|status| status.success()),
            "setcap of libcap cannot give {RIGHTS}"
        );
    }
}

/// A job under way. What is left of it when it is dropped is ended.
pub(crate) struct Job<'a> {
    testbed: &'a VirtualNodes,
    child: Child,
    output: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

impl Job<'_> {
    /// Returns the next line of a rank; none when all have ended.
    fn next(&mut self) -> Option<Said> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).expect("a pipe") == 0 {
                return None;
            }
            if let Some(said) = Said::of(line.trim_end()) {
                return Some(said);
            }
        }
    }

    /// Waits for its end, and returns what its ranks wrote that has not been read, in their order.
    pub(crate) fn finish(mut self) -> Vec<Said> {
        let mut said: Vec<Said> = std::iter::from_fn(|| self.next()).collect();
        self.child.wait().expect("it is our child");
        said.sort();
        // The node services end by themselves when their ranks have.
        let end = Instant::now() + ENDING;
        while !processes(self.testbed).is_empty() {
            assert!(Instant::now() < end, "left behind: {:?}", processes(self.testbed));
            std::thread::yield_now();
        }
        said
    }

    /// Waits until all of this has been said, in any order.
    pub(crate) fn hear(&mut self, expected: &[Said]) {
        let mut missing = expected.to_vec();
        while !missing.is_empty() {
            let said =
                self.next().unwrap_or_else(|| panic!("the job has ended without {missing:?}"));
            missing.retain(|other| *other != said);
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Whom hydra cannot reach any more it cannot end.
        for process in processes(self.testbed) {
            let pid = rustix::process::Pid::from_raw(process);
            let _ =
                pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
    }
}

/// The processes on the nodes of a testbed, which this test has started.
pub(crate) fn processes(testbed: &VirtualNodes) -> Vec<i32> {
    let namespace = |path: &str| std::fs::metadata(path).map(|metadata| metadata.ino()).ok();
    let nodes: Vec<u64> =
        testbed.nodes().iter().filter_map(|node| namespace(&node.namespace())).collect();
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // A zombie has no namespace any more.
    numbers
        .filter(|pid| {
            namespace(&format!("/proc/{pid}/ns/net")).is_some_and(|ino| nodes.contains(&ino))
        })
        .collect()
}
