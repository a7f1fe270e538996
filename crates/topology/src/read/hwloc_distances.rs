//! Tables of distances in hwloc's XML.

use super::error::ReadError;
use crate::input::excerpt;
use crate::{Distances, NodeId};
use roxmltree::Node as Element;

/// Turns what is wrong with a table into an error that names the document.
type Fail<'a> = &'a dyn Fn(String) -> ReadError;

/// The first table of latencies between NUMA nodes that is complete and plausible. `order` holds
/// the nodes as the document lists them.
pub(super) fn find(root: Element<'_, '_>, order: &[NodeId], fail: Fail<'_>) -> Result<Option<Distances>, ReadError> {
    let newer = root.children().filter(|child| child.has_tag_name("distances2") && is_latency(*child));
    let whole = |table: &Element<'_, '_>| table.attribute("nbobjs").and_then(|n| n.parse().ok()) == Some(order.len());
    let older = root.descendants().filter(|element| element.has_tag_name("distances") && order.len() > 1).filter(whole);
    let tables =
        newer.map(|table| version_2(table, order, fail)).chain(older.map(|table| version_1(table, order, fail)));
    tables.filter_map(Result::transpose).next().transpose()
}

/// Whether a table is about nodes and says latency (`HWLOC_DISTANCES_KIND_MEANS_LATENCY`), not
/// bandwidth.
fn is_latency(table: Element<'_, '_>) -> bool {
    const MEANS_LATENCY: u64 = 1 << 2;
    let kind = table.attribute("kind").and_then(|kind| kind.parse::<u64>().ok()).unwrap_or(MEANS_LATENCY);
    table.attribute("type") == Some("NUMANode") && kind & MEANS_LATENCY != 0
}

fn numbers(table: Element<'_, '_>, tag: &str, fail: Fail<'_>) -> Result<Vec<u32>, ReadError> {
    let texts = table.children().filter(|child| child.has_tag_name(tag)).filter_map(|child| child.text());
    let parse = |text: &str| {
        text.parse::<u32>().map_err(|_| fail(format!("distances2: {tag} `{}`: expected a number", excerpt(text))))
    };
    texts.flat_map(str::split_whitespace).map(parse).collect()
}

/// hwloc 2.x: `<distances2>` with os indexes and a flat list of values.
fn version_2(table: Element<'_, '_>, order: &[NodeId], fail: Fail<'_>) -> Result<Option<Distances>, ReadError> {
    let (indexes, values) = (numbers(table, "indexes", fail)?, numbers(table, "u64values", fail)?);
    if indexes.is_empty() || values.len() != indexes.len() * indexes.len() {
        let (values, nodes) = (values.len(), indexes.len());
        return Err(fail(format!("distances2: {values} values for {nodes} nodes: expected a square table")));
    }
    let rows = values.chunks(indexes.len()).map(<[u32]>::to_vec).collect();
    let table = Distances::new(indexes.into_iter().map(NodeId).collect(), rows);
    Ok(table.and_then(|table| sorted(&table, order)))
}

/// hwloc 1.x: `<distances>` with one `<latency>` a pair, relative to a base, in the order of the
/// nodes.
fn version_1(table: Element<'_, '_>, order: &[NodeId], fail: Fail<'_>) -> Result<Option<Distances>, ReadError> {
    let number =
        |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok()).filter(|n| n.is_finite() && *n > 0.0);
    let base = number(table.attribute("latency_base")).unwrap_or(1.0);
    let latency =
        |element: Element<'_, '_>| number(element.attribute("value")).map(|value| (value * base).round() as u32);
    let values: Option<Vec<u32>> =
        table.children().filter(|child| child.has_tag_name("latency")).map(latency).collect();
    let values = values.filter(|values| values.len() == order.len() * order.len());
    let values =
        values.ok_or_else(|| fail(format!("distances: expected {0} x {0} latencies, each over 0", order.len())))?;
    let rows = values.chunks(order.len()).map(<[u32]>::to_vec).collect();
    Ok(Distances::new(order.to_vec(), rows).and_then(|table| sorted(&table, order)))
}

/// The table with its nodes in rising order; `None` if it lacks one of them, or is not plausible.
fn sorted(table: &Distances, order: &[NodeId]) -> Option<Distances> {
    let mut nodes = order.to_vec();
    nodes.sort_unstable();
    let row = |&from: &NodeId| nodes.iter().map(|&to| table.get(from, to)).collect::<Option<Vec<u32>>>();
    let rows = nodes.iter().map(row).collect::<Option<Vec<_>>>()?;
    Distances::plausible(nodes, rows)
}
