//! What the balancer does with a VM that runs, beside what is found here: both name the same home,
//! and where only one of them acts it is said why.

use super::list;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{Scene, named};
use scheduler::balance::Next;

/// What the balancer does about the homes that a cure names, in words; `None` where they are where
/// the VM lives.
pub(crate) fn does(scene: &Scene<'_>) -> Option<String> {
    if scene.target.as_ref().is_ok_and(|target| target.reshaped) {
        return None;
    }
    let nexts = || scene.views.iter().filter_map(|view| Some(&view.node.home.as_ref()?.next));
    let mut left: Vec<&str> = Vec::new();
    for next in nexts() {
        if let Next::Left { because } = next
            && !left.contains(&because.as_str())
        {
            left.push(because);
        }
    }
    if !left.is_empty() {
        return Some(format!("`homenode balance` leaves it where it is: {}", left.join("; ")));
    }
    let goes = nexts().any(|next| matches!(next, Next::Goes { .. }));
    goes.then(|| "`homenode balance` does the same".to_owned())
}

/// Homes that the balancer goes for though no cure names them: nothing is wrong, and something else
/// is better.
pub(crate) fn findings(scene: &Scene<'_>, found: &[Finding]) -> Option<Finding> {
    let running = scene.running()?;
    let names_home = |finding: &Finding| {
        let aspects = &finding.cure.changes;
        aspects.contains(&Aspect::Home) || aspects.contains(&Aspect::Pins)
    };
    if found.iter().any(names_home) {
        return None;
    }
    let (mut goes, mut reasons) = (Vec::new(), Vec::new());
    for view in &scene.views {
        let Some(home) = &view.node.home else { continue };
        if let (Next::Goes { because, .. }, Some(should)) = (&home.next, &home.should) {
            goes.push(format!("{} to {}", view.called(scene.vm), named(should)));
            reasons.push(because.clone());
        }
    }
    if goes.is_empty() {
        return None;
    }
    let sentence = format!("`homenode balance` would bring {}", list(&goes));
    let because = "nothing is wrong with where it lives; the balancer also weighs what else runs on the host";
    let mut finding = Finding::new("balancer_moves", Harm::Waits, sentence, because).note().seen(reasons.join("; "));
    finding.cost = super::distances::misled(scene);
    finding.vm = Some(scene.vm.name.clone());
    finding.process = Some(running.seen.vm.pid);
    finding.cure.advice = "start `homenode balance`, where none runs".to_owned();
    Some(finding)
}
