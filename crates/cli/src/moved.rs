//! Commands under the names that they had in version 0.2, for one release.

use std::ffi::OsString;

/// Old names, and the words in their place.
const MOVED: [(&str, &[&str]); 9] = [
    ("overlap", &["measure", "collectives"]),
    ("predict", &["schedule", "predict"]),
    ("kernel", &["doctor", "kernel"]),
    ("check", &["exec", "check"]),
    ("convert", &["exec", "convert"]),
    ("trace", &["exec", "trace"]),
    ("man", &["completions", "--man"]),
    // Programs that were built with that version start these.
    ("serve", &["internal", "serve"]),
    ("serve-names", &["internal", "serve-names"]),
];

/// Replaces the old name of a command, the first word behind the options that all commands have.
/// Returns a sentence about it for users, where they have typed it.
pub(crate) fn with_new_name(mut words: Vec<OsString>) -> (Vec<OsString>, Option<String>) {
    let is_option = |word: &OsString| word.to_str().is_some_and(|word| word.starts_with("--"));
    let is_value = |at: usize| words.get(at - 1).is_some_and(|word| word == "--format");
    let at = (1..words.len()).find(|at| !is_option(&words[*at]) && !is_value(*at));
    let moved = |at| MOVED.iter().find(|(old, _)| words[at] == *old);
    let Some((at, (old, new))) = at.and_then(|at| Some((at, moved(at)?))) else {
        return (words, None);
    };
    let sentence = format!(
        "`tradewind {old}` is now `tradewind {}`; the old name goes with the next release",
        new.join(" ")
    );
    drop(words.splice(at..=at, new.iter().map(OsString::from)));
    (words, (new[0] != "internal").then_some(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(line: &str) -> String {
        let (words, _) = with_new_name(line.split(' ').map(OsString::from).collect());
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn only_the_name_of_the_command_is_replaced() {
        for (typed, expected) in [
            ("tradewind check check", "tradewind exec check check"),
            (
                "tradewind --format json overlap -n 2",
                "tradewind --format json measure collectives -n 2",
            ),
            ("tradewind --format=json kernel", "tradewind --format=json doctor kernel"),
            ("tradewind run -n 2 check", "tradewind run -n 2 check"),
            ("tradewind serve x", "tradewind internal serve x"),
            ("tradewind", "tradewind"),
        ] {
            assert_eq!(renamed(typed), expected);
        }
    }

    #[test]
    fn only_users_are_told() {
        let told = |old: &str| with_new_name(vec!["tradewind".into(), old.into()]).1;
        let sentence = told("man").expect("a user has typed it");
        assert!(sentence.contains("`tradewind completions --man`"), "{sentence}");
        assert_eq!((told("serve"), told("exec")), (None, None));
    }
}
