//! The machine file: its text, read back and checked before anybody gets it.

use super::CalibrateError;
use super::fit::{Fitted, Residual};
use super::regular::Regular;
use simulator::machine_check::{self, Finding};
use std::fmt::Write as _;
use topology::rates::{Flits, Latencies, Rates, Source, Sourced, Vertex};
use topology::{Machine, read};

/// A machine file that reads and passes the check.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// Its text.
    pub text: String,
    /// The machine.
    pub machine: Machine,
    /// Its rates, rounded as they are written.
    pub rates: Rates,
}

/// The machine of the file, without rates.
///
/// # Errors
/// The fields give no machine.
pub(super) fn machine(regular: &Regular) -> Result<Machine, CalibrateError> {
    let impossible = |error: read::ReadError| CalibrateError::Impossible(error.to_string());
    read::from_toml(&fields(regular), "calibrated").map_err(impossible)
}

/// The text with its rates, the notes and the residuals as comments.
///
/// # Errors
/// It describes no machine that can be modelled.
pub(super) fn describe(
    regular: &Regular,
    fitted: &Fitted,
    notes: &[String],
    quick: bool,
) -> Result<Described, CalibrateError> {
    let text = text(regular, fitted, notes, quick);
    let impossible = |reason: String| CalibrateError::Impossible(reason);
    let read = read::described(&text, &regular.name).map_err(|error| impossible(error.to_string()))?;
    let Some(rates) = read.rates else { return Err(impossible("no rates were fitted".to_owned())) };
    match machine_check::check(&read.machine, &rates).into_iter().find(Finding::refuses) {
        Some(finding) => Err(impossible(finding.to_string())),
        None => Ok(Described { text, machine: read.machine, rates }),
    }
}

fn text(regular: &Regular, fitted: &Fitted, notes: &[String], quick: bool) -> String {
    let mut text = format!("# {}, measured by homenode calibrate", one_line(&regular.name));
    text += if quick { " --quick: rough.\n" } else { ".\n" };
    for note in notes {
        let _ = writeln!(text, "# {}", one_line(note));
    }
    text += &fields(regular);
    text.push('\n');
    text += &rates(&fitted.rates);
    text += &residuals(&fitted.residuals);
    text
}

/// The fields of the topology.
fn fields(regular: &Regular) -> String {
    let mut text = format!("name = {}\n", quoted(&regular.name));
    if let Some(model) = &regular.cpu_model {
        let _ = writeln!(text, "cpu_model = {}", quoted(model));
    }
    let counts = [
        ("sockets", regular.sockets),
        ("nodes_per_socket", regular.nodes_per_socket),
        ("llcs_per_node", regular.llcs_per_node),
        ("cores_per_llc", regular.cores_per_llc),
        ("threads_per_core", regular.threads_per_core),
    ];
    for (field, count) in counts {
        let _ = writeln!(text, "{field} = {count}");
    }
    let _ = writeln!(text, "cpu_numbering = {}", quoted(regular.cpu_numbering));
    if let Some(size) = regular.llc_size {
        let _ = writeln!(text, "llc_size = \"{} KiB\"", size.0 >> 10);
    }
    let _ = writeln!(text, "llc_level = {}", regular.llc_level);
    let _ = writeln!(text, "memory_per_node = \"{} MiB\"", regular.memory_per_node.mib());
    let rows: Vec<String> = regular.distances.iter().map(|row| format!("    {row:?},\n")).collect();
    let _ = writeln!(text, "distances = [\n{}]", rows.concat());
    text
}

