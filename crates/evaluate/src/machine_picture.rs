//! The modelled machine, drawn: nodes, last-level caches, switches and links, each with the share
//! of its capacity that a configuration uses.

mod layout;

use crate::charts::FONT;
use crate::modelled::{Load, Prediction};
use crate::results::ModelledMachine;
use layout::{BOX_HEIGHT, BOX_WIDTH, Layout, Point, SWITCH_HEIGHT, SWITCH_WIDTH};
use simulator::{MachineModel, StationKind};
use std::collections::BTreeMap;
use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text};
use topology::NodeId;
use topology::rates::Vertex;

/// Colours by load, told apart by people who see red and green alike (Okabe and Ito): a station
/// below half, below nine tenths, and full.
const LOADS: [(f64, &str, &str); 3] = [
    (0.5, "#56B4E9", "below 50 %"),
    (0.9, "#E69F00", "50 to 90 %"),
    (f64::INFINITY, "#D55E00", "90 % and more: it binds"),
];
/// Frames.
const FRAME: &str = "#808890";
/// Words.
const INK: &str = "#1d2329";
const PAPER: &str = "#ffffff";
const SWITCH: &str = "#f3f5f7";
/// Distance between the two directions of a link.
const LANE: f64 = 5.0;
const LEGEND_HEIGHT: f64 = 34.0;

/// What is drawn.
#[derive(Clone, Debug)]
pub struct MachineLoad<'a> {
    /// The machine.
    pub model: &'a MachineModel,
    /// Of each station of the model: share of time that it serves.
    pub utilisation: &'a [f64],
    /// Busy hardware threads of each node.
    pub threads: &'a BTreeMap<NodeId, f64>,
}

/// A picture of each configuration whose load is known: heading and SVG. `machines` are those of
/// the configurations.
pub fn pictures(prediction: &Prediction, machines: &[ModelledMachine]) -> Vec<(String, String)> {
    let of = |load: &Load| {
        let configuration = prediction.configurations.iter().find(|one| one.name == load.configuration)?;
        let described = machines.iter().find(|described| described.machine.name == configuration.machine)?;
        let model = MachineModel::new(&described.machine, described.rates.as_ref()?).ok()?;
        let drawn = MachineLoad { model: &model, utilisation: &load.utilisation, threads: &load.threads_by_node };
        let heading = format!(
            "{}: {} with {} threads on {}",
            load.configuration, load.figure, load.threads, configuration.machine
        );
        Some((heading, svg(&drawn)))
    };
    prediction.loads.iter().filter_map(of).collect()
}

/// The picture, as SVG: in a page, or a file of its own, which no style of a page reaches.
pub fn svg(load: &MachineLoad) -> String {
    let layout = Layout::of(load.model);
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, layout.width, layout.height + LEGEND_HEIGHT))
        .set("class", "machine")
        .set("style", format!("width:{:.0}px", layout.width))
        .set("font-family", FONT)
        .set("role", "img")
        .set(
            "aria-label",
            format!("{} with the modelled load of its controllers and links", load.model.machine().name),
        );
    let paper = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", PAPER);
    document = document.add(paper);
    for (index, station) in load.model.stations().iter().enumerate() {
        if let StationKind::Link { from, to } = &station.kind
            && let (Some(begin), Some(end)) = (layout.place(from), layout.place(to))
        {
            document = document.add(link(begin, end, load.utilisation[index], station.gb_per_s));
        }
    }
    for node in &load.model.machine().nodes {
        if let Some(place) = layout.place(&Vertex::Node(node.id)) {
            document = document.add(node_box(load, node.id, place));
        }
    }
    for (name, place) in layout.switches() {
        document = document.add(switch_box(name, place));
    }
    document.add(legend(layout.height)).to_string()
}

fn colour(utilisation: f64) -> &'static str {
    LOADS.iter().find(|(below, ..)| utilisation < *below).map_or(FRAME, |(_, colour, _)| colour)
}

fn percent(utilisation: f64) -> String {
    format!("{:.0} %", 100.0 * utilisation)
}

/// One direction: on the right of its way, labelled near its beginning, so that the two directions
/// and crossing links stay apart.
fn link(begin: Point, end: Point, utilisation: f64, gb_per_s: f64) -> Group {
    let (dx, dy) = (end.0 - begin.0, end.1 - begin.1);
    let length = dx.hypot(dy).max(1.0);
    let (across_x, across_y) = (-dy / length * LANE, dx / length * LANE);
    let line = Line::new()
        .set("x1", begin.0 + across_x)
        .set("y1", begin.1 + across_y)
        .set("x2", end.0 + across_x)
        .set("y2", end.1 + across_y)
        .set("stroke", colour(utilisation))
        .set("stroke-width", 1.5 + 5.0 * utilisation.min(1.0))
        .set("stroke-opacity", if utilisation > 0.0 { 1.0 } else { 0.35 })
        .add(title(format!("{} of {gb_per_s:.1} GB/s in this direction", percent(utilisation))));
    let mut group = Group::new().add(line);
    if utilisation >= 0.005 {
        let at = layout::label_position(begin, end);
        let middle = if dx.abs() < 1.0 { "start" } else { "middle" };
        let side = if across_x + across_y > 0.0 { 1.0 } else { -1.0 };
        let label = text(percent(utilisation), at.0 + 2.6 * across_x, at.1 + 2.6 * across_y + 3.5, 10.0)
            .set("text-anchor", if middle == "start" && side < 0.0 { "end" } else { middle });
        group = group.add(label);
    }
    group
}

