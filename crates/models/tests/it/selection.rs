//! Decision tables: that they say what the models say, what they say between their rows, and what
//! is missing from them.

use crate::sample_machine::{fingerprint, grid, machine, table};
use collectives::{Algorithm, Choice, Collective, Levels};
use models::costs::{Calibration, CostModel, MessageCalibration};
use models::decision::rules::MachineClass;
use models::decision::{
    CallForm, DecisionTable, Gap, Origin, Query, Range, Reason, Row, Times, decide, rules,
};
use models::machine::PairClass;
use models::machine_file::Engine;
use models::parameters::Parameters;
use models::prediction::{Models, Prediction};
use proptest::prelude::*;
use std::sync::LazyLock;

const SHARED: MachineClass = MachineClass::SharedCores;
static TABLE: LazyLock<DecisionTable> = LazyLock::new(table);
pub(crate) static MODELS: LazyLock<Models> = LazyLock::new(models);

fn operations() -> impl Strategy<Value = Collective> {
    prop::sample::select(Collective::ALL)
}

pub(crate) fn query(operation: Collective, ranks: u32, ranks_per_node: u32, bytes: u64) -> Query {
    let form = CallForm::Nonblocking;
    Query { operation, form, ranks, ranks_per_node, bytes }
}

pub(crate) fn range(from: u64, to: Option<u64>, algorithm: Algorithm) -> Range {
    let plan = Choice::of(algorithm);
    let time = Times::predicted(1.0);
    Range { from, to, plan, engine: None, at: from, time, runner_up: None }
}

pub(crate) fn bcast_row(ranks: u32, ranks_per_node: u32, ranges: Vec<Range>) -> Row {
    let (operation, form) = (Collective::Bcast, CallForm::Nonblocking);
    Row { operation, form, ranks, ranks_per_node, error: None, disturbed: None, ranges }
}

fn with_rows(rows: Vec<Row>) -> DecisionTable {
    DecisionTable::new(fingerprint(), rows).expect("valid")
}

fn models() -> Models {
    Models::of(&machine())
}

