//! A VM's life and its virtual topology, in words.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use topology::words::{count, named};
use topology::{Bytes, NodeSet};
use vm::NodeSize;
use vm::backend::BackendKind;
use vm::history::{Chapter, Life, LifeEvent, UnixSeconds};
use vm::life::State;

/// A moment in local time, `2026-11-23 00:12`.
pub(crate) fn moment(at: UnixSeconds) -> String {
    let timestamp = i64::try_from(at.0).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp
        .map_or_else(|| "-".to_owned(), |time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string())
}

/// `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `2 x 4 vCPUs, 2 x 8 GiB`; nodes that differ are listed: `4 + 2 vCPUs, 8 + 4 GiB`.
pub(crate) fn nodes(sizes: &[NodeSize]) -> String {
    let vcpus: Vec<u64> = sizes.iter().map(|size| size.vcpus.len() as u64).collect();
    let memory: Vec<Bytes> = sizes.iter().map(|size| size.memory).collect();
    let total: u64 = vcpus.iter().sum();
    let of_vcpus = match times(&vcpus) {
        Some(1) => count(total as usize, "vCPU"),
        Some(nodes) => format!("{nodes} x {}", count(vcpus[0] as usize, "vCPU")),
        None => format!("{} vCPUs", joined(vcpus.iter().map(u64::to_string))),
    };
    let of_memory = match times(&memory) {
        Some(1) => memory[0].to_string(),
        Some(nodes) => format!("{nodes} x {}", memory[0]),
        None => joined(memory.iter().map(Bytes::to_string)),
    };
    format!("{of_vcpus}, {of_memory}")
}

/// How many there are of the same; `None` where they differ.
fn times<T: PartialEq>(of: &[T]) -> Option<usize> {
    of.windows(2).all(|pair| pair[0] == pair[1]).then_some(of.len()).filter(|&nodes| nodes > 0)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" + ")
}

/// What is known of a VM's migration, and what to do where that was cut short; `None` where it is
/// not on its way. `is_at_work`: whether a homenode that lives sends or receives it.
pub(crate) fn on_its_way(name: &str, life: &Life, is_at_work: impl Fn() -> bool) -> Option<String> {
    let resolve = format!("`homenode vm migrate {name} --resolve`");
    Some(match (life.state, &life.handed_over) {
        (State::MigratingOut, None) if is_at_work() => "It is being sent, and is here until all of it is there.".into(),
        (State::MigratingOut, Some(to)) if is_at_work() => {
            format!("It is being handed over to {}: which side runs it is settled just now.", to.to)
        }
        (State::MigratingOut, None) => {
            format!("Its migration was cut short. It was not handed over, so it is here; {resolve} lets it go on.")
        }
        (State::MigratingOut, Some(to)) if life.backend.kind() == BackendKind::Libvirt => format!(
            "homenode was ended while libvirt sent it to {to}, and libvirt goes on with that. {resolve} asks both \
            where it is. If {to} is gone for good, find out whether it ran there, and add `--it-runs here` or \
            `--it-runs there`.",
            to = to.to
        ),
        (State::MigratingOut, Some(to)) => format!(
            "Its migration to {to} was cut short after it was handed over, so it stands still here, and may run on \
            {to}. {resolve} asks {to}. If {to} is gone for good, find out whether it ran there, and add \
            `--it-runs here` or `--it-runs there`.",
            to = to.to
        ),
        (State::MigratingIn, _) if is_at_work() => "It is being received, and does not run here yet.".into(),
        (State::MigratingIn, _) => format!(
            "It was being received when homenode ended here, and does not run here. Type {resolve} on the other \
            host, which settles it; if that is gone for good, type it here: then it runs here."
        ),
        _ => return None,
    })
}

