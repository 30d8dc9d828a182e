//! Texts of choices.

use collectives::{Algorithm, Choice, Collective, Levels};
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let all: Vec<Algorithm> =
        Collective::ALL.iter().flat_map(|operation| operation.algorithms()).copied().collect();
    prop::sample::select(all)
}

proptest! {
    #[test]
    fn a_choice_is_found_by_its_text(
        algorithm in algorithms(), is_two_level: bool, segment in 1u64.., degree in 1u32..,
    ) {
        let choice = Choice {
            levels: if is_two_level { Levels::Two } else { Levels::One },
            segment_bytes: NonZeroU64::new(segment).filter(|_| algorithm.is_segmented()),
            degree: NonZeroU32::new(degree).filter(|_| algorithm.has_degree()),
            ..Choice::of(algorithm)
        };
        prop_assert_eq!(choice.to_string().parse(), Ok(choice));
    }

    #[test]
    fn any_other_text_is_refused_with_itself(text in "\\PC*") {
        match text.parse::<Choice>() {
            Ok(choice) => prop_assert_eq!(choice.to_string(), text),
            Err(error) => {
                let quoted = format!("{text:?}");
                prop_assert!(error.to_string().contains(&quoted), "{error}");
            }
        }
    }
}

#[test]
fn texts_that_are_nearly_choices_are_refused() {
    for text in [
        "",
        "ringg",
        "ring in segments",
        "ring, predicted",
        "dary of degree many",
        "dary of degree 0",
        "chain in segments of 08 bytes",
        "two-level",
        "ring ",
        " ring",
    ] {
        assert!(text.parse::<Choice>().is_err(), "{text}");
    }
}
