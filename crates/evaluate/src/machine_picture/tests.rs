use super::*;

fn model(name: &str) -> MachineModel {
    let described = topology::read::shipped_described(name).expect("shipped").expect("valid");
    MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model")
}

#[test]
fn every_station_of_every_shipped_machine_is_drawn() {
    for name in topology::read::shipped_names() {
        let model = model(name);
        let utilisation = vec![0.5; model.stations().len()];
        let picture = svg(&MachineLoad { model: &model, utilisation: &utilisation, threads: &BTreeMap::new() });
        let document = roxmltree::Document::parse(&picture).expect("well-formed XML");
        // As a file it has no page around it that would say what these are.
        assert!(!picture.contains("var(") && !picture.contains("currentColor"), "{name}: {picture}");
        let count = |tag: &str| document.descendants().filter(|element| element.has_tag_name(tag)).count();
        let links = model.stations().iter().filter(|station| matches!(station.kind, StationKind::Link { .. })).count();
        assert_eq!(count("line"), links, "{name}");
        for node in &model.machine().nodes {
            assert!(picture.contains(&format!("node {}", node.id)), "{name}");
        }
    }
}

#[test]
fn nothing_lies_on_another_or_outside() {
    for name in topology::read::shipped_names() {
        let model = model(name);
        let layout = Layout::of(&model);
        let mut boxes: Vec<(Point, f64, f64)> = model
            .machine()
            .nodes
            .iter()
            .map(|node| (layout.place(&Vertex::Node(node.id)).expect("a place"), BOX_WIDTH, BOX_HEIGHT))
            .collect();
        boxes.extend(layout.switches().map(|(_, place)| (place, SWITCH_WIDTH, SWITCH_HEIGHT)));
        for (index, &((x, y), width, height)) in boxes.iter().enumerate() {
            assert!(x >= width / 2.0 && x + width / 2.0 <= layout.width, "{name}: {x}");
            assert!(y >= height / 2.0 && y + height / 2.0 <= layout.height, "{name}: {y}");
            for &((other_x, other_y), other_width, other_height) in &boxes[..index] {
                let apart_x = (x - other_x).abs() >= f64::midpoint(width, other_width);
                let apart_y = (y - other_y).abs() >= f64::midpoint(height, other_height);
                assert!(apart_x || apart_y, "{name}: ({x}, {y}) and ({other_x}, {other_y})");
            }
        }
    }
}

#[test]
fn a_full_station_has_the_colour_of_one_that_binds() {
    assert_eq!(colour(0.0), "#56B4E9");
    assert_eq!(colour(0.7), "#E69F00");
    assert_eq!(colour(1.0), "#D55E00");
}
