//! `homenode calibrate`.

use crate::args::CalibrateArguments;
use crate::evaluation_view::View;
use crate::failure::bad_input;
use crate::text::{Table, lines, table, width, wrapped};
use crate::{measuring, named_file, output, this_host};
use anyhow::{Context, anyhow};
use evaluate::calibrate::network::{self, FittedNetwork};
use evaluate::calibrate::{CalibrateError, Calibration, Plan};
use evaluate::progress::{Event, Progress};
use evaluate::results::Results;
use std::path::{Path, PathBuf};
use topology::rates::{Rates, Sourced};

/// Runs the command.
pub(crate) fn run(arguments: &CalibrateArguments) -> anyhow::Result<()> {
    let machine = topology::read::live().context("cannot read this host")?;
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", machine.name)));
    check_target(&out, arguments.force)?;
    let available = linux::room::available().context("cannot read how much memory is available")?.available;
    let scanned = arguments.network.as_deref().map(network_of).transpose()?;
    let plan = Plan::new(&machine, available, arguments.quick)?.with_network(scanned);
    let agent = measuring::agent_program(false)?;
    let cancelled = measuring::stop_wanted()?;
    let mut view = View::new();
    if arguments.quick {
        view.tell(Event::Note("Quick: small arrays and few repetitions. The rates are rough."));
    }
    let calibrated = plan.calibrate(&mut measuring::this_host(agent)?, &mut view, &cancelled);
    view.finish();
    let calibration = calibrated.map_err(|error| match error {
        CalibrateError::Run(evaluate::RunError::Interrupted) => anyhow!("interrupted; nothing is written"),
        error => anyhow!("{error}. Nothing is written"),
    })?;
    named_file::write(&out, calibration.described.text.as_bytes(), arguments.force)?;
    if arguments.json {
        output::json("calibrate", &json(&out, &calibration))?;
    } else {
        output::print(shown(&calibration))?;
        output::line(format_args!(
            "\nWritten: {}. Use it with --on {0}; `homenode machine check {0}` says what is assumed. As {} it tells \
            the commands that look at this host what its memory carries.",
            out.display(),
            this_host::MACHINE_FILE
        ))?;
    }
    Ok(())
}

/// The network that a results directory holds a scan of.
fn network_of(results: &Path) -> anyhow::Result<FittedNetwork> {
    network::of_run(&Results::measured(results).map_err(bad_input)?).map_err(bad_input)
}

/// Refuses before anything is measured.
fn check_target(out: &Path, force: bool) -> anyhow::Result<()> {
    if out.extension().is_none_or(|extension| extension != "toml") {
        return Err(bad_input(format!("--out {}: a machine file's name ends in .toml", out.display())));
    }
    named_file::check("--out", out, force)
}

fn json(out: &Path, calibration: &Calibration) -> serde_json::Value {
    let residuals: Vec<_> = calibration
        .fitted
        .residuals
        .iter()
        .map(|residual| {
            let mut value = serde_json::json!(residual);
            value["error_percent"] = residual.error_percent().into();
            value
        })
        .collect();
    serde_json::json!({
        "file": out, "machine": calibration.described.machine,
        "rates": calibration.described.rates, "measured": calibration.measured, "residuals": residuals,
        "notes": calibration.notes,
    })
}

fn shown(calibration: &Calibration) -> String {
    let mut text = String::new();
    for note in &calibration.notes {
        for (index, line) in wrapped(note, width() - 2).into_iter().enumerate() {
            text += &format!("{} {line}\n", if index == 0 { "!" } else { " " });
        }
    }
    text += &lines(&rates(&calibration.described.rates));
    text += "\n\n";
    let mut rows = table(["figure", "measured", "modelled", "error", ""], &[1, 2, 3]);
    for residual in &calibration.fitted.residuals {
        rows.add_row([
            residual.what.clone(),
            format!("{:.1} {}", residual.measured, residual.unit),
            format!("≈ {:.1} {}", residual.modelled, residual.unit),
            format!("{:+.1} %", residual.error_percent()),
            if residual.fitted { "fitted" } else { "test" }.to_owned(),
        ]);
    }
    text += &lines(&rows);
    text += "\nfitted: a rate was fitted on it; of bandwidths, on the mean of the four kernels. test: the model had no \
        say.\n";
    text
}

fn rates(rates: &Rates) -> Table {
    let mut rows = table(["rate", "value", "unit", "source"], &[1]);
    let mut add = |name: &str, sourced: Option<&Sourced<f64>>, unit: &str| {
        if let Some(sourced) = sourced {
            let source = format!("{:?}", sourced.source).to_lowercase();
            rows.add_row([name.to_owned(), format!("{:.2}", sourced.value), unit.to_owned(), source]);
        }
    };
    add("lines in flight of a core", Some(&rates.lines_in_flight_per_core), "");
    add("local latency", Some(&rates.local_latency_ns), "ns");
    add("bandwidth of a node's memory", Some(&rates.node_bandwidth_gb_per_s), "GB/s");
    add("work of two threads on a core", rates.smt_yield.as_ref(), "x");
    for link in &rates.links {
        let (one, other) = &link.between;
        let source = format!("{:?}", link.source).to_lowercase();
        rows.add_row([format!("link {one}-{other}"), format!("{:.2}", link.gb_per_s), "GB/s".to_owned(), source]);
    }
    for (name, way) in rates.network.iter().flat_map(|all| [("switch", &all.switch), ("uplink", &all.uplink)]) {
        for (what, sourced, unit) in [("latency", &way.latency_us, "us"), ("bandwidth", &way.gb_per_s, "GB/s")] {
            let source = format!("{:?}", sourced.source).to_lowercase();
            rows.add_row([format!("{what} over a {name}"), format!("{:.4}", sourced.value), unit.to_owned(), source]);
        }
    }
    rows
}
