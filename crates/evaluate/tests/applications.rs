//! The NAMD article and the vNUMA paper on the model: every published figure, calibrated and held
//! out apart.

use crate::application_fits;
use crate::application_fits::{experiment, predicted, profiles};
use evaluate::experiment::Experiment;
use evaluate::modelled::{Inputs, Prediction, predict};
use evaluate::switching::Switches;
use evaluate::tables::{self, Kind};
use evaluate::validation::cell::{Errors, Role, ValidationCell};
use simulator::workload::{Binding, WorkloadProfile};
use topology::rates::Source;
use workloads::choice::Choice;

fn on_its_machine(name: &str, change: impl Fn(&mut WorkloadProfile)) -> Prediction {
    let experiment = experiment(name);
    let mut profiles = profiles(&experiment);
    profiles.iter_mut().for_each(change);
    predicted(&experiment, &profiles)
}

fn cell<'a>(prediction: &'a Prediction, group: &str, figure: &str, threads: u32) -> &'a ValidationCell {
    let named = |cell: &&ValidationCell| cell.group == group && cell.figure == figure && cell.threads == Some(threads);
    prediction.cells.iter().find(|cell| named(cell) && cell.published.is_some()).expect(figure)
}

fn error_percent(prediction: &Prediction, group: &str, figure: &str, threads: u32) -> f64 {
    100.0 * cell(prediction, group, figure, threads).error().expect("published")
}

fn namd_held_out(prediction: &Prediction) -> Errors {
    let held_out = prediction.cells.iter().filter(|cell| cell.group == "NAMD" && cell.role == Role::HeldOut);
    Errors::of(held_out.filter_map(ValidationCell::error))
}

#[test]
fn namd_is_within_its_gates_and_waits_grow_with_the_surface() {
    let errors = namd_held_out(&on_its_machine("namd", |_| {}));
    assert_eq!(errors.cells, 14);
    assert!(errors.mape_percent <= 2.5 && errors.max_percent <= 8.0, "{errors:?}");
    // The exponent 1/3 was chosen after looking at both; it must stay the better one.
    let other = namd_held_out(&on_its_machine("namd", |profile| {
        let messages = profile.application.as_mut().and_then(|application| application.messages.as_mut());
        messages.expect("messages").exponent.value = 2.0 / 3.0;
    }));
    assert!(errors.mape_percent < other.mape_percent && errors.max_percent < other.max_percent, "{errors:?} {other:?}");
}

#[test]
fn a_process_waits_for_the_other_vms_in_turn() {
    let of_two_vms = |prediction: &Prediction| {
        let cells = prediction.cells.iter().filter(|cell| cell.configuration.starts_with("2 VMs"));
        Errors::of(cells.filter(|cell| cell.role == Role::HeldOut).filter_map(ValidationCell::error))
    };
    let in_turn = of_two_vms(&on_its_machine("namd", |_| {}));
    // Were it for the share (V - 1) / V of its messages, 1/2 for 2 VMs and 3/4 for 4, to which its
    // values were fitted, then 2 VMs would wait 2/3 as long as 4 instead of 1/3: twice as long.
    let by_share = of_two_vms(&on_its_machine("namd", |profile| {
        let application = profile.application.as_mut().expect("an application");
        let messages = application.messages.as_mut().expect("messages");
        messages.count.value *= 2.0;
        messages.gb.value *= 2.0;
    }));
    assert_eq!(in_turn.cells, 6);
    assert!(2.0 * in_turn.mape_percent < by_share.mape_percent, "{in_turn:?} {by_share:?}");
    assert!(by_share.max_percent > 8.0, "{by_share:?}");
}

#[test]
fn spec_omp_is_within_its_gates() {
    const GROUP: &str = "vNUMA, DL980";
    let prediction = on_its_machine("spec-omp", |_| {});
    for (application, gate) in [("swim", 15.0), ("art", 15.0), ("fma3d", 3.0), ("wupwise", 3.0), ("equake", 7.0)] {
        let error = error_percent(&prediction, GROUP, application, 64);
        assert!(error.abs() <= gate, "{application} with 64 threads: {error:.1} %");
        assert_eq!(cell(&prediction, GROUP, application, 64).role, Role::HeldOut);
    }
    // Not predicted, and not gated: shown as it is.
    assert_eq!(cell(&prediction, GROUP, "applu", 64).role, Role::Reported);
    let mean = prediction.statements.iter().find(|statement| statement.id == "geomean").expect("the mean");
    assert_eq!(mean.role, Role::Reported);
}