/// A thing that happened, without its time.
pub(crate) fn event(chapter: &Chapter) -> String {
    match &chapter.event {
        LifeEvent::Planned => "made known".to_owned(),
        LifeEvent::Started { homes } => format!("started{}", at_home(homes)),
        LifeEvent::Paused => "paused".to_owned(),
        LifeEvent::Continued => "continued".to_owned(),
        LifeEvent::Reset => "reset".to_owned(),
        LifeEvent::Resized { vcpus, memory } => {
            format!("resized from {} vCPUs, {} to {} vCPUs, {}", vcpus.0, memory.0, vcpus.1, memory.1)
        }
        LifeEvent::Moved { client, from, to } => {
            format!("client {client} moved from {} to {}", named("node", from), named("node", to))
        }
        LifeEvent::Suspended { file, .. } => format!("suspended to {}", file.display()),
        LifeEvent::Resumed { homes } => format!("resumed{}", at_home(homes)),
        LifeEvent::Arrived { from, homes } => format!("arrived from {from}{}", at_home(homes)),
        LifeEvent::TopologyAnew => "its virtual topology was sized anew".to_owned(),
        LifeEvent::Failed { because } => format!("failed: {because}"),
        LifeEvent::Stopped => "stopped".to_owned(),
        LifeEvent::Lost { because } if because.is_empty() => "lost".to_owned(),
        LifeEvent::Lost { because } => format!("lost: {because}"),
    }
}

fn at_home(homes: &[NodeSet]) -> String {
    let on = |home: &NodeSet| named("node", home);
    match homes {
        [] => String::new(),
        [home, others @ ..] if others.iter().all(|other| other == home) => format!(" on {}", on(home)),
        homes => {
            let each = homes.iter().enumerate().map(|(client, home)| format!("{} (client {client})", on(home)));
            format!(" on {}", each.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vm::history::HandedOver;

    #[test]
    fn times_are_short() {
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(60), "1 min");
        assert_eq!(duration(3 * 3600 + 300), "3 h 5 min");
        assert_eq!(duration(2 * 86_400 + 4 * 3600), "2 d 4 h");
    }

    #[test]
    fn equal_nodes_are_counted_and_others_listed() {
        let size = |vcpus: u32, gib: u64| NodeSize {
            virtual_node: 0,
            vcpus: (0..vcpus).collect::<BTreeSet<u32>>(),
            memory: Bytes(gib << 30),
        };
        assert_eq!(nodes(&[size(4, 8), size(4, 8)]), "2 x 4 vCPUs, 2 x 8 GiB");
        assert_eq!(nodes(&[size(1, 2)]), "1 vCPU, 2 GiB");
        assert_eq!(nodes(&[size(4, 8), size(2, 8)]), "4 + 2 vCPUs, 2 x 8 GiB");
    }

    #[test]
    fn a_migration_that_was_cut_short_says_where_its_guest_is_and_what_to_type() {
        let said = |state, to: Option<&str>, at_work: bool| {
            let handed_over = to.map(|to| HandedOver { to: to.to_owned(), receipt: "7".repeat(32), placement: None });
            let life = Life { state, handed_over, ..Life::planned(Default::default(), UnixSeconds(1)) };
            on_its_way("web", &life, || at_work)
        };
        assert_eq!(said(State::Running, None, true), None);
        let stays = said(State::MigratingOut, None, false).unwrap();
        assert!(stays.contains("it is here; `homenode vm migrate web --resolve` lets it go on"), "{stays}");
        let sent = said(State::MigratingOut, Some("b"), false).unwrap();
        assert!(sent.contains("stands still here, and may run on b") && sent.contains("--it-runs there"), "{sent}");
        let comes = said(State::MigratingIn, None, false).unwrap();
        assert!(comes.contains("type it here: then it runs here"), "{comes}");
        let at_work = [said(State::MigratingOut, None, true), said(State::MigratingOut, Some("b"), true)];
        assert!(at_work.iter().flatten().all(|said| !said.contains("--resolve")), "{at_work:?}");
    }

    #[test]
    fn an_event_says_where() {
        let started = |homes: &[&str]| {
            let homes = homes.iter().map(|home| home.parse().unwrap()).collect();
            event(&Chapter { at: UnixSeconds(0), event: LifeEvent::Started { homes } })
        };
        assert_eq!(started(&["0", "2-3"]), "started on node 0 (client 0), nodes 2-3 (client 1)");
        assert_eq!(started(&["0", "0"]), "started on node 0");
    }
}
