//! Ranks that start with odd settings of their process or their system: the program does what it
//! does without the library, on tradewind or not, and nothing is left behind.

use crate::harness::{Finished, Host, Job};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testing::mpi::Family;

testing::tests![needs(Mpich):
    settings_of_a_program_are_neither_needed_nor_changed,
    inherited_settings_are_neither_needed_nor_changed,
];
testing::tests![needs(Mpich, Root): restricted_systems_change_no_result];
testing::tests![needs(Mpich, IntelMpi, Root): refused_systems_change_no_result];

/// What becomes of the collectives.
#[derive(Clone, Copy)]
enum Outcome {
    Taken,
    /// Left to the MPI library, with one line that contains these words.
    Left(&'static [&'static str]),
    /// Nothing is printed.
    Unseen,
}
use Outcome::{Left, Taken, Unseen};

/// Way out in each line that names a call which the system has refused.
const SANDBOX: &str = "sandbox";

/// Settings that the program makes before it initializes MPI.
const OF_THE_PROGRAM: &[(&str, Outcome)] = &[
    ("handled", Taken),
    ("reaped", Taken),
    ("not-waited-for", Taken),
    ("reaper-of-orphans", Taken),
    ("not-dumpable", Taken),
    ("no-barriers", Taken),
    ("no-signals", Taken),
    ("no-local-sockets", Left(&["create a local socket", SANDBOX])),
    ("no-processes", Left(&["start the node service", SANDBOX])),
    ("no-programs", Left(&["start the node service", SANDBOX])),
    ("no-handles", Left(&["watch process", SANDBOX])),
    ("no-memory-files", Left(&["create a segment", "TRADEWIND_SEGMENT_DIR"])),
    ("no-events", Left(&["make a set of descriptors", SANDBOX])),
];