#[test]
fn spec_mpi_is_within_its_gates_and_drift_and_caches_earn_their_place() {
    const GROUP: &str = "vNUMA, R910";
    let as_shipped = on_its_machine("spec-mpi", |_| {});
    for application in ["milc", "lu"] {
        let error = error_percent(&as_shipped, GROUP, application, 16);
        assert!(error.abs() <= 3.0, "{application} with 16 ranks: {error:.1} %");
    }
    let up_to_20_percent =
        |prediction: &Prediction| error_percent(prediction, "vNUMA, R910: native to virtual", "milc", 32).abs();
    assert!(up_to_20_percent(&as_shipped) <= 5.0);
    let bound = on_its_machine("spec-mpi", |profile| {
        profile.application.as_mut().expect("an application").binding.value = Binding::Pinned;
    });
    for application in ["milc", "lu"] {
        let with = error_percent(&as_shipped, GROUP, application, 16).abs();
        let without = error_percent(&bound, GROUP, application, 16).abs();
        assert!(with < 0.25 * without, "{application}: {with:.1} % with drift, {without:.1} % without");
    }
    assert!(up_to_20_percent(&as_shipped) < up_to_20_percent(&bound));
    let no_caches = on_its_machine("spec-mpi", |profile| {
        let memory = profile.application.as_mut().and_then(|application| application.memory.as_mut());
        memory.expect("memory").llc_miss_exponent = None;
    });
    // Packed on one socket LU runs at 0.7 to 0.9 of its native speed; without the caches it would
    // be faster than natively.
    let packed = |prediction: &Prediction, ranks: u32| {
        let of_lu = |cell: &&ValidationCell| cell.figure == "lu" && cell.threads == Some(ranks);
        let cells = prediction.cells.iter().filter(of_lu);
        cells
            .filter(|cell| cell.configuration.contains("4 vCPUs, 8 vCPUs"))
            .map(|cell| cell.modelled)
            .next()
            .expect("a ratio")
    };
    for ranks in [4, 8] {
        assert!((0.7..=0.9).contains(&packed(&as_shipped, ranks)), "{ranks} ranks: {}", packed(&as_shipped, ranks));
    }
    for ranks in [4, 8, 16] {
        assert!(packed(&no_caches, ranks) > 1.0, "{ranks} ranks: {}", packed(&no_caches, ranks));
    }
}

#[test]
fn the_statements_that_the_model_does_not_fulfil_are_known() {
    let failing = |name: &str| -> Vec<String> {
        let prediction = on_its_machine(name, |_| {});
        prediction
            .statements
            .iter()
            .filter(|statement| !statement.holds)
            .map(|statement| statement.id.clone())
            .collect()
    };
    // docs/applications.md says why. One that is mended, or one more, belongs there too.
    assert_eq!(failing("namd"), ["N6"]);
    assert_eq!(failing("spec-omp"), ["V10b", "V10c", "V13", "V19"]);
    assert_eq!(failing("spec-mpi"), ["V6", "V7"]);
}

#[test]
fn tables_mark_modelled_published_and_unpublished_figures() {
    for name in ["namd", "spec-omp", "spec-mpi"] {
        let experiment = experiment(name);
        let prediction = predicted(&experiment, &profiles(&experiment));
        let tables = tables::modelled(&experiment, &prediction);
        let cells: Vec<&String> = tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells).collect();
        assert!(
            cells.iter().any(|cell| cell.starts_with("≈ ")) && cells.iter().any(|cell| cell.ends_with("(held out)"))
        );
        assert!(
            tables.iter().all(|table| table.rows.iter().all(|row| row.cells.len() == table.header.len())),
            "{name}"
        );
        // A row without any published figure has none of its own: one note below the table names
        // all of them.
        let notes: Vec<&String> = tables.iter().flat_map(|table| &table.notes).collect();
        let in_pictures = cells.iter().chain(&notes).any(|text| text.contains("not published in text"));
        assert_eq!(in_pictures, name != "namd");
        let published = tables.iter().flat_map(|table| &table.rows).filter(|row| row.kind == Kind::Published);
        assert!(published.into_iter().all(|row| row.cells.iter().any(|cell| cell.starts_with('['))), "{name}");
    }
}

