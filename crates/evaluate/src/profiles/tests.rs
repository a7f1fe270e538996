//! Profiles as shipped, and profiles that cannot be used.

use super::*;

#[test]
fn every_file_in_profiles_is_shipped_and_reads() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let mut on_disk: Vec<String> = std::fs::read_dir(directory)
        .expect("profiles/")
        .filter_map(|entry| Some(entry.ok()?.file_name().into_string().ok()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    on_disk.sort();
    assert_eq!(on_disk, shipped_names().collect::<Vec<_>>());
    for name in shipped_names() {
        assert_eq!(find(name).expect(name).name, name);
    }
}

#[test]
fn an_error_names_file_line_field_and_what_is_valid() {
    let text = include_str!("../../../../profiles/namd-stmv.toml");
    let cases = [
        (text.replace("class = \"compute\"", "class = \"fast\""), "application.class", "bandwidth"),
        (text.replace("compute_core_s", "compute_s"), "compute_s", "compute_core_s"),
        (text.replace("value = 0.012", "value = -0.012"), "application.virtual_overhead", "from 0"),
        (text.replace("class = \"compute\"", "class = \"latency\""), "application.class", "`memory`"),
        (text.replace("value = 63758", "value = -1"), "application.messages.count", "from 0"),
        (text.replace("gb = {", "mb = {"), "mb", "gb"),
        (text.replace("source = \"calibrated\", ", ""), "application", "source"),
    ];
    for (text, field, valid) in cases {
        let error = parse(&text, "w.toml").expect_err(field).to_string();
        assert!(error.starts_with("w.toml:") && error.contains(field) && error.contains(valid), "{error}");
    }
}