fn rates(rates: &Rates) -> String {
    let mut text = "[rates]\n".to_owned();
    value(&mut text, "lines_in_flight_per_core", Some(&rates.lines_in_flight_per_core));
    value(&mut text, "smt_yield", rates.smt_yield.as_ref());
    value(&mut text, "local_latency_ns", Some(&rates.local_latency_ns));
    value(&mut text, "node_bandwidth_gb_per_s", Some(&rates.node_bandwidth_gb_per_s));
    if let Some(Sourced { value: flits, source, from }) = &rates.flits {
        let Flits { remote_read, remote_write, local_read_snoop } = flits;
        let pair = |(towards, back): &(f64, f64)| format!("[{towards}, {back}]");
        let _ = writeln!(
            text,
            "flits = {{ value = {{ remote_read = {}, remote_write = {}, local_read_snoop = {} }}, source = {}, from = {} }}",
            pair(remote_read),
            pair(remote_write),
            pair(local_read_snoop),
            kind(*source),
            quoted(from)
        );
    }
    if let Some(table) = &rates.latencies {
        text += &latencies(table);
    }
    for link in &rates.links {
        let _ = write!(
            text,
            "\n[[rates.link]]\nbetween = [{}, {}]\ngb_per_s = {}\nlatency_ns = {}\nsource = {}\nfrom = {}\n",
            vertex(&link.between.0),
            vertex(&link.between.1),
            rounded(link.gb_per_s),
            rounded(link.latency_ns),
            kind(link.source),
            quoted(&link.from)
        );
    }
    if let Some(network) = &rates.network {
        for (name, way) in [("switch", &network.switch), ("uplink", &network.uplink)] {
            let _ = writeln!(text, "\n[rates.network.{name}]");
            value(&mut text, "latency_us", Some(&way.latency_us));
            value(&mut text, "gb_per_s", Some(&way.gb_per_s));
        }
    }
    text
}

fn value(text: &mut String, field: &str, sourced: Option<&Sourced<f64>>) {
    if let Some(Sourced { value, source, from }) = sourced {
        let (value, source, from) = (rounded(*value), kind(*source), quoted(from));
        let _ = writeln!(text, "{field} = {{ value = {value}, source = {source}, from = {from} }}");
    }
}

fn latencies(table: &Latencies) -> String {
    let row = |row: &Vec<f64>| format!("    [{}],\n", row.iter().map(|ns| rounded(*ns)).collect::<Vec<_>>().join(", "));
    let rows: String = table.rows.iter().map(row).collect();
    let because = table.asymmetric_because.as_ref();
    let because = because.map(|reason| format!("asymmetric_because = {}\n", quoted(reason))).unwrap_or_default();
    format!(
        "\n[rates.latencies]\nrows = [\n{rows}]\nsource = {}\nfrom = {}\n{because}",
        kind(table.source),
        quoted(&table.from)
    )
}

/// How well the model fits, as comments: figures, not fields, since a reader of the file is to see
/// them and nothing is to use them.
fn residuals(residuals: &[Residual]) -> String {
    let mut text = "\n# The model with these rates against what was measured. A star: a rate was fitted on it (of the \
        scan: on the mean of\n# the four kernels); the others test the model.\n"
        .to_owned();
    for residual in residuals {
        let Residual { what, measured, modelled, unit, fitted } = residual;
        let star = if *fitted { "*" } else { " " };
        let _ = writeln!(
            text,
            "# {star} {what:<36} measured {measured:>10.1} {unit:<4}  modelled {modelled:>10.1}  {:>+6.1} %",
            residual.error_percent()
        );
    }
    text
}

/// Four decimals are more than a measurement has. Of what is below 0.1 as many digits stay: a slow
/// link's GB/s would be 0 otherwise.
fn rounded(value: f64) -> String {
    let zeros = if value == 0.0 { 0.0 } else { (-value.abs().log10()).ceil() - 1.0 };
    let decimals = 4 + zeros.clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn kind(source: Source) -> &'static str {
    match source {
        Source::Document => "\"document\"",
        Source::Datasheet => "\"datasheet\"",
        Source::Measured => "\"measured\"",
        Source::Calibrated => "\"calibrated\"",
        Source::Assumed => "\"assumed\"",
    }
}

fn vertex(vertex: &Vertex) -> String {
    match vertex {
        Vertex::Node(node) => node.to_string(),
        Vertex::Switch(name) => quoted(name),
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_keep_four_digits() {
        // 100 kbit/s are 0.0000125 GB/s.
        let cases = [(0.0, "0"), (975.97834, "975.9783"), (0.5, "0.5"), (0.027_841, "0.02784"), (1.25e-5, "0.0000125")];
        for (value, text) in cases {
            assert_eq!(rounded(value), text);
        }
    }
}
