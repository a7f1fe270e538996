//! Advice as a table for people.

use crate::text::{lines, table_of, width, wrapped};
use evaluate::advise::{Advice, Candidate};
use evaluate::figure::SECONDS;
use std::fmt::Write;
use vm::VmSpec;

/// The shapes, best first, with what binds each.
pub(crate) fn view(spec: &VmSpec, advice: &Advice) -> String {
    let mut text = format!(
        "VM {}: {} vCPUs, {}, on {}; {}\nMODELLED: no figure here was measured.\n\n",
        spec.name, spec.vcpus, spec.memory, advice.machine, advice.workload
    );
    let unit = advice.candidates.first().map_or("", |candidate| candidate.quantity.unit.as_str());
    let header = [
        "",
        "Shape",
        "VMs x vCPUs",
        "Threads",
        &format!("{}, {unit}", advice.figure),
        "Of the best",
        "Remote",
        "Homes",
    ];
    let mut table = table_of(header.map(str::to_owned).to_vec(), &[0, 2, 3, 4, 5, 6]);
    for (index, candidate) in advice.candidates.iter().enumerate() {
        let equal = if index > 0 && !advice.is_told_apart(candidate) { "=" } else { "" };
        table.add_row([
            format!("{}", index + 1),
            candidate.shape.name.clone(),
            format!("{} x {}", candidate.shape.vms, candidate.shape.vcpus),
            candidate.shape.threads.to_string(),
            figure(candidate),
            format!("{equal} {:.0} %", 100.0 * candidate.relative).trim_start().to_owned(),
            candidate.remote_share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            homes(&candidate.homes),
        ]);
    }
    text.push_str(&lines(&table));
    text.push_str("\n\nWhat binds, and how to write it\n");
    for (index, candidate) in advice.candidates.iter().enumerate() {
        let same = if candidate.same_as.is_empty() {
            String::new()
        } else {
            format!(" Comes out the same: {}.", candidate.same_as.join("; "))
        };
        let reason = format!("{}. Write: {}.{same}", candidate.binds, candidate.shape.written_as);
        for (line, words) in wrapped(&reason, width() - 4).iter().enumerate() {
            let number = if line == 0 { format!("{:>2}", index + 1) } else { "  ".to_owned() };
            let _ = writeln!(text, "{number}  {words}");
        }
    }
    let _ = write!(text, "\n{}", trust(advice));
    for reason in &advice.left_out {
        let _ = writeln!(text, "Left out: {reason}");
    }
    text
}

fn figure(candidate: &Candidate) -> String {
    let digits = usize::from(candidate.quantity.unit == SECONDS);
    format!("≈ {:.digits$}", candidate.modelled)
}

/// Of many VMs the first ones.
fn homes(homes: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = homes.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if homes.len() > SHOWN { format!("{shown}; ...") } else { shown }
}

fn trust(advice: &Advice) -> String {
    let uncertainty = &advice.uncertainty;
    let text = if uncertainty.figures == 0 {
        "No published figure of this kind was held out: how wrong the model is here is not known.".to_owned()
    } else {
        format!(
            "On {} {} that it was not fitted to the model was off by {:.1} % on average and {:.0} % at worst (homenode \
            validate). Shapes marked = are closer to the best than that average: the model cannot tell them apart.",
            uncertainty.figures, uncertainty.of, uncertainty.usual_percent, uncertainty.worst_percent
        )
    };
    let seconds = advice.candidates.iter().any(|candidate| candidate.quantity.unit == SECONDS);
    // A profile's time of computing is that of the machine that it was fitted on.
    let cores = " Compare shapes on one machine, not the seconds of two: the time of computing is that of the cores \
        that the profile was fitted on.";
    let text = if seconds { text + cores } else { text };
    wrapped(&text, width()).join("\n") + "\n"
}
