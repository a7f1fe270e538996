//! `report.html`: everything in one file that opens from disk, without a network.

use crate::charts;
use crate::environment::Environment;
use crate::evaluation::Evaluation;
use crate::resolve::Resolved;
use crate::summary::Summary;
use crate::tables::{Kind, Table};
use crate::text::LABELS;
use plotly::Plot;
use std::fmt::Write;

const STYLE: &str = include_str!("report/report.css");
const PRINTING: &str = include_str!("report/print.js");

/// The page. `again` is the command that runs the experiment again.
pub fn html(
    resolved: &Resolved,
    summary: &Summary,
    environment: &Environment,
    tables: &[Table],
    again: &str,
) -> String {
    let charts = charts::all(&Evaluation::measured(resolved, summary));
    let title = escape(&summary.title);
    let mut page = head(&summary.title, !charts.is_empty());
    let _ = write!(
        page,
        "<h1>{title}</h1>\n<p class=\"about\">{} &middot; {} &middot; homenode {}</p>\n",
        escape(&environment.machine.name),
        escape(&environment.at),
        escape(&environment.homenode)
    );
    for note in &summary.notes {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escape(note));
    }
    if !summary.complete {
        page.push_str("<p class=\"warning\">This evaluation is not complete.</p>\n");
    }
    let legend = "Measured: filled marks, solid lines; each small dot is one repetition, each small cross a rejected one. \
                  Published: open grey diamonds, dashed lines.";
    section_charts(&mut page, &charts, legend);
    page.push_str("<h2>Tables</h2>\n");
    for table in tables {
        push_table(&mut page, table);
    }
    section_environment(&mut page, resolved, summary, environment);
    let _ = write!(page, "<h2>Run it again</h2>\n<pre>{}</pre>\n</body></html>\n", escape(again));
    page
}

/// The page up to its body, with the charting library if it has charts.
pub(crate) fn head(title: &str, has_charts: bool) -> String {
    let mut page = String::with_capacity(if has_charts { 6 << 20 } else { 0 });
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style>\n",
        escape(title)
    );
    if has_charts {
        let _ = writeln!(page, "{}\n<script>{PRINTING}</script>", charting_script());
    }
    page.push_str("</head><body>\n");
    page
}

/// The charting library, once. The crate offers it together with a formula renderer, which our
/// charts do not use.
fn charting_script() -> String {
    const END: &str = "</script>";
    let sources = Plot::offline_js_sources();
    let length = sources.find(END).map_or(sources.len(), |start| start + END.len());
    sources[..length].to_owned()
}

pub(crate) fn section_charts(page: &mut String, charts: &[charts::Chart], legend: &str) {
    if charts.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<h2>Charts</h2>\n<p class=\"note\">{legend}</p>\n\
         <p class=\"note screen\">The camera above a chart keeps it as SVG.</p>\n<div class=\"charts\">\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let inline = chart.plot.to_inline_html(Some(&format!("chart-{index}")));
        let _ = write!(
            page,
            "<section><h3>{}</h3>\n<div class=\"chart\" style=\"height:{}rem\">{inline}</div></section>\n",
            escape(&chart.heading),
            chart.height_rem()
        );
    }
    page.push_str("</div>\n");
}

pub(crate) fn push_table(page: &mut String, table: &Table) {
    let class = |header: &String| if LABELS.contains(&header.as_str()) { " class=\"words\"" } else { "" };
    let cells = |tag: &str, cells: &[String]| -> String {
        let all = cells.iter().zip(&table.header);
        all.map(|(cell, header)| format!("<{tag}{}>{}</{tag}>", class(header), escape(cell))).collect()
    };
    let _ = write!(
        page,
        "<h3>{}</h3>\n<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        escape(&table.title),
        cells("th", &table.header)
    );
    for row in &table.rows {
        let _ = writeln!(page, "<tr{}>{}</tr>", row_class(row.kind), cells("td", &row.cells));
    }
    page.push_str("</tbody></table></div>\n");
    for note in &table.notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(note));
    }
}

/// Published and modelled figures never look like measured ones.
fn row_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "",
        Kind::Modelled => " class=\"modelled\"",
        Kind::Published => " class=\"published\"",
        Kind::Error => " class=\"error\"",
    }
}

fn section_environment(page: &mut String, resolved: &Resolved, summary: &Summary, environment: &Environment) {
    let machine = &environment.machine;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "the kernel does not say".to_owned());
    let governors: Vec<String> =
        environment.governors.iter().map(|(governor, cpus)| format!("{governor} ({cpus} CPUs)")).collect();
    let shape = format!(
        "{} NUMA nodes, {} last-level caches, {} hardware threads",
        machine.nodes.len(),
        machine.llcs.len(),
        resolved.hardware_threads
    );
    let rows = [
        ("Machine", format!("{} ({shape})", machine.name)),
        ("CPU", or_unknown(&environment.cpu_model)),
        ("Kernel", environment.kernel.clone()),
        ("Accelerator", environment.accelerator.clone()),
        ("QEMU", summary.qemu.clone().unwrap_or_else(|| "no VM ran".to_owned())),
        (
            "Frequency governor",
            if governors.is_empty() { "the kernel does not say".to_owned() } else { governors.join(", ") },
        ),
        ("Transparent huge pages", or_unknown(&environment.transparent_huge_pages)),
        ("Automatic NUMA balancing", or_unknown(&environment.numa_balancing)),
        ("Available memory at the start", environment.available.to_string()),
        ("Workload", summary.workloads.join("; ")),
        (
            "Visits",
            format!(
                "{} rounds in the order A B, B A; {} repetitions each",
                resolved.experiment.rounds, resolved.experiment.repetitions
            ),
        ),
        (
            "homenode",
            format!("{}, commit {}", environment.homenode, environment.commit.as_deref().unwrap_or("not recorded")),
        ),
    ];
    page.push_str("<h2>Environment</h2>\n<div class=\"scroll\"><table><tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><td>{name}</td><td style=\"text-align:left\">{}</td></tr>", escape(&value));
    }
    page.push_str("</tbody></table></div>\n<p class=\"note\">Plans, and where each VM really was, are in records.jsonl beside this file.</p>\n");
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
