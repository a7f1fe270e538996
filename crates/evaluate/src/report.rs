//! `report.html`: everything in one file that opens from disk, without a network.

use crate::answer;
use crate::charts::{self, Chart};
use crate::environment::Environment;
use crate::evaluation::Evaluation;
use crate::resolve::Resolved;
use crate::summary::Summary;
use crate::tables::{Kind, Table};
use crate::text::LABELS;
use std::fmt::Write;

const STYLE: &str = include_str!("report/report.css");
const KEEPING: &str = include_str!("report/keep.js");

/// The page. `again` is the command that runs the experiment again.
pub fn html(
    resolved: &Resolved,
    summary: &Summary,
    environment: &Environment,
    tables: &[Table],
    again: &str,
) -> String {
    let evaluation = Evaluation::measured(resolved, summary);
    let application = resolved.experiment.application.as_ref();
    let about = [environment.machine.name.clone(), environment.at.clone(), homenode(&environment.homenode)];
    let mut page = head(&summary.title, &about);
    let sentences = answer::sentences(&evaluation, application, answer::of_measured(summary));
    let mut warnings = summary.notes.clone();
    if !summary.complete {
        warnings.push("This evaluation is not complete.".to_owned());
    }
    section_answer(&mut page, &sentences, &charts::all(&evaluation, application), &warnings, MEASURED);
    page.push_str("<h2>Tables</h2>\n");
    for table in tables {
        push_table(&mut page, table);
    }
    section_environment(&mut page, resolved, summary, environment);
    foot(&mut page, again);
    page
}

/// What the marks of a measured run's charts mean.
const MEASURED: &str = "Measured: filled circles, solid lines; each small dot is one repetition, each small cross \
                        a rejected one. Brackets and whiskers of a ratio: its 95 % interval, from pairs of rounds. \
                        Published: open grey diamonds, dashed lines. A mouse on a mark \
                        shows its value.";

/// The page up to its heading; `about`: what stands below that, in one line.
pub(crate) fn head(title: &str, about: &[String]) -> String {
    let (title, about) = (escape(title), about.iter().map(|part| escape(part)).collect::<Vec<_>>());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style>\n\
         </head><body>\n<h1>{title}</h1>\n<p class=\"about\">{}</p>\n",
        about.join(" &middot; ")
    )
}

/// `homenode 0.1.0`.
pub(crate) fn homenode(version: &str) -> String {
    format!("homenode {version}")
}

/// The end of the page.
pub(crate) fn foot(page: &mut String, again: &str) {
    let _ = write!(
        page,
        "<h2>Run it again</h2>\n<pre>{}</pre>\n<script>{KEEPING}</script>\n</body></html>\n",
        escape(again)
    );
}

/// The first screen, a picture with three sentences; below it warnings, once; then all other
/// charts.
pub(crate) fn section_answer(
    page: &mut String,
    sentences: &[String],
    charts: &[Chart],
    warnings: &[String],
    legend: &str,
) {
    let (first, others) = match charts {
        [first, others @ ..] => (Some(first), others),
        [] => (None, charts),
    };
    page.push_str("<div class=\"answer\">\n");
    if let Some(chart) = first {
        push_figure(page, &chart.name, &chart.svg());
    }
    page.push_str("<div class=\"sentences\">\n");
    for sentence in sentences {
        let _ = writeln!(page, "<p>{}</p>", escape(sentence));
    }
    page.push_str("</div></div>\n");
    if !warnings.is_empty() {
        let items = warnings.iter().map(|warning| format!("<li>{}</li>\n", escape(warning))).collect::<String>();
        let _ = write!(page, "<ul class=\"warning\">\n{items}</ul>\n");
    }
    if first.is_some() {
        let _ = writeln!(page, "<p class=\"note\">{legend}</p>");
    }
    if !others.is_empty() {
        page.push_str("<h2>Charts</h2>\n<div class=\"charts\">\n");
        for chart in others {
            push_figure(page, &chart.name, &chart.svg());
        }
        page.push_str("</div>\n");
    }
}

/// A drawing, and below it a link that keeps it as a file.
pub(crate) fn push_figure(page: &mut String, name: &str, svg: &str) {
    let _ = writeln!(
        page,
        "<figure>{svg}\n<figcaption class=\"screen\">\
         <a class=\"svg\" href=\"#\" download=\"{name}.svg\">SVG</a></figcaption></figure>"
    );
}

pub(crate) fn push_table(page: &mut String, table: &Table) {
    let class = |header: &String| if LABELS.contains(&header.as_str()) { " class=\"words\"" } else { "" };
    let cells = |tag: &str, cells: &[String]| -> String {
        let all = cells.iter().zip(&table.header);
        all.map(|(cell, header)| format!("<{tag}{}>{}</{tag}>", class(header), escape(cell))).collect()
    };
    let _ = write!(
        page,
        "<section><h3>{} <a class=\"csv screen\" href=\"#\" download=\"{}.csv\">CSV</a></h3>\n\
         <div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        escape(&table.title),
        charts::file_name(&table.title),
        cells("th", &table.header)
    );
    for row in &table.rows {
        let _ = writeln!(page, "<tr{}>{}</tr>", row_class(row.kind), cells("td", &row.cells));
    }
    page.push_str("</tbody></table></div>\n");
    for note in &table.notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(note));
    }
    page.push_str("</section>\n");
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
        let _ = writeln!(page, "<tr><td>{name}</td><td class=\"words\">{}</td></tr>", escape(&value));
    }
    page.push_str(
        "</tbody></table></div>\n<p class=\"note\">Plans, and where each VM really was, are in records.jsonl \
        beside this file.</p>\n",
    );
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
