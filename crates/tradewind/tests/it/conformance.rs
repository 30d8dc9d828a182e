//! The peers and caller engines against the suite that every engine must pass.

use goal::graph::{Access, Graph};
use std::sync::Mutex;
use std::time::Duration;
use testing::conformance::{Capabilities, Engine, Failure, Fault, Round, RoundOutcome};
use tradewind::{Buffers, Communicator, EngineKind, Error};

testing::tests![the_peers_engine_conforms, the_caller_engine_conforms,];

/// Ranks as threads of this process, through the façade.
struct Threads(EngineKind);

/// What one rank brings home: by round, its buffers and what failed.
type RankOutcome = Vec<(Vec<Vec<u8>>, Option<Fault>)>;

impl Engine for Threads {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { random_programs: 96, ..Capabilities::default() }
    }

    fn run(&self, program: &[Graph], inputs: &[Round]) -> Result<Vec<RoundOutcome>, Failure> {
        let outcomes: Mutex<Vec<RankOutcome>> = Mutex::new(vec![Vec::new(); program.len()]);
        let body = |world: Communicator| {
            let outcome = run_rank(&world, &program[world.rank() as usize], inputs)?;
            outcomes.lock().expect("no rank panics while it holds this")[world.rank() as usize] =
                outcome;
            Ok(())
        };
        tradewind::local_with(program.len() as u32, self.0, body)
            .map_err(|error| failure(&error))?;
        let outcomes = outcomes.into_inner().expect("no rank panicked");
        Ok((0..inputs.len())
            .map(|round| RoundOutcome {
                buffers: outcomes.iter().map(|rank| rank[round].0.clone()).collect(),
                faults: outcomes.iter().filter_map(|rank| rank[round].1).collect(),
            })
            .collect())
    }
}

fn run_rank(
    world: &Communicator,
    graph: &Graph,
    inputs: &[Round],
) -> tradewind::Result<RankOutcome> {
    let schedule = world.compile(graph)?;
    let mut outcomes = Vec::new();
    for round in inputs {
        let mut memory = round[world.rank() as usize].clone();
        let mut buffers = Buffers::new();
        for (bytes, declaration) in memory.iter_mut().zip(graph.buffers()) {
            buffers = match declaration.access {
                Access::Input => buffers.input(bytes.as_slice()),
                Access::Output => buffers.output(bytes.as_mut_slice()),
                Access::InOut => buffers.inout(bytes.as_mut_slice()),
            };
        }
        let mut request = schedule.run(buffers)?;
        let fault = match request.wait_timeout(Duration::from_secs(60)) {
            Ok(()) => None,
            Err(Error::DivisionByZero { vertex: Some((rank, vertex)) }) => {
                (rank == world.rank()).then_some(Fault { rank, vertex })
            }
            Err(error) => return Err(error),
        };
        drop(request);
        outcomes.push((memory, fault));
    }
    Ok(outcomes)
}

fn failure(error: &Error) -> Failure {
    use goal::check::Problem;
    match error {
        Error::Timeout { .. } => Failure::Stuck(error.to_string()),
        Error::Link(problems) => match problems.first() {
            Some(Problem::Deadlock { .. }) => Failure::Stuck(error.to_string()),
            Some(Problem::SizesDiffer { .. }) => Failure::SizesDiffer(error.to_string()),
            _ => Failure::Other(error.to_string()),
        },
        _ => Failure::Other(error.to_string()),
    }
}

fn the_peers_engine_conforms() {
    testing::conformance::run_suite(&Threads(EngineKind::Peers));
}

fn the_caller_engine_conforms() {
    testing::conformance::run_suite(&Threads(EngineKind::Caller));
}
