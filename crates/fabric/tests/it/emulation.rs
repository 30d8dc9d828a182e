//! An endpoint under the rules of network adapters, which an emulation enforces: it ends the process
//! that breaks one.

use crate::messages::{Pair, request};
use fabric::{Choice, Endpoint, Library, Request, providers};
use std::collections::BTreeMap;
use std::path::Path;
use testing::fabric::EMULATED;

testing::tests![
    needs(FabricHeaders):
    messages_under_the_rules_of_adapters_arrive_once,
    adapters_are_found_without_a_name,
    what_a_provider_needs_is_known,
];

pub(crate) fn library() -> Library {
    let path = testing::fabric::emulation(Path::new(env!("CARGO_TARGET_TMPDIR")));
    Library::open(Some(&path)).expect("it has the interface of libfabric")
}

fn messages_under_the_rules_of_adapters_arrive_once() {
    let library = library();
    for provider in EMULATED {
        let mut pair = Pair::open(&library, provider).expect("it is there");
        let mut missing: [BTreeMap<Vec<u8>, usize>; 2] = [BTreeMap::new(), BTreeMap::new()];
        for number in 0..400usize {
            // Around the limits of injected messages, and some long ones.
            let length = [4, 32, 33, 64, 65, 192, 193, 5000][number % 8];
            let message: Vec<u8> = (0..length)
                .map(|at| if at < 4 { number.to_le_bytes()[at] } else { (at * number) as u8 })
                .collect();
            for from in [0, 1] {
                for at in [from, 1 - from] {
                    take(&mut pair, at, &mut missing[at], provider);
                }
                while !pair.try_send(from, &message) {
                    for at in [from, 1 - from] {
                        take(&mut pair, at, &mut missing[at], provider);
                    }
                }
                *missing[1 - from].entry(message.clone()).or_default() += 1;
            }
        }
        while missing.iter().any(|missing| !missing.is_empty()) {
            for at in [0, 1] {
                take(&mut pair, at, &mut missing[at], provider);
            }
        }
    }
}

/// Removes what has arrived from what is missing.
fn take(pair: &mut Pair, at: usize, missing: &mut BTreeMap<Vec<u8>, usize>, provider: &str) {
    for message in pair.poll(at) {
        assert!(missing.remove(&message).is_some(), "{provider}: {} other bytes", message.len());
    }
}

fn adapters_are_found_without_a_name() {
    let library = library();
    let endpoint = Endpoint::open(&library, &request(Choice::Any)).expect("there are some");
    assert_eq!(endpoint.provider().name, EMULATED[0]);
    let listed = providers(&library);
    let (adapters, with_messages) = listed.split_at(EMULATED.len());
    assert_eq!(adapters, EMULATED);
    // The last one has no remote memory.
    let expected: Vec<String> =
        EMULATED[..3].iter().map(|name| format!("{name}+messages")).collect();
    assert_eq!(with_messages, expected);
}

fn what_a_provider_needs_is_known() {
    let library = library();
    let needs = EMULATED.map(|name| {
        let choice = Choice::Named(name.into());
        let endpoint = Endpoint::open(&library, &request(choice)).expect("it is there");
        let provider = endpoint.provider();
        (provider.registers, provider.can_sleep, provider.inject_bytes, provider.reads)
    });
    let expected = [
        (true, true, 64, true),
        (true, true, 192, true),
        (true, false, 32, true),
        (false, false, 0, false),
    ];
    assert_eq!(needs, expected);
    let selection = format!("{}+read", EMULATED[3]).parse().expect("it is no name that is refused");
    let request = Request { selection, ..request(Choice::Any) };
    let refused = Endpoint::open(&library, &request).expect_err("it has none").to_string();
    assert!(refused.contains("no remote memory"), "{refused}");
}
