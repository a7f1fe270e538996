//! Where the parts of a machine stand in its picture: nodes in two rows, switches between them,
//! near the nodes that they join.

use simulator::{MachineModel, StationKind};
use std::collections::BTreeMap;
use topology::rates::Vertex;

/// x and y, in the picture's units.
pub(super) type Point = (f64, f64);

pub(super) const BOX_WIDTH: f64 = 150.0;
pub(super) const BOX_HEIGHT: f64 = 102.0;
pub(super) const SWITCH_WIDTH: f64 = 64.0;
pub(super) const SWITCH_HEIGHT: f64 = 24.0;
const MARGIN: f64 = 12.0;
const GAP: f64 = 72.0;
/// Between the rows of a machine with switches, and of one without.
const ROWS_APART_SWITCHED: f64 = 250.0;
const ROWS_APART: f64 = 110.0;
/// How far a switch is drawn from the middle towards its nodes, as a share of the way.
const TOWARDS_NODES: f64 = 0.3;

pub(super) struct Layout {
    places: BTreeMap<Vertex, Point>,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Layout {
    pub(super) fn of(model: &MachineModel) -> Self {
        let nodes: Vec<Vertex> = model.machine().nodes.iter().map(|node| Vertex::Node(node.id)).collect();
        let joins = joined(model);
        let rows = if nodes.len() > 2 { 2 } else { 1 };
        let columns = nodes.len().div_ceil(rows);
        let apart = BOX_HEIGHT + if joins.is_empty() { ROWS_APART } else { ROWS_APART_SWITCHED };
        let mut places: BTreeMap<Vertex, Point> = nodes
            .into_iter()
            .enumerate()
            .map(|(index, vertex)| {
                let x = MARGIN + BOX_WIDTH / 2.0 + (index % columns) as f64 * (BOX_WIDTH + GAP);
                (vertex, (x, MARGIN + BOX_HEIGHT / 2.0 + (index / columns) as f64 * apart))
            })
            .collect();
        let width = 2.0 * MARGIN + columns as f64 * (BOX_WIDTH + GAP) - GAP;
        let mut height = 2.0 * MARGIN + BOX_HEIGHT + (rows - 1) as f64 * apart;
        if rows == 1 && !joins.is_empty() {
            height += ROWS_APART;
        }
        let switches = switch_places(&joins, &places, height);
        places.extend(switches);
        Self { places, width, height }
    }

    pub(super) fn place(&self, vertex: &Vertex) -> Option<Point> {
        self.places.get(vertex).copied()
    }

    pub(super) fn switches(&self) -> impl Iterator<Item = (&str, Point)> {
        self.places.iter().filter_map(|(vertex, place)| match vertex {
            Vertex::Switch(name) => Some((name.as_str(), *place)),
            Vertex::Node(_) => None,
        })
    }
}

/// The nodes that each switch joins directly.
fn joined(model: &MachineModel) -> BTreeMap<Vertex, Vec<Vertex>> {
    let mut joins: BTreeMap<Vertex, Vec<Vertex>> = BTreeMap::new();
    for station in model.stations() {
        if let StationKind::Link { from: from @ Vertex::Switch(_), to } = &station.kind {
            let nodes = joins.entry(from.clone()).or_default();
            if matches!(to, Vertex::Node(_)) {
                nodes.push(to.clone());
            }
        }
    }
    joins
}

/// Under or over the middle of its nodes; switches that would lie on each other are spread in x.
fn switch_places(
    joins: &BTreeMap<Vertex, Vec<Vertex>>,
    nodes: &BTreeMap<Vertex, Point>,
    height: f64,
) -> BTreeMap<Vertex, Point> {
    let middle = height / 2.0;
    let mut places: BTreeMap<Vertex, Point> = BTreeMap::new();
    let centre = nodes.values().map(|point| point.0).sum::<f64>() / nodes.len().max(1) as f64;
    for (switch, joined) in joins {
        let points: Vec<Point> = joined.iter().filter_map(|node| nodes.get(node).copied()).collect();
        let mean = |of: fn(&Point) -> f64, none: f64| {
            if points.is_empty() { none } else { points.iter().map(of).sum::<f64>() / points.len() as f64 }
        };
        let (mut x, y) =
            (mean(|point| point.0, centre), middle + TOWARDS_NODES * (mean(|point| point.1, middle) - middle));
        let overlaps = |x: f64| {
            places
                .values()
                .any(|other| (other.0 - x).abs() < SWITCH_WIDTH + 8.0 && (other.1 - y).abs() < SWITCH_HEIGHT + 8.0)
        };
        while overlaps(x) {
            x += SWITCH_WIDTH + 8.0;
        }
        places.insert(switch.clone(), (x, y));
    }
    places
}

/// Where the load of a direction is written: outside the box where the way begins, before the
/// middle.
pub(super) fn label_position(begin: Point, end: Point) -> Point {
    let (dx, dy) = (end.0 - begin.0, end.1 - begin.1);
    let leaves = |extent: f64, half: f64| if extent.abs() > 1.0 { half / extent.abs() } else { f64::INFINITY };
    let outside = leaves(dx, BOX_WIDTH / 2.0).min(leaves(dy, BOX_HEIGHT / 2.0)).min(0.4);
    let share = outside + (0.5 - outside) * 0.45;
    (begin.0 + share * dx, begin.1 + share * dy)
}
