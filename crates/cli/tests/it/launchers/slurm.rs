//! Slurm: two slurmd on this machine, each in a network namespace.

use crate::nodes::harness::PROGRAM;
use std::path::Path;
use std::process::{Command, Stdio};

testing::tests![needs(Slurm):
    ranks_of_a_step_find_each_other_by_pmi_pmix_and_tcp,
    a_cancelled_step_leaves_nothing,
    a_node_of_a_step_that_vanishes_is_named,
];
testing::tests![needs(Slurm, Freezer):
    started_work_is_completed_although_slurm_kills_the_node_service,
];

/// Runs a script of a shell beside Slurm. `$RANK_PROGRAM` is a rank of the named program.
fn beside_slurm(proctrack: &str, program: &str, script: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/launchers/two-nodes.sh");
    let this = std::env::current_exe().expect("this test program");
    let output = Command::new("bash")
        .arg(path)
        .args([proctrack, "60", "bash", "-c", script])
        .env("RANK_PROGRAM", format!("{} --part nodes::rank::program", this.display()))
        .env(PROGRAM, program)
        .env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"))
        .env("TRADEWIND_SECRET", super::loops::SECRET)
        .env("TRADEWIND_START_TIMEOUT", "20")
        .stdin(Stdio::null())
        .output()
        .expect("every system has bash");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn ranks_of_a_step_find_each_other_by_pmi_pmix_and_tcp() {
    let script = "for way in pmi2 pmix none; do for program in collectives examples; do \
                  TRADEWIND_TEST_PROGRAM=$program srun --mpi=$way -N2 -n4 $RANK_PROGRAM; \
                  echo $way $program $?; done; done";
    let text = beside_slurm("linuxproc", "collectives", script);
    for way in ["pmi2", "pmix", "none"] {
        assert!(text.contains(&format!("{way} collectives 0\n")), "{way}: {text}");
        assert!(text.contains(&format!("{way} examples 0\n")), "{way}: {text}");
    }
    assert_eq!(text.matches("of 4: together we are 10\n").count(), 12, "{text}");
    assert_eq!(text.matches("of 4 on 2 nodes has all 2000000 bytes\n").count(), 12, "{text}");
    let said = "4 ranks on 2 nodes, 2 here, all is right";
    assert_eq!(text.matches(said).count(), 12, "{text}");
}

/// The root of a long broadcast leaves at once, and Slurm kills all other processes of its node.
fn started_work_is_completed_although_slurm_kills_the_node_service() {
    let script = "TRADEWIND_INTERNODE=agent srun --mpi=pmi2 -N2 -n2 $RANK_PROGRAM; echo status $?";
    let text = beside_slurm("cgroup", "root-ends", script);
    assert!(text.contains("status 0\n"), "{text}");
    assert_eq!(text.matches(" has all\n").count(), 2, "{text}");
}

fn a_cancelled_step_leaves_nothing() {
    let script = r#"
        count() { ps -eo args | grep -c "^[^ ]* serve tradewind-\|--part nodes::rank::program$"; }
        coproc srun --mpi=pmi2 -N2 -n4 $RANK_PROGRAM
        for rank in 0 1 2 3; do read -r line <&"${COPROC[0]}"; echo "$line"; done
        echo "running $(count)"
        scancel --signal=KILL $(squeue -h -o %A)
        wait $COPROC_PID
        # The node services end by themselves.
        for _ in $(seq 100); do [ "$(count)" = 0 ] && break; sleep 0.1; done
        echo "left $(count)"
    "#;
    let text = beside_slurm("linuxproc", "waits", script);
    assert_eq!(text.matches(" goes on\n").count(), 4, "{text}");
    let running = text.split("running ").nth(1).and_then(|rest| rest.split('\n').next());
    let running: u32 = running.and_then(|number| number.parse().ok()).expect("a number");
    assert!(running >= 6, "four ranks, two node services: {text}");
    assert!(text.contains("left 0\n"), "{text}");
}

fn a_node_of_a_step_that_vanishes_is_named() {
    let script = r#"
        export TRADEWIND_NODE_TIMEOUT=1.5
        coproc srun --mpi=pmi2 -N2 -n2 $RANK_PROGRAM
        for rank in 0 1; do read -r line <&"${COPROC[0]}"; echo "$line"; done
        ip link set port2 down
        read -r line <&"${COPROC[0]}"; echo "$line"
    "#;
    let text = beside_slurm("linuxproc", "waits", script);
    assert_eq!(text.matches(" goes on\n").count(), 2, "{text}");
    assert!(text.contains("> 0 node 1 is unreachable"), "{text}");
}