#[test]
fn another_machine_has_no_published_figures() {
    let experiment = experiment("spec-mpi");
    let on = topology::read::shipped_described("hp-dl980-g7").expect("shipped").expect("valid");
    let nothing = |_: &str| None;
    let profiles = profiles(&experiment);
    let inputs = Inputs { experiment: &experiment, on: Some(&on), machines: &nothing, profiles: &profiles, seed: 1 };
    let prediction = predict(&inputs).expect("figures");
    assert!(prediction.cells.is_empty() && prediction.statements.is_empty());
    let tables = tables::modelled(&experiment, &prediction);
    let text: Vec<&String> = tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells).collect();
    assert!(!text.is_empty() && text.iter().all(|cell| !cell.contains('[') && !cell.contains("held out")));
}

#[test]
fn what_cannot_be_modelled_has_no_figure_and_says_why() {
    let refused = |change: fn(&mut Experiment, &mut Vec<WorkloadProfile>)| {
        let mut experiment = experiment("namd");
        let mut profiles = profiles(&experiment);
        change(&mut experiment, &mut profiles);
        let machines = |name: &str| topology::read::shipped_described(name)?.ok();
        let inputs = Inputs { experiment: &experiment, on: None, machines: &machines, profiles: &profiles, seed: 1 };
        predict(&inputs).expect_err("no figures").to_string()
    };
    let too_many = refused(|experiment, _| experiment.threads = Choice::Fixed(vec![4, 64]));
    assert!(too_many.contains("\"Native\"") && too_many.contains("64") && too_many.contains("16"), "{too_many}");
    let no_network = refused(|experiment, _| experiment.configurations[4].switches = Some(Switches::Count(3)));
    assert!(no_network.contains("2 VMs, 1 vSwitch\": switches") && no_network.contains("1 to 2"), "{no_network}");
    let kernels =
        refused(|_, profiles| *profiles = vec![evaluate::profiles::find("stream-ordinary").expect("shipped")]);
    assert!(kernels.contains("application.profiles = \"stream-ordinary\"") && kernels.contains("rates"), "{kernels}");
}

/// Every value that an application's profile, the native system or the DL980's links mark
/// calibrated follows from its figure again.
#[test]
fn calibrated_values_follow_from_their_figures() {
    let fits = application_fits::all();
    let wrong: Vec<String> = fits
        .iter()
        .filter(|fit| (fit.fitted / fit.stored - 1.0).abs() > 0.005)
        .map(|fit| format!("{}: stored {}, fitted {:.5}", fit.what, fit.stored, fit.fitted))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // One fit for each calibrated value of the profiles, one for the native system, one for the
    // links.
    let names = ["namd", "spec-omp", "spec-mpi"];
    let values: usize =
        names.iter().flat_map(|name| profiles(&experiment(name))).map(|profile| calibrated(&profile)).sum();
    assert_eq!(fits.len(), values + 2);
}

#[test]
fn the_native_kernel_of_the_studies_places_threads_alike() {
    let share = |name: &str| experiment(name).native_os.random_thread_share.expect("a share").value;
    // All three ran RHEL 5 with kernel 2.6.18; the value is calibrated once, on NAMD.
    assert_eq!([share("stream-esx41"), share("spec-mpi")], [share("namd"); 2]);
    assert!(experiment("spec-omp").native_os.random_thread_share.is_none());
}

fn calibrated(profile: &WorkloadProfile) -> usize {
    let text = serde_json::to_string(profile).expect("JSON");
    let mark = serde_json::to_string(&Source::Calibrated).expect("JSON");
    text.matches(&format!("\"source\":{mark}")).count()
}
