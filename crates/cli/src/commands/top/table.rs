//! The view as text.

use super::view::{Collective, Core, Job, Name, Queue, Rank, State, View, list};

/// A core below is left out unless a rank runs on it, in percent.
const IDLE_PERCENT: f64 = 5.0;

/// Returns the view as lines.
pub(super) fn text(view: &View) -> String {
    let mut lines = cores(&view.cores);
    if view.jobs.is_empty() {
        lines.extend([String::new(), "no job of this user runs on this node".to_owned()]);
    }
    for job in &view.jobs {
        lines.push(String::new());
        lines.extend(job_lines(job));
    }
    if !view.names.is_empty() {
        lines.push(String::new());
        lines.extend(names(&view.names));
    }
    lines.join("\n")
}

fn cores(cores: &[Core]) -> Vec<String> {
    let (shown, idle): (Vec<&Core>, Vec<&Core>) = cores
        .iter()
        .partition(|core| core.busy_percent >= IDLE_PERCENT || !core.processes.is_empty());
    let mut lines = vec!["core  busy   processes of ranks".to_owned()];
    for Core { core, busy_percent, processes } in shown {
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        let line = format!("{core:>4}  {busy_percent:>3.0} %  {}", processes.join(", "));
        lines.push(line.trim_end().to_owned());
    }
    match idle.len() {
        0 => {}
        1 => lines.push("1 other core is idle".to_owned()),
        count => lines.push(format!("{count} other cores are idle")),
    }
    lines
}

fn job_lines(job: &Job) -> Vec<String> {
    let Job { service, program, engine, cores, ranks, collectives, queues } = job;
    let count = match ranks.len() {
        1 => "1 rank".to_owned(),
        count => format!("{count} ranks"),
    };
    let on_cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let program = if program.is_empty() { "no program" } else { program };
    let mut lines = vec![
        format!("{program}: {count} on {on_cores}, engine {engine}, node service {service}"),
        "rank   process  core    cpu  state".to_owned(),
    ];
    lines.extend(ranks.iter().map(rank_line));
    if !collectives.is_empty() {
        lines.push("collectives under way".to_owned());
        lines.extend(collectives.iter().map(collective_line));
    }
    if !queues.is_empty() {
        lines.push("rank  queue         kind         capacity   waiting  received/s".to_owned());
        lines.extend(queues.iter().map(queue_line));
    }
    lines
}

fn rank_line(rank: &Rank) -> String {
    let Rank { rank, process, core, cpu_percent, state, waits, exit } = rank;
    let core = core.map_or(String::new(), |core| core.to_string());
    let cpu = cpu_percent.map_or(String::new(), |percent| format!("{percent:.0} %"));
    let state = match state {
        State::Absent => "has not joined".to_owned(),
        State::Computing => "computes".to_owned(),
        State::Sleeping => "sleeps".to_owned(),
        State::Stopped => "is stopped".to_owned(),
        State::Ended => exit.clone().unwrap_or_else(|| "its process has ended".to_owned()),
        State::Waiting => {
            let waits =
                waits.iter().map(|wait| format!("{:.1} s for {}", wait.seconds, wait.subject));
            format!("waits {}", waits.collect::<Vec<_>>().join("; "))
        }
    };
    format!("{rank:>4}  {process:>8}  {core:>4}  {cpu:>5}  {state}")
}

fn collective_line(collective: &Collective) -> String {
    let Collective { call, communicator, started, missing } = collective;
    let missing = match &missing[..] {
        [] => "all have started it".to_owned(),
        missing => format!("{} missing", list("rank", missing)),
    };
    format!("  {call} of {communicator}: started by {}; {missing}", list("rank", started))
}

fn queue_line(queue: &Queue) -> String {
    let Queue { rank, queue, kind, capacity, waiting, received_per_second } = queue;
    let waiting = waiting.map_or("-".to_owned(), |waiting| waiting.to_string());
    let rate = received_per_second.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    format!("{rank:>4}  {queue:<12}  {kind:<11}  {capacity:>8}  {waiting:>8}  {rate:>10}")
}

fn names(names: &[Name]) -> Vec<String> {
    let width = names.iter().map(|entry| entry.name.len()).max().unwrap_or(0).max(4);
    let mut lines = vec![format!("{:width$}   process  connections  fullest", "name")];
    lines.extend(names.iter().map(|entry| {
        let Name { name, process, connections, fullest_percent } = entry;
        format!("{name:width$}  {process:>8}  {connections:>11}  {fullest_percent:>5} %")
    }));
    lines
}
