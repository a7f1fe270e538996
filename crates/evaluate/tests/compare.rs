//! Measured runs side by side: scripted ones.

use crate::beside::run_of;
use crate::scripted::Script;
use evaluate::compare::{CompareError, Comparison};
use evaluate::figure::OfRound;
use evaluate::modelled::beside::MeasuredRun;
use evaluate::{tables, text};

#[test]
fn runs_stand_side_by_side_with_what_differs() {
    let mut other = run_of("another", Script::default());
    other.environment.kernel = "Linux 7.0".to_owned();
    let experiment = other.experiment.as_mut().expect("read");
    experiment.repetitions = 9;
    experiment.title = "Another title".to_owned();
    // Native Copy with one thread is twice as fast, in every repetition: 2.00, and told apart.
    let copy = &mut other.summary.configurations[0].cells[0].figures[0];
    copy.best *= 2.0;
    copy.spread.repetitions.iter_mut().for_each(|value| *value *= 2.0);
    copy.spread.rounds.iter_mut().for_each(|round| round.value *= 2.0);
    let comparison = Comparison::of(&[run_of("hp-dl380-g6", Script::default()), other]).expect("the same figures");
    let what: Vec<&str> = comparison.differences.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(what, ["Machine", "Kernel", "repetitions"]);
    assert_eq!(comparison.differences[2].values, [Some("3".to_owned()), Some("9".to_owned())]);
    let text = text::render_comparison(&comparison, &tables::compared(&comparison), None);
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Machine hp-dl380-g6 another",
        "Copy, MB/s 1 thread 990 1980 2.00 ",
        "Copy, MB/s 2 threads 1980 1980 1.00 =",
        "their repetitions overlap",
        "too few runs for one",
    ] {
        assert!(squeezed.contains(part), "{part}: {text}");
    }
}

/// Of each round of native Copy with one thread these times its speed.
fn with_rounds(factors: [f64; 5]) -> MeasuredRun {
    let mut run = run_of("hp-dl380-g6", Script::default());
    let copy = &mut run.summary.configurations[0].cells[0].figures[0];
    copy.spread.rounds =
        factors.into_iter().zip(0..).map(|(factor, round)| OfRound { round, value: 1000.0 * factor }).collect();
    run
}

#[test]
fn an_interval_tells_runs_apart_that_overlap() {
    let runs = [with_rounds([1.0, 1.01, 0.99, 1.0, 1.005]), with_rounds([1.05, 1.06, 1.04, 1.055, 1.05])];
    let comparison = Comparison::of(&runs).expect("the same figures");
    let row = &comparison.figures[0];
    let interval = row.intervals[1].expect("five rounds of each");
    assert!((row.ratios[1].expect("both have one") - 1.05).abs() < 0.005 && interval.holds(1.05), "{row:?}");
    // Their repetitions are the same; their rounds are not.
    assert!(row.told_apart[1] && !interval.holds(1.0), "{row:?}");
    let text = text::render_comparison(&comparison, &tables::compared(&comparison), None);
    assert!(text.contains("1.05 (1.0") && text.contains("with a confidence of 95 %"), "{text}");
    let alike = Comparison::of(&[with_rounds([1.0, 1.1, 0.9, 1.05, 0.95]), with_rounds([1.02, 1.1, 0.9, 1.04, 0.96])]);
    assert!(!alike.expect("the same figures").figures[0].told_apart[1]);
}

#[test]
fn a_disturbed_run_is_said_to_be_one() {
    let disturbed = Script { others: vec![1.0; 1000].into(), ..Script::default() };
    let runs = [run_of("hp-dl380-g6", Script::default()), run_of("hp-dl380-g6", disturbed)];
    let comparison = Comparison::of(&runs).expect("the same figures");
    let text = text::render_comparison(&comparison, &tables::compared(&comparison), None);
    assert!(text.contains("990 ~") && text.contains("~ every repetition was disturbed"), "{text}");
    assert!(comparison.differences.is_empty(), "{:?}", comparison.differences);
}

#[test]
fn runs_without_a_figure_in_common_are_refused() {
    let mut other = run_of("another", Script::default());
    other.summary.configurations.iter_mut().for_each(|configuration| configuration.name.push('!'));
    let refused = Comparison::of(&[run_of("hp-dl380-g6", Script::default()), other]);
    assert_eq!(refused, Err(CompareError::NothingInCommon));
}
