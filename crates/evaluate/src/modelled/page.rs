//! The report of a modelled experiment: one file that opens from disk. Nothing in it can be taken
//! for a measurement.

use super::Prediction;
use crate::charts::{self, Chart};
use crate::evaluation::Evaluation;
use crate::experiment::Experiment;
use crate::report::{self, escape};
use crate::tables::Table;
use std::fmt::Write;

/// The page. `pictures` are drawings of the machine with their headings (SVG), `again` is the
/// command that gives the same figures again.
pub fn html(
    experiment: &Experiment,
    prediction: &Prediction,
    tables: &[Table],
    pictures: &[(String, String)],
    again: &str,
) -> String {
    let shows_seconds = experiment.application.as_ref().is_none_or(|section| section.shows_seconds);
    let mut charts: Vec<Chart> = charts::all(&Evaluation::modelled(experiment, prediction));
    charts.retain(|_| shows_seconds);
    let title = format!("MODELLED: {}", prediction.title);
    let mut page = report::head(&title, !charts.is_empty());
    let mut machines: Vec<&str> = prediction.configurations.iter().map(|one| one.machine.as_str()).collect();
    machines.dedup();
    let _ = writeln!(
        page,
        "<h1>{}</h1>\n<p class=\"about\">{} &middot; homenode {}</p>",
        escape(&title),
        escape(&machines.join(", ")),
        escape(&prediction.homenode)
    );
    for note in &prediction.notes {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escape(note));
    }
    let legend = "Modelled: open squares, dotted lines. Published: open grey diamonds, dashed lines. Measured, where there is any: filled marks, solid lines.";
    report::section_charts(&mut page, &charts, legend);
    section_pictures(&mut page, pictures);
    page.push_str("<h2>Tables</h2>\n");
    for table in tables {
        report::push_table(&mut page, table);
    }
    let facts = [
        ("Solver", prediction.solver.clone()),
        ("Cross-check", prediction.cross_check_solver.clone()),
        ("Seed", prediction.seed.to_string()),
        ("homenode", prediction.homenode.clone()),
        ("Commit", prediction.commit.clone().unwrap_or_else(|| "not recorded".to_owned())),
    ];
    page.push_str("<h2>Model</h2>\n<div class=\"scroll\"><table><tbody>\n");
    for (name, value) in facts {
        let _ = writeln!(page, "<tr><td>{name}</td><td style=\"text-align:left\">{}</td></tr>", escape(&value));
    }
    let _ = write!(
        page,
        "</tbody></table></div>\n<p class=\"note\">Machines with the source of each value: machines.json. Every figure, with its cross-check: predictions.json.</p>\n\
         <h2>Run it again</h2>\n<pre>{}</pre>\n</body></html>\n",
        escape(again)
    );
    page
}

/// The machine under each configuration; the first is open.
fn section_pictures(page: &mut String, pictures: &[(String, String)]) {
    if pictures.is_empty() {
        return;
    }
    page.push_str("<h2>The machine under load</h2>\n<p class=\"note\">Modelled: the share of its capacity that each controller, link and cache port uses.</p>\n");
    for (index, (heading, svg)) in pictures.iter().enumerate() {
        let open = if index == 0 { " open" } else { "" };
        let _ = writeln!(
            page,
            "<details{open}><summary>{}</summary>\n<div class=\"scroll\">{svg}</div></details>",
            escape(heading)
        );
    }
}
