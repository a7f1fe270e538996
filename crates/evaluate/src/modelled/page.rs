//! The report of a modelled experiment: one file that opens from disk. Nothing in it can be taken
//! for a measurement.

use super::Prediction;
use crate::answer;
use crate::charts;
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
    let evaluation = Evaluation::modelled(experiment, prediction);
    let application = experiment.application.as_ref();
    let mut machines: Vec<&str> = prediction.configurations.iter().map(|one| one.machine.as_str()).collect();
    machines.dedup();
    let about = [machines.join(", "), report::homenode(&prediction.homenode)];
    let mut page = report::head(&format!("MODELLED: {}", prediction.title), &about);
    let sentences = answer::sentences(&evaluation, application, answer::of_modelled(prediction));
    let charts = charts::all(&evaluation, application);
    report::section_answer(&mut page, &sentences, &charts, &prediction.notes, MODELLED);
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
        let _ = writeln!(page, "<tr><td>{name}</td><td class=\"words\">{}</td></tr>", escape(&value));
    }
    let _ = write!(
        page,
        "</tbody></table></div>\n<p class=\"note\">Machines with the source of each value: machines.json. Every \
        figure, with its cross-check: predictions.json.</p>\n",
    );
    report::foot(&mut page, again);
    page
}

/// What the marks of its charts mean.
const MODELLED: &str = "Modelled: open squares, dotted lines. Published: open grey diamonds, dashed lines. \
                        Measured, where there is any: filled circles, solid lines. A mouse on a mark shows its value.";

/// The machine under each configuration; the first is open.
fn section_pictures(page: &mut String, pictures: &[(String, String)]) {
    if pictures.is_empty() {
        return;
    }
    page.push_str(
        "<h2>The machine under load</h2>\n<p class=\"note\">Modelled: the share of its capacity that each \
        controller, link and cache port uses.</p>\n",
    );
    for (index, (heading, svg)) in pictures.iter().enumerate() {
        let open = if index == 0 { " open" } else { "" };
        let _ = writeln!(
            page,
            "<details{open}><summary>{}</summary>\n<figure class=\"scroll\">{svg}\n<figcaption class=\"screen\">\
             <a class=\"svg\" href=\"#\" download=\"{}.svg\">SVG</a></figcaption></figure></details>",
            escape(heading),
            charts::file_name(heading)
        );
    }
}