fn node_box(load: &MachineLoad, node: NodeId, centre: Point) -> Group {
    let (left, top) = (centre.0 - BOX_WIDTH / 2.0, centre.1 - BOX_HEIGHT / 2.0);
    let model = load.model;
    let threads = load.threads.get(&node).copied().unwrap_or(0.0);
    let all = model.machine().usable_cpus(node).len();
    let utilisation = model.controller(node).map_or(0.0, |station| load.utilisation[station.index()]);
    let bandwidth = model.controller(node).map_or(0.0, |station| model.stations()[station.index()].gb_per_s);
    let frame = Rectangle::new()
        .set("x", left)
        .set("y", top)
        .set("width", BOX_WIDTH)
        .set("height", BOX_HEIGHT)
        .set("rx", 5)
        .set("fill", PAPER)
        .set("stroke", FRAME);
    let bar =
        |width: f64| Rectangle::new().set("x", left + 10.0).set("y", top + 58.0).set("width", width).set("height", 9.0);
    let whole = BOX_WIDTH - 20.0;
    let mut group = Group::new()
        .add(frame)
        .add(text(format!("node {node}"), left + 10.0, top + 20.0, 14.0).set("font-weight", "bold"))
        .add(text(format!("{threads:.4} of {all} threads busy").replace(".0000", ""), left + 10.0, top + 37.0, 11.0))
        .add(text(format!("memory {}", percent(utilisation)), left + 10.0, top + 53.0, 11.0))
        .add(bar(whole).set("fill", "none").set("stroke", FRAME))
        .add(bar(whole * utilisation.min(1.0)).set("fill", colour(utilisation)))
        .add(text(format!("{:.1} of {bandwidth:.1} GB/s", bandwidth * utilisation), left + 10.0, top + 81.0, 11.0));
    for (place, square) in cache_ports(load, node, left + 10.0, top + 88.0).into_iter().enumerate() {
        group = group.add(square.set("data-llc", place));
    }
    group
}

/// A square for each last-level cache of the node whose port is modelled.
fn cache_ports(load: &MachineLoad, node: NodeId, left: f64, top: f64) -> Vec<Rectangle> {
    let machine = load.model.machine();
    let mut llcs: Vec<_> =
        machine.threads.iter().filter(|thread| thread.node == node).filter_map(|thread| thread.llc).collect();
    llcs.sort_unstable();
    llcs.dedup();
    let ports = llcs.into_iter().filter_map(|llc| Some((llc, load.model.llc_port(Some(llc))?)));
    let square = |(place, (llc, station)): (usize, (topology::LlcId, simulator::StationId))| {
        let utilisation = load.utilisation[station.index()];
        Rectangle::new()
            .set("x", left + 8.2 * place as f64)
            .set("y", top)
            .set("width", 6.5)
            .set("height", 6.5)
            .set("fill", if utilisation > 0.0 { colour(utilisation) } else { "none" })
            .set("stroke", FRAME)
            .set("stroke-width", 0.6)
            .add(title(format!("port of last-level cache {llc}: {}", percent(utilisation))))
    };
    ports.enumerate().map(square).collect()
}

fn switch_box(name: &str, centre: Point) -> Group {
    let frame = Rectangle::new()
        .set("x", centre.0 - SWITCH_WIDTH / 2.0)
        .set("y", centre.1 - SWITCH_HEIGHT / 2.0)
        .set("width", SWITCH_WIDTH)
        .set("height", SWITCH_HEIGHT)
        .set("rx", SWITCH_HEIGHT / 2.0)
        .set("fill", SWITCH)
        .set("stroke", FRAME);
    Group::new().add(frame).add(text(name.to_owned(), centre.0, centre.1 + 4.0, 11.0).set("text-anchor", "middle"))
}

fn legend(top: f64) -> Group {
    let mut group = Group::new();
    let mut left = 12.0;
    for (_, colour, words) in LOADS {
        let square =
            Rectangle::new().set("x", left).set("y", top + 10.0).set("width", 12).set("height", 12).set("fill", colour);
        group = group.add(square).add(text(words.to_owned(), left + 17.0, top + 20.0, 11.0));
        left += 40.0 + 6.2 * words.len() as f64;
    }
    group
}

fn text(words: String, x: f64, y: f64, size: f64) -> Text {
    Text::new(words).set("x", x).set("y", y).set("font-size", size).set("fill", INK)
}

fn title(words: String) -> svg::node::element::Title {
    svg::node::element::Title::new(words)
}

#[cfg(test)]
mod tests;
