//! Ratios of made-up times.

use super::*;
use crate::figure::Provenance;
use crate::point::Point;

const SECTION: &str = r#"
profiles = ["one", "two"]
[[ratio]]
title = "gain"
source = "s"
group = "g"
shows = "gain"
time_of = ["default"]
divided_by = ["4 vCPUs", "8 vCPUs"]
processes = [4, 8]
published = [{ figure = "one", processes = 4, value = 50, role = "held_out" }]
[[ratio]]
title = "scaling"
source = "s"
group = "g"
shows = "ratio"
time_of = ["default"]
divided_by = ["default"]
base = 4
processes = [8]
[[comparison]]
id = "C1"
text = "one of them gains more than 40 %"
ratio = "gain"
above = 1.4
processes = [4]
count = 1
[[comparison]]
id = "C2"
text = "one scales worse than two"
ratio = "scaling"
figures = ["one"]
below_figures = ["two"]
"#;

fn figure(configuration: &str, name: &str, threads: u32, seconds: f64) -> Figure {
    Figure {
        configuration: configuration.to_owned(),
        point: Point::over_threads("application", threads),
        quantity: crate::figure::seconds(name),
        value: seconds,
        spread: None,
        provenance: Provenance::Modelled { cross_check: Some(2.0 * seconds) },
    }
}

#[test]
fn a_ratio_takes_the_first_configuration_that_runs_and_a_comparison_all_of_them() {
    let section: Section = toml::from_str(SECTION).expect("a section");
    let figures = [
        figure("default", "one", 4, 120.0),
        figure("default", "one", 8, 80.0),
        figure("4 vCPUs", "one", 4, 75.0),
        figure("8 vCPUs", "one", 4, 1.0),
        figure("8 vCPUs", "one", 8, 40.0),
        figure("default", "two", 4, 100.0),
        figure("default", "two", 8, 50.0),
        figure("4 vCPUs", "two", 4, 100.0),
    ];
    let all = ratios(&section, &figures);
    let shown: Vec<(&str, u32, f64)> =
        all.iter().map(|ratio| (ratio.figure, ratio.processes, ratio.modelled)).collect();
    // one: 120/75 at 4, 80/40 at 8; two: 100/100 at 4, nothing at 8; scaling from 4 to 8: 120/80
    // and 100/50.
    assert_eq!(shown, [("one", 4, 1.6), ("one", 8, 2.0), ("two", 4, 1.0), ("one", 8, 1.5), ("two", 8, 2.0)]);
    assert!(all.iter().all(|ratio| ratio.cross_check == Some(ratio.modelled)));
    // 1.6 against 1.5.
    assert!((all[0].error().expect("published") - 1.0 / 15.0).abs() < 1e-12);
    assert_eq!(all[1].error(), None);
    let outcomes = outcomes(&section, &figures);
    assert!(outcomes.iter().all(|outcome| outcome.holds), "{outcomes:?}");
    assert_eq!(outcomes[0].because, "one at 4: 60.0 %; two at 4: 0.0 %");
    assert_eq!([&outcomes[0].expected, &outcomes[1].expected], ["1 of them above 1.4", "below two"]);
    // With equal gains none is above 40 %, and without a ratio nothing holds.
    let equal = [figure("default", "one", 4, 1.0), figure("4 vCPUs", "one", 4, 1.0)];
    assert!(super::outcomes(&section, &equal).iter().all(|outcome| !outcome.holds));
}