/// Calls with the cost model of the agent.
fn with_prices<T>(use_them: impl FnOnce(CostModel<'_>) -> T) -> T {
    let machine = machine();
    let costs = |class| machine.costs(Engine::Agent, CallForm::Nonblocking, class);
    let inside = costs(PairClass::SameSocket).expect("measured");
    let between = costs(PairClass::OtherNode).expect("measured");
    use_them(CostModel { inside: &inside, between: Some(&between), available: &|_, _, _| true })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// At the sizes of the grid the table loses two percent at most.
    #[test]
    fn the_table_follows_the_models(
        operation in operations(), ranks in 0usize..4, here in 0usize..5, size in 0usize..41,
    ) {
        let grid = grid();
        let (ranks, here, bytes) = (grid.ranks[ranks], grid.ranks_per_node[here], grid.bytes[size]);
        prop_assume!(here <= ranks);
        let query = query(operation, ranks, here, if operation == Collective::Barrier { 0 } else { bytes });
        let decision = decide(Some(&TABLE), &query, SHARED);
        prop_assert!(matches!(decision.origin, Origin::Table { .. }), "{decision}");
        let best = MODELS.candidates(&query)[0].microseconds;
        let chosen = MODELS.price(decision.engine, &decision.plan, &query).expect("priced");
        prop_assert!(chosen <= best * 1.02 + 1e-12, "{decision}: {chosen}, but {best}");
    }

    #[test]
    fn every_query_has_a_decision_that_its_operation_has_and_says_why(
        operation in operations(), ranks in 0u32..60, here in 0u32..60, bytes in any::<u64>(), with_table in any::<bool>(),
    ) {
        let query = query(operation, ranks, here, bytes);
        let decision = decide(with_table.then_some(&*TABLE), &query, SHARED);
        let Choice { algorithm, levels, .. } = decision.plan;
        prop_assert!(operation.algorithms().contains(&algorithm));
        prop_assert!(algorithm != Algorithm::Join || query.nodes() == 1);
        prop_assert!(levels == Levels::One || query.nodes() > 1 && operation.has_two_levels(algorithm));
        let text = decision.to_string();
        let start = format!("nonblocking {operation} of ");
        prop_assert!(text.contains("decision table") && text.starts_with(&start), "{text}");
    }

    #[test]
    fn candidates_come_in_order_and_cost_what_their_plans_cost(
        operation in operations(), ranks in 1u32..64, here in 1u32..64, bytes in 0u64..1_000_000,
    ) {
        let query = query(operation, ranks, here, bytes);
        let candidates = MODELS.candidates(&query);
        prop_assert!(candidates.windows(2).all(|pair| pair[0].microseconds <= pair[1].microseconds));
        for Prediction { plan, engine, microseconds } in candidates {
            let price = MODELS.price(engine, &plan, &query).expect("a plan for this query");
            prop_assert!((price - microseconds).abs() <= 1e-9 * price.max(1.0), "{plan}");
        }
    }
}

#[test]
fn the_built_table_is_whole_and_small_and_changes_where_the_next_plan_becomes_faster() {
    assert_eq!(TABLE.gaps(), []);
    let ranges: usize = TABLE.rows().iter().map(|row| row.ranges.len()).sum();
    // 11 operations in two forms and 14 shapes, at 41 sizes.
    let rows = 11 * 2 * 14;
    assert!(TABLE.rows().len() == rows && ranges < rows * 8, "{ranges} ranges");
    for row in TABLE.rows() {
        for pair in row.ranges.windows(2) {
            let at = |range: &Range, bytes| {
                let query = query(row.operation, row.ranks, row.ranks_per_node, bytes);
                MODELS.price(range.engine, &range.plan, &query).expect("priced")
            };
            let change = pair[1].from;
            assert!(at(&pair[0], change) > at(&pair[1], change), "at {change}: {row:?}");
            assert_eq!(pair[0].to, Some(change));
            assert_eq!(pair[1].time, Times::predicted(at(&pair[1], change)));
        }
    }
}

/// By hand, 16 ranks, two on each of 8 nodes, 8 bytes. Inside g + L + c = 0.5008 + 0.25 + 0.008 up
/// and 0.7508 down. Between, g(8) + L + c = 5.064 + 20 + 0.008 = 25.072 a round: 3 rounds between 8
/// leaders, or one step of seven messages: os = or = 2.008, so 7 × 4.016 + L = 48.112 at least,
/// 7 × (g(8) + or) + L = 69.504 at most, between them γ = 0.4, and 7 c. In one level, a round inside,
/// and three in which two ranks of a node send one after the other: 2 × g(8) + L + c = 30.136.
#[test]
fn two_levels_are_used_where_they_pay() {
    let here = query(Collective::Allreduce, 16, 2, 8);
    let decision = decide(Some(&TABLE), &here, SHARED);
    let two_levels = |algorithm| Choice { levels: Levels::Two, ..Choice::of(algorithm) };
    assert_eq!(decision.plan, two_levels(Algorithm::RotatedDirect));
    assert!(decision.to_string().contains("a node: two-level rotated-direct\n"), "{decision}");
    with_prices(|prices| {
        let price = |plan: Choice| prices.price(&plan, &here).expect("priced");
        let one_step = 48.112 + 0.4 * (69.504 - 48.112) + 7.0 * 0.008;
        assert!((price(decision.plan) - (0.7588 + one_step + 0.7508)).abs() < 1e-9);
        let rounds = price(two_levels(Algorithm::RecursiveDoubling));
        assert!((rounds - (0.7588 + 3.0 * 25.072 + 0.7508)).abs() < 1e-9, "{rounds}");
        let one_level = price(Choice::of(Algorithm::RecursiveDoubling));
        assert!((one_level - (0.7588 + 3.0 * 30.136)).abs() < 1e-9, "{one_level}");
    });
}

/// Four ranks that have nodes of their own, and connections: what they start in one step costs what it
/// costs in the ranks, and everything else what it costs in the node service.
#[test]
fn calls_of_one_step_cost_what_they_cost_in_the_ranks() {
    let mut machine = machine();
    let cheaper = Parameters::linear(10.0, (1.0, 0.0), (1.0, 0.0), (2.0, 0.001)).expect("valid");
    machine.engine_mut(Engine::Direct).classes.insert(PairClass::OtherNode, cheaper);
    machine.engine_mut(Engine::Direct).contention.insert(PairClass::OtherNode, 0.5);
    let (alone, connected) =
        (Models::of(&machine), Models::of(&machine).with_connected_ranks(1 << 20));
    let here = query(Collective::Barrier, 4, 1, 0);
    let one_step = Choice::of(Algorithm::RotatedDirect);
    let agent = Some(Engine::Agent);
    // os = or = 1, g = 2: 3 × 2 + 10 at least, 3 × 3 + 10 at most.
    let price = |models: &Models, plan, here| models.price(agent, plan, here).expect("priced");
    assert_eq!(price(&connected, &one_step, &here), 17.5);
    let chosen = connected.choose(&here).expect("known");
    assert_eq!((chosen.plan, chosen.engine, chosen.microseconds), (one_step, agent, 17.5));
    let others = [
        (Choice::of(Algorithm::Dissemination), here),
        (one_step, query(Collective::Barrier, 4, 2, 0)),
        (one_step, query(Collective::Barrier, 17, 1, 0)),
        (one_step, query(Collective::Allgather, 4, 1, 1 << 20)),
        (one_step, Query { form: CallForm::Blocking, ..here }),
    ];
    for (plan, here) in others {
        let prices = [&alone, &connected].map(|models| models.price(None, &plan, &here));
        assert!(prices[0].is_some() && prices[0] == prices[1], "{here}: {plan}, {prices:?}");
    }
    assert!(price(&alone, &one_step, &here) > 17.5);
}

/// The node service needs a core for each step, which a computation takes: one step in the ranks is
/// chosen up to 1.5 times its time.
#[test]
fn one_step_in_the_ranks_is_chosen_beside_a_node_service_that_is_little_faster() {
    let here = query(Collective::Barrier, 4, 1, 0);
    let (one_step, rounds) = (Algorithm::RotatedDirect, Algorithm::Dissemination);
    let by_agent = models().price(None, &Choice::of(rounds), &here).expect("priced");
    for (factor, expected) in [(0.9, one_step), (1.4, one_step), (1.6, rounds)] {
        let mut machine = machine();
        // Overheads and gaps are zero, so that one step takes the latency.
        let latency = Parameters::linear(factor * by_agent, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0));
        let direct = machine.engine_mut(Engine::Direct);
        direct.classes.insert(PairClass::OtherNode, latency.expect("valid"));
        let connected = Models::of(&machine).with_connected_ranks(1 << 20);
        let chosen = connected.choose(&here).expect("known");
        assert_eq!((chosen.plan.algorithm, chosen.engine), (expected, Some(Engine::Agent)));
    }
}