/// Scripts that start each rank.
const INHERITED: &[(&str, Outcome)] = &[
    (r#"trap '' CHLD PIPE HUP; exec "$@""#, Taken),
    (r#"exec env --block-signal "$@""#, Taken),
    (r#"umask 0777; exec "$@""#, Taken),
    (r#"umask 0; exec "$@""#, Taken),
    (r#"exec "$@" <&-"#, Taken),
    (r#"exec "$@" <&- >&-"#, Taken),
    (r#"exec "$@" <&- >&- 2>&-"#, Unseen),
    (r#"ulimit -c 0; ulimit -l 0; ulimit -s 512; exec "$@""#, Taken),
    (r#"ulimit -S -f 100000; exec "$@""#, Taken),
    (r#"ulimit -f 100000; exec "$@""#, Left(&["RLIMIT_FSIZE", "ulimit -f"])),
    (r#"ulimit -n 64; exec "$@""#, Left(&["open files", "ulimit -n"])),
    (r#"d=$(mktemp -d); cd $d; rmdir $d; exec "$@""#, Taken),
    (r#"export HOME=/none XDG_RUNTIME_DIR=/none TMPDIR=/none; exec "$@""#, Taken),
    (r#"PATH= exec "$@""#, Taken),
    (r#"unset TRADEWIND_COMMAND; PATH=/none exec "$@""#, Left(&["TRADEWIND_COMMAND"])),
    (r#"export LANG=xx_YY.KOI8-R LC_ALL=tr_TR; exec "$@""#, Taken),
    (r#"exec env -i $(env | grep -E '^(PMI|HYD|MPI|LD_|TRADEWIND)') "$@""#, Taken),
    (r#"exec setpriv --pdeathsig kill "$@""#, Taken),
];

/// Scripts that start each rank as the superuser.
const RESTRICTED: &[(&str, Outcome)] = &[
    (r#"exec setpriv --reuid 54321 --regid 54321 --clear-groups "$@""#, Taken),
    (r#"exec setpriv --inh-caps -all --bounding-set -all "$@""#, Taken),
    (r#"exec unshare --mount sh -c 'mount --rbind / /mnt; exec chroot /mnt "$@"' sh "$@""#, Taken),
    (r#"exec unshare --mount sh -c 'umount -l /dev/shm; exec "$@"' sh "$@""#, Taken),
    // Namespaces of processes divide the ranks into nodes.
    (r#"exec unshare --pid --fork --kill-child --mount-proc "$@""#, Taken),
];

/// As [`RESTRICTED`]; MPICH itself does not start so.
const REFUSED: &[(&str, Outcome)] = &[
    (
        r#"exec unshare --mount sh -c 'umount -l /proc; exec "$@"' sh "$@""#,
        Left(&["/proc", "must be mounted"]),
    ),
    (
        r#"exec setpriv --reuid 54321 --regid 54321 --clear-groups \
            bash -c 'ulimit -u 2; exec "$@"' bash "$@""#,
        Left(&["start the node service", "ulimit -u"]),
    ),
];

/// A name in the line that the rank 0 prints for all.
const LEFT: &str = "nothing runs on tradewind";

/// Returns what is wrong with a finished job.
fn wrong(expected: Outcome, finished: &Finished) -> Option<&'static str> {
    if (finished.status, finished.in_time) != (Some(0), true) {
        return Some("it fails");
    }
    let lines: Vec<&str> = finished.errors.lines().filter(|line| line.contains(LEFT)).collect();
    let is_taken = finished.calls("MPI_Iallreduce").0 > 0;
    match expected {
        Unseen => None,
        Taken => (!is_taken || !lines.is_empty()).then_some("nothing runs on tradewind"),
        Left(words) => {
            let is_said =
                |line: &&str| words.iter().all(|word| line.contains(word)) && lines.len() == 1;
            (!lines.iter().any(is_said)).then_some("no line says why, or several do")
        }
    }
}

/// Variable of the ranks of a job, and of its node service, with the number of the job. The name begins
/// as those that scripts keep.
const NUMBER: &str = "MPI_TEST_JOB";

/// Runs the job with each setting and returns the wrong ones.
fn wrong_ones(settings: &[(&str, Outcome)], job: impl Fn(&str) -> Job) -> Vec<String> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let outcomes = settings.iter().filter_map(|(setting, expected)| {
        // Relaxed: the numbers only differ.
        let number = LAST.fetch_add(1, Ordering::Relaxed).to_string();
        let finished = job(setting).variable(NUMBER, &number).preloaded();
        until_no_service_is_left(setting, &number);
        Some(format!("{setting}: {}: {finished:?}", wrong(*expected, &finished)?))
    });
    outcomes.collect()
}

/// Waits for the end of the node service of a job, which notices the ends of the ranks by itself.
fn until_no_service_is_left(setting: &str, number: &str) {
    const LIMIT: Duration = Duration::from_secs(20);
    let begun = Instant::now();
    while let Some(service) = service(number) {
        assert!(begun.elapsed() < LIMIT, "{setting}: process {service} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    let is_ours = |name: &&std::ffi::OsString| name.to_string_lossy().contains("tradewind");
    assert_eq!(left.iter().find(is_ours), None, "{setting}");
}

/// The node service of a job, which is a process of this program, if there is one.
fn service(number: &str) -> Option<String> {
    let identity = |path: &str| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let own = identity("/proc/self/exe");
    let words = |path: String| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let mark = format!("{NUMBER}={number}").into_bytes();
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let mut numbers = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    numbers.find(|process| {
        words(format!("/proc/{process}/cmdline")).get(2).is_some_and(|word| word == b"serve")
            && words(format!("/proc/{process}/environ")).contains(&mark)
            && identity(&format!("/proc/{process}/exe")) == own
    })
}

fn job() -> Job {
    // The shared memory of UCX needs local sockets.
    Host::all(Family::Mpich)[0].job("settings", 2).variable("UCX_TLS", "tcp,self")
}

fn settings_of_a_program_are_neither_needed_nor_changed() {
    let wrong = wrong_ones(OF_THE_PROGRAM, |setting| job().argument(setting));
    assert_eq!(wrong, [""; 0]);
}

fn inherited_settings_are_neither_needed_nor_changed() {
    assert_eq!(wrong_ones(INHERITED, |script| job().started_by(script)), [""; 0]);
}

fn restricted_systems_change_no_result() {
    assert_eq!(wrong_ones(RESTRICTED, |script| job().started_by(script)), [""; 0]);
}

fn refused_systems_change_no_result() {
    let job = || Host::all(Family::Intel)[0].job("settings", 2);
    assert_eq!(wrong_ones(REFUSED, |script| job().started_by(script)), [""; 0]);
}
