//! The launchers of the table in docs/nodes.md, with the two programs that the table was tried
//! with, on two nodes. Slurm's rows are in [`slurm`](super::slurm).

use super::loops::{SECRET, finish, start};
use super::reachable::Reachable;
use crate::nodes::harness::PROGRAM;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::mpi::{Family, Installation, installations};

testing::tests![without_a_launcher_a_program_is_a_job_of_one_rank];
testing::tests![needs(Nodes, Mpich): mpich_starts_the_examples];
testing::tests![needs(Nodes, IntelMpi): intel_mpi_starts_the_examples];
testing::tests![needs(Nodes, Prterun): open_mpi_and_prrte_start_the_examples];
testing::tests![needs(Nodes, Torchrun): torchrun_starts_the_examples];
testing::tests![needs(Nodes, Sshd): tradewind_starts_the_examples_over_ssh];
testing::tests![needs(Nodes, Mpich, Libfabric): the_examples_run_over_libfabric];

/// Returns a launcher on the first node, which ends after a minute. Its ranks run the examples.
fn launcher(site: &Reachable, program: &Path) -> Command {
    let mut command = site.first("timeout");
    command.args(["--kill-after=1", "60"]).arg(program);
    command.env(PROGRAM, "examples").env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"));
    command.env("TRADEWIND_START_TIMEOUT", "30");
    command
}

/// Runs a launcher with the program of the ranks, and checks what four ranks print.
fn run(site: &Reachable, mut launcher: Command) -> String {
    launcher.args(rank_program());
    let (succeeded, text) = finish(start(launcher));
    assert!(succeeded, "{text}");
    assert_complete(&text, 4, 2);
    site.wait_for_silence();
    text
}

/// The command line of a rank.
fn rank_program() -> [std::ffi::OsString; 3] {
    let this = std::env::current_exe().expect("this test program");
    [this.into(), "--part".into(), "nodes::rank::program".into()]
}

/// Asserts that every rank has printed the lines of both examples.
fn assert_complete(text: &str, ranks: u32, nodes: u32) {
    let sum = ranks * (ranks + 1) / 2;
    for rank in 0..ranks {
        let hello = format!("> {rank} hello from rank {rank} of {ranks}: together we are {sum}\n");
        let bytes =
            format!("> {rank} rank {rank} of {ranks} on {nodes} nodes has all 2000000 bytes\n");
        for line in [hello, bytes] {
            assert_eq!(text.matches(&line).count(), 1, "{line}{text}");
        }
    }
}

fn hydra(site: &Reachable, mpiexec: &Path) -> Command {
    let mut command = launcher(site, mpiexec);
    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(site.reach());
    command.args(["-hosts", "n0,n1", "-ppn", "2", "-n", "4"]);
    command
}

fn mpich_starts_the_examples() {
    let site = Reachable::new();
    for mpich in installations(Family::Mpich) {
        run(&site, hydra(&site, &mpich.mpiexec));
    }
}

fn the_examples_run_over_libfabric() {
    let site = Reachable::new();
    let mpich = installations(Family::Mpich)[0];
    for path in testing::fabric::libraries() {
        for (network, shown) in [
            ("fabric:tcp", "tcp; "),
            ("fabric:tcp+read", "tcp+read, long messages by remote reads; "),
        ] {
            let mut command = hydra(&site, &mpich.mpiexec);
            command.env("TRADEWIND_NETWORK", network).env("TRADEWIND_LIBFABRIC", &path);
            command.env("TRADEWIND_EXPLAIN", "1");
            let text = run(&site, command);
            let expected = format!("the nodes are connected by libfabric's provider {shown}");
            // With 1.17 the provider `tcp` is `tcp;ofi_rxm`.
            let text = text.replace("tcp;ofi_rxm", "tcp");
            assert!(text.contains(&expected), "{text}");
        }
    }
}

fn intel_mpi_starts_the_examples() {
    let site = Reachable::new();
    run(&site, hydra(&site, &installations(Family::Intel)[0].mpiexec));
}