/// Where no plan runs in the ranks, because the collective has none of one step or connections do not
/// hold the message, connections change no choice between the node service and the kernel.
#[test]
fn connections_change_no_choice_where_no_plan_runs_in_the_ranks() {
    const HELD: u64 = 4096;
    // Times of the kernel count 1.2 times.
    let scan = query(Collective::Scan, 4, 1, 8);
    let allgather = query(Collective::Allgather, 4, 1, HELD);
    let (agent, kernel) = (Engine::Agent, Engine::Kernel);
    for (factor, here, expected) in
        [(0.9, scan, agent), (0.75, scan, kernel), (0.75, allgather, agent)]
    {
        let mut machine = machine();
        let overhead = (factor * 2.0, factor * 0.001);
        let gap = (factor * 5.0, factor * 0.008);
        let faster = Parameters::linear(factor * 20.0, overhead, overhead, gap).expect("valid");
        machine.engine_mut(kernel).classes.insert(PairClass::OtherNode, faster);
        let alone = Models::of(&machine);
        let connected = alone.clone().with_connected_ranks(HELD);
        let chosen = connected.choose(&here).expect("known");
        assert_eq!(chosen.engine, Some(expected), "{here}");
        assert_eq!(alone.choose(&here), Some(chosen), "{here}");
    }
}

