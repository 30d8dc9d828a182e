//! The embedded object file equals the compiled source.

use std::path::Path;
use std::process::Command;

testing::tests![needs(Clang):
    object_is_what_the_source_gives,
];

fn object_is_what_the_source_gives() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let output = std::env::temp_dir().join(format!("tradewind-{}.bpf.o", std::process::id()));
    let built = Command::new(directory.join("build.sh"))
        .arg(&output)
        .output()
        .expect("the script can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let fresh = std::fs::read(&output).expect("the script has written it");
    std::fs::remove_file(&output).expect("it is ours");
    let kept =
        std::fs::read(directory.join("tradewind.bpf.o")).expect("it is part of the repository");
    assert!(
        fresh == kept,
        "the object file differs from its source: run crates/kernel/bpf/build.sh and commit it"
    );
}