/// Both are the same launcher with other options.
fn open_mpi_and_prrte_start_the_examples() {
    let site = Reachable::new();
    let hosts = site.path("hosts");
    std::fs::write(&hosts, "n0 slots=2\nn1 slots=2\n").expect("there is space");
    let with_both = |one: &&&Installation| one.prefix.join("bin/prterun").is_file();
    let found = installations(Family::OpenMpi);
    let open_mpi = found.iter().find(with_both).expect("the runner has made sure of it");
    for program in ["mpirun", "prterun"] {
        let mut command = launcher(&site, &open_mpi.prefix.join("bin").join(program));
        // The package for Python lies elsewhere than it was built for, which only mpirun finds out.
        command.env("PRTE_PREFIX", &open_mpi.prefix).env("PMIX_PREFIX", &open_mpi.prefix);
        command.args(["--allow-run-as-root", "--prtemca", "plm_ssh_agent"]).arg(site.reach());
        command.arg("--hostfile").arg(&hosts).args(["-n", "4"]);
        run(&site, command);
    }
}

fn torchrun_starts_the_examples() {
    let site = Reachable::new();
    let of_node = |node: usize| {
        let at = &site.testbed().nodes()[node];
        let mut command = at.command("timeout");
        command.args(["--kill-after=1", "60", "torchrun", "--nnodes", "2"]);
        command.args(["--nproc_per_node", "2", "--node_rank", &node.to_string()]);
        command.args(["--master_addr", &site.testbed().nodes()[0].address().to_string()]);
        // The defaults of 1.13 fail with Python 3.11: these concern a local rank that is not there.
        command.args(["--redirects", "9:1", "--tee", "9:1"]);
        command.args(["--master_port", "29500", "--no_python"]).args(rank_program());
        command.env(PROGRAM, "examples").env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"));
        command.env("TRADEWIND_SECRET", SECRET).env("TRADEWIND_START_TIMEOUT", "30");
        start(command)
    };
    let ended: Vec<(bool, String)> = [0, 1].map(of_node).into_iter().map(finish).collect();
    assert!(ended.iter().all(|(succeeded, _)| *succeeded), "{ended:?}");
    assert_complete(&ended.into_iter().map(|(_, text)| text).collect::<String>(), 4, 2);
    site.wait_for_silence();
}

/// A server of OpenSSH on each node, which accepts a key that the test has made.
struct SshServers {
    servers: Vec<Child>,
}

impl SshServers {
    fn start(site: &Reachable) -> Self {
        let path = |name: &str| site.path(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])
                .status()
                .expect("the runner has made sure of it");
            assert!(made.success());
        }
        let client = format!(
            "Host *\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n\
             UserKnownHostsFile /dev/null\nLogLevel ERROR\nUser root\n",
            path("user")
        );
        let server = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\nPasswordAuthentication no\n",
            path("host"),
            path("user.pub")
        );
        std::fs::write(path("client"), client).expect("there is space");
        std::fs::write(path("server"), server).expect("there is space");
        // The directory that the server demands lies in a file system which ends with it.
        let script = "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -f $0";
        let servers = site.testbed().nodes().iter().map(|node| {
            let mut command = node.command("unshare");
            command.args(["--mount", "--", "sh", "-c", script]).arg(path("server"));
            command.stdin(Stdio::null()).spawn().expect("every system has unshare")
        });
        let servers = SshServers { servers: servers.collect() };
        let end = Instant::now() + Duration::from_secs(20);
        for node in site.testbed().nodes() {
            while node.run(|| TcpStream::connect((node.address(), 22))).is_err() {
                assert!(Instant::now() < end, "sshd does not listen");
                std::thread::yield_now();
            }
        }
        servers
    }
}

impl Drop for SshServers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn tradewind_starts_the_examples_over_ssh() {
    let site = Reachable::new();
    let servers = SshServers::start(&site);
    let first = &site.testbed().nodes()[0];
    let addresses: Vec<String> =
        site.testbed().nodes().iter().map(|node| node.address().to_string()).collect();
    let client = site.path("client");
    let mut command = first.command(env!("CARGO_BIN_EXE_tradewind"));
    command.args(["run", "--timeout", "60", "--nodes", &addresses.join(","), "--ppn", "2"]);
    command.args(["--ssh", &format!("ssh -x -T -o BatchMode=yes -F {}", client.display())]);
    command.args(["--env", &format!("{PROGRAM}=examples"), "--"]).args(rank_program());
    let (succeeded, text) = finish(start(command));
    assert!(succeeded, "{text}");
    assert_complete(&text, 4, 2);
    drop(servers);
    site.wait_for_silence();
}

fn without_a_launcher_a_program_is_a_job_of_one_rank() {
    let [program, part, name] = rank_program();
    let mut command = Command::new(program);
    command.arg(part).arg(name).env(PROGRAM, "examples");
    command.env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"));
    let (succeeded, text) = finish(start(command));
    assert!(succeeded, "{text}");
    assert_complete(&text, 1, 1);
}