/// With errors of 30 % on both sides another engine is chosen from 1.3 / 0.7 times as fast on, and
/// the kernel, whose times count 1.2 times, from 2.23 times.
#[test]
fn another_engine_than_without_a_table_is_chosen_if_it_is_faster_beyond_all_errors() {
    let here = query(Collective::Scan, 4, 1, 8);
    let built_in = models();
    for (factor, expected) in [(0.75, Engine::Agent), (0.5, Engine::Agent), (0.4, Engine::Kernel)] {
        let mut machine = machine();
        let linear = |factor: f64| {
            let overhead = (factor * 2.0, 0.0);
            let gap = (factor * 5.0, 0.0);
            Parameters::linear(factor * 20.0, overhead, overhead, gap).expect("valid")
        };
        let same = MessageCalibration { latency: 1.0, gap: 1.0, overhead: 1.0, more_overhead: 0.0 };
        for (engine, factor) in [(Engine::Agent, 1.0), (Engine::Kernel, factor)] {
            let costs = machine.engine_mut(engine);
            costs.classes.insert(PairClass::OtherNode, linear(factor));
            costs.calibration = Some(Calibration {
                start: 0.0,
                start_per_byte: 0.0,
                combine: 0.0,
                contention: 1.0,
                inside: same,
                between: same,
                error: 0.3,
            });
        }
        let alone = Models::of(&machine);
        assert_eq!(alone.choose(&here).and_then(|one| one.engine), Some(Engine::Kernel));
        let beside = alone.beside(&built_in);
        assert_eq!(beside.choose(&here).and_then(|one| one.engine), Some(expected), "{factor}");
    }
}

/// By hand, 16 ranks, two on each of 8 nodes, 8 bytes: a chain crosses seven borders and has a hop
/// inside each node. Half of it counts, because scans overlap.
#[test]
fn a_chain_crosses_each_border_once() {
    let here = query(Collective::Scan, 16, 2, 8);
    with_prices(|prices| {
        let chain = prices.price(&Choice::of(Algorithm::Chain), &here).expect("priced");
        assert!((2.0 * chain - (7.0 * 25.072 + 8.0 * 0.7588)).abs() < 1e-9, "{chain}");
    });
}

/// By hand, 8 ranks, two on each of 4 nodes, 64 bytes. Each rank speaks with two nodes at most, in
/// messages of four blocks, and gives the other one of its node what is for two nodes and gets as
/// much.
#[test]
fn an_alltoall_in_two_levels_is_two_exchanges_inside_and_one_between() {
    let here = query(Collective::Alltoall, 8, 2, 64);
    with_prices(|prices| {
        let direct = |costs: &models::costs::Costs, ranks, bytes| {
            let rotated = Choice::of(Algorithm::RotatedDirect);
            costs.messages(Collective::Alltoall, &rotated, ranks, bytes).expect("there is a model")
        };
        let between = prices.between.expect("measured");
        let expected = 2.0 * direct(prices.inside, 2, 4 * 64) + direct(between, 3, 4 * 64);
        let two_levels = |algorithm| Choice { levels: Levels::Two, ..Choice::of(algorithm) };
        let price = prices.price(&two_levels(Algorithm::RotatedDirect), &here).expect("priced");
        assert!((price - expected).abs() < 1e-9, "{price}, expected {expected}");
        assert_eq!(prices.price(&two_levels(Algorithm::Bruck), &here), None);
    });
}

/// Between nodes without a table the models choose with built-in parameters.
#[test]
fn short_blocks_of_an_alltoall_go_in_two_levels_and_long_ones_in_one() {
    let plan = |ranks, here, bytes| {
        rules::plan(&query(Collective::Alltoall, ranks, here, bytes), SHARED).to_string()
    };
    assert!(plan(4, 2, 8).starts_with("two-level "), "{}", plan(4, 2, 8));
    assert!(!plan(4, 2, 1 << 20).starts_with("two-level "), "{}", plan(4, 2, 1 << 20));
    assert!(!plan(4, 1, 8).starts_with("two-level "), "there is only one level");
    assert_eq!(plan(4, 4, 8), "join");
}

