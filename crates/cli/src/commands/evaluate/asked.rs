//! `--threads`, `--rounds` and `--repetitions`: numbers of the command line in place of the file's.

use crate::args::EvaluateArguments;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// An experiment's text with these numbers, so that the results' copy is what ran. Unchanged, with
/// its comments, where none is given; so is one that is no experiment: reading it says why.
pub(crate) fn in_place(arguments: &EvaluateArguments, text: String) -> String {
    let number = |number: u32| Value::Integer(number.into());
    // Rising, as in a file, and each once.
    let threads = BTreeSet::from_iter(arguments.threads.iter().copied()).into_iter().map(number).collect();
    let asked = [
        ("threads", (!arguments.threads.is_empty()).then_some(Value::Array(threads))),
        ("rounds", arguments.rounds.map(number)),
        ("repetitions", arguments.repetitions.map(number)),
    ];
    let Ok(mut experiment) = text.parse::<Table>() else { return text };
    let asked: Vec<_> = asked.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect();
    if asked.is_empty() {
        return text;
    }
    experiment.extend(asked);
    experiment.to_string()
}
