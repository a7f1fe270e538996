//! `homenode calibrate`.

use crate::args::CalibrateArguments;
use crate::evaluation_view::View;
use crate::failure::{bad_input, unwritable};
use crate::text::{WIDTH, lines, table, wrapped};
use crate::{measuring, output};
use anyhow::{Context, anyhow};
use evaluate::calibrate::{CalibrateError, Calibration, Plan};
use evaluate::progress::{Event, Progress};
use evaluate::real::ThisHost;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use topology::rates::{Rates, Sourced};

/// Runs the command.
pub(crate) fn run(arguments: &CalibrateArguments) -> anyhow::Result<()> {
    let machine = topology::read::live().context("cannot read this host")?;
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.toml", machine.name)));
    check_target(&out, arguments.force)?;
    let available = linux::room::available().context("cannot read how much memory is available")?.available;
    let plan = Plan::new(&machine, available, arguments.quick)?;
    let agent = measuring::agent_program(false)?;
    let cancelled = measuring::stop_wanted()?;
    let mut view = View::new();
    if arguments.quick {
        view.tell(Event::Note("Quick: small arrays and few repetitions. The rates are rough."));
    }
    let calibrated = plan.calibrate(&mut ThisHost::new(agent), &mut view, &cancelled);
    view.finish();
    let calibration = calibrated.map_err(|error| match error {
        CalibrateError::Run(evaluate::RunError::Interrupted) => anyhow!("interrupted; nothing is written"),
        error => anyhow!("{error}. Nothing is written"),
    })?;
    write(&out, &calibration.described.text, arguments.force)?;
    if arguments.json {
        output::json("calibrate", &json(&out, &calibration))?;
    } else {
        output::print(shown(&calibration))?;
        output::line(format_args!(
            "\nWritten: {}. Use it with --on {0}; `homenode machine check {0}` says what is assumed.",
            out.display()
        ))?;
    }
    Ok(())
}

/// Refuses before anything is measured.
fn check_target(out: &Path, force: bool) -> anyhow::Result<()> {
    if out.extension().is_none_or(|extension| extension != "toml") {
        return Err(bad_input(format!("--out {}: a machine file's name ends in .toml", out.display())));
    }
    if out.is_dir() {
        return Err(bad_input(format!("--out {}: it is a directory; name a file", out.display())));
    }
    if out.exists() && !force {
        let advice = "it exists; give --force to overwrite it, or --out with another name";
        return Err(bad_input(format!("--out {}: {advice}", out.display())));
    }
    match out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => {
            Err(bad_input(format!("--out {}: there is no directory {}", out.display(), parent.display())))
        }
        _ => check_writable(out),
    }
}

/// Minutes of measuring are lost where the file cannot be written in the end.
fn check_writable(out: &Path) -> anyhow::Result<()> {
    let tried = partial(out);
    let made = fs::File::create_new(&tried).and_then(|_| fs::remove_file(&tried));
    made.map_err(|error| bad_input(format!("--out {}: no file can be made there: {error}", out.display())))
}

/// The file until it is whole.
fn partial(out: &Path) -> PathBuf {
    out.with_extension(format!("toml.{}", std::process::id()))
}

/// The whole file or none: it gets its name when it is complete.
fn write(out: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let fail = |error| unwritable(format_args!("{}: cannot be written", out.display()), &error);
    let partial = partial(out);
    let mut file = fs::File::create_new(&partial).map_err(fail)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
        // A link refuses a name that another has taken meanwhile; a rename does not.
        if force { fs::rename(&partial, out) } else { fs::hard_link(&partial, out) }
    });
    let _ = fs::remove_file(&partial);
    written.map_err(fail)
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
        for (index, line) in wrapped(note, WIDTH - 2).into_iter().enumerate() {
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
    text += "\nfitted: a rate was fitted on it; of bandwidths, on the mean of the four kernels. test: the model had no say.\n";
    text
}

fn rates(rates: &Rates) -> comfy_table::Table {
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
    rows
}