#[test]
fn what_is_not_available_is_not_chosen() {
    with_prices(|prices| {
        let only_chains =
            |_: Collective, algorithm: Algorithm, _: Levels| algorithm == Algorithm::Chain;
        let prices = CostModel { available: &only_chains, ..prices };
        let candidates = prices.candidates(&query(Collective::Bcast, 8, 8, 1000));
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0].plan, Choice::of(Algorithm::Chain));
        assert!(prices.candidates(&query(Collective::Barrier, 8, 8, 0)).is_empty());
    });
    let mut machine = machine();
    machine.engines.remove(&Engine::Agent);
    let models = Models::of(&machine);
    assert!(
        models.candidates(&query(Collective::Bcast, 8, 4, 0)).is_empty(),
        "nothing is known between nodes"
    );
}

#[test]
fn the_nearest_row_on_the_same_side_is_taken() {
    let row = |ranks, here, algorithm| bcast_row(ranks, here, vec![range(0, None, algorithm)]);
    let table = with_rows(vec![
        row(4, 4, Algorithm::Flat),
        row(16, 16, Algorithm::Chain),
        row(8, 2, Algorithm::Binomial),
        row(8, 4, Algorithm::Dary),
    ]);
    let algorithm = |ranks, here| {
        let found = table.look_up(&query(Collective::Bcast, ranks, here, 0));
        found.map(|found| found.range.plan.algorithm)
    };
    assert_eq!(algorithm(5, 8), Ok(Algorithm::Flat), "one node, nearest to 4");
    assert_eq!(algorithm(8, 8), Ok(Algorithm::Flat), "as near to 4 as to 16: the lower");
    assert_eq!(algorithm(9, 64), Ok(Algorithm::Chain));
    assert_eq!(algorithm(32, 32), Ok(Algorithm::Chain), "just a factor of two");
    assert!(
        matches!(algorithm(33, 33), Err(Gap::Ranks { ranks: 33, .. })),
        "more than a factor of two"
    );
    assert_eq!(algorithm(10, 1), Ok(Algorithm::Binomial), "several nodes, 2 is nearer to 1 than 4");
    assert_eq!(algorithm(12, 6), Ok(Algorithm::Dary));
    assert!(
        matches!(algorithm(4, 2), Ok(Algorithm::Binomial)),
        "several nodes, though 4 ranks on one node are in the table"
    );
    assert_eq!(
        table.look_up(&query(Collective::Scan, 4, 4, 0)),
        Err(Gap::Collective { operation: Collective::Scan })
    );
}

#[test]
fn gaps_are_found_and_filled_by_the_built_in_rules() {
    let ranges = vec![range(8, Some(64), Algorithm::Flat), range(100, Some(200), Algorithm::Chain)];
    let table = with_rows(vec![bcast_row(4, 4, ranges)]);
    let gap = |from, to| Gap::Bytes {
        operation: Collective::Bcast,
        ranks: 4,
        ranks_per_node: 4,
        from,
        to,
    };
    let (operations, sizes): (Vec<Gap>, Vec<Gap>) =
        table.gaps().into_iter().partition(|gap| matches!(gap, Gap::Collective { .. }));
    assert_eq!(operations.len(), Collective::ALL.len() - 1);
    let expected = [gap(0, Some(8)), gap(64, Some(100)), gap(200, None)];
    assert_eq!(sizes, expected);
    for (bytes, hole) in [(0, 0), (7, 0), (64, 1), (99, 1), (200, 2), (u64::MAX, 2)] {
        let here = query(Collective::Bcast, 4, 4, bytes);
        let decision = decide(Some(&table), &here, SHARED);
        let reason = match decision.origin {
            Origin::BuiltInModels { reason, .. } => Some(reason),
            _ => None,
        };
        assert_eq!(reason, Some(Reason::Gap(expected[hole])), "{bytes} bytes");
        assert_eq!(decision.plan, rules::plan(&here, SHARED));
    }
    for bytes in [8, 63, 100, 199] {
        let decision = decide(Some(&table), &query(Collective::Bcast, 4, 4, bytes), SHARED);
        assert!(matches!(decision.origin, Origin::Table { .. }), "{bytes} bytes");
    }
    let text = decide(Some(&table), &query(Collective::Bcast, 4, 4, 70), SHARED).to_string();
    let expected = "nonblocking bcast of 70 bytes among 4 ranks, 4 a node: join\n  built-in parameters, \
         because the decision table's row for bcast among 4 ranks, 4 a node, says nothing about 64 to \
         99 bytes: `tradewind tune` writes a whole one\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_decision_says_what_came_next() {
    let text = decide(Some(&TABLE), &query(Collective::Bcast, 16, 1, 1 << 20), SHARED).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("nonblocking bcast of 1048576 bytes among 16 ranks, 1 a node: "),
        "{text}"
    );
    assert!(lines[0].contains(" in segments of "), "{text}");
    assert!(lines[1].starts_with("  decision table, row for 16 ranks, 1 a node, "), "{text}");
    assert!(lines[2].contains(" bytes: predicted ") && lines[2].contains(" µs; next: "), "{text}");
}

#[test]
fn disturbed_rows_say_so_and_replace_no_quiet_ones() {
    let row = |disturbed: Option<&str>, ranks, algorithm| Row {
        disturbed: disturbed.map(str::to_owned),
        ..bcast_row(ranks, ranks, vec![range(0, None, algorithm)])
    };
    let load = Some("8 bytes: other processes used 43 % of the cores");
    let old = with_rows(vec![row(None, 4, Algorithm::Flat), row(load, 8, Algorithm::Flat)]);
    let shown =
        |ranks| decide(Some(&old), &query(Collective::Bcast, ranks, ranks, 8), SHARED).to_string();
    let noisy = "; noisy: 8 bytes: other processes used 43 % of the cores";
    assert!(shown(8).ends_with(noisy) && !shown(4).contains("noisy"), "{}", shown(8));
    let newer = with_rows([4, 8, 16].map(|ranks| row(load, ranks, Algorithm::Chain)).into());
    let unspoilt = old.unspoilt_by(newer.clone());
    let ranks =
        |table: &DecisionTable| table.rows().iter().map(|row| row.ranks).collect::<Vec<_>>();
    assert_eq!(ranks(&unspoilt), [8, 16], "the row of 4 ranks was measured without load");
    let quiet = with_rows(vec![row(None, 4, Algorithm::Chain)]);
    assert_eq!(old.unspoilt_by(quiet.clone()), quiet);
    let read = DecisionTable::from_bytes("here".as_ref(), &old.to_bytes().expect("JSON"));
    assert_eq!(read.expect("it is whole"), old);
}

#[test]
fn tables_that_cannot_be_are_refused_by_row() {
    let refused = |rows| DecisionTable::new(fingerprint(), rows).expect_err("refused").to_string();
    let one = |range| bcast_row(4, 4, vec![range]);
    let overlapping = vec![range(0, Some(10), Algorithm::Flat), range(9, None, Algorithm::Chain)];
    let message = refused(vec![bcast_row(2, 2, vec![]), bcast_row(4, 4, overlapping)]);
    assert!(
        message.starts_with("row 1 (counted from 0), bcast among 4 ranks, 4 a node: range 1"),
        "{message}"
    );
    let after_the_end = vec![range(0, None, Algorithm::Flat), range(9, None, Algorithm::Chain)];
    assert!(
        refused(vec![bcast_row(4, 4, after_the_end)])
            .contains("begins before the one before it ends")
    );
    assert!(
        refused(vec![one(range(5, Some(5), Algorithm::Flat))]).contains("ends before it begins")
    );
    assert!(
        refused(vec![one(range(0, None, Algorithm::Bruck))])
            .contains("has a bruck bcast: use flat,")
    );
    assert!(refused(vec![bcast_row(0, 1, vec![])]).contains("count from 1"));
    assert!(
        refused(vec![bcast_row(4, 4, vec![]), bcast_row(4, 4, vec![])])
            .contains("row 0 is for the same")
    );
    let plan = Choice { levels: Levels::Two, ..Choice::of(Algorithm::Join) };
    let joined = Range { plan, ..range(0, None, Algorithm::Flat) };
    assert!(refused(vec![one(joined)]).contains("has a two-level join bcast: use one level"));
    let negative = Range { time: Times::predicted(-1.0), ..range(0, None, Algorithm::Flat) };
    assert!(refused(vec![one(negative)]).contains("a time that is negative or infinite"));
}
