//! What homenode writes is what `schema/records-2.json` says, and the schema is made of the types
//! that homenode reads.

use crate::scripted::{Script, ScriptedWorld, resolved};
#[allow(dead_code, reason = "each test program uses a part of the script")]
use evaluate::journal::Journal;
use evaluate::progress::Silent;
use evaluate::records::SCHEMA;
use evaluate::runner::Runner;
use evaluate::{estimate, records};
use serde_json::Value;
use std::sync::atomic::AtomicBool;

const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/records-2.json");

fn schema() -> Value {
    serde_json::from_str(&std::fs::read_to_string(SCHEMA_FILE).expect("the schema")).expect("the schema is JSON")
}

/// The words of JSON schema that ours uses.
const KNOWN: [&str; 19] = [
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "default",
    "oneOf",
    "anyOf",
    "const",
    "enum",
    "type",
    "format",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
];

/// Why `value` is not what `schema` says; `all` is the whole schema.
fn fault(all: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    for word in schema.as_object()?.keys() {
        let known = KNOWN.contains(&word.as_str()) || ["minimum", "maximum"].contains(&word.as_str());
        assert!(known, "the schema uses {word}, which this test does not know");
    }
    if let Some(name) = schema["$ref"].as_str() {
        let definition = all.pointer(name.trim_start_matches('#')).expect("a definition");
        if let Some(fault) = fault(all, definition, value, at) {
            return Some(fault);
        }
    }
    for (word, most) in [("oneOf", 1), ("anyOf", usize::MAX)] {
        let Some(choices) = schema[word].as_array() else { continue };
        let faults: Vec<String> = choices.iter().filter_map(|choice| fault(all, choice, value, at)).collect();
        let fitting = choices.len() - faults.len();
        if fitting == 0 || fitting > most {
            return Some(format!("{at}: {fitting} alternatives fit: {}", faults.join("; ")));
        }
    }
    if schema.get("const").is_some_and(|constant| constant != value) {
        return Some(format!("{at}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        return Some(format!("{at}: {value} is not one of {}", schema["enum"]));
    }
    wrong_type(schema, value, at)
        .or_else(|| wrong_number(schema, value, at))
        .or_else(|| wrong_members(all, schema, value, at))
}

fn wrong_type(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        name => is(name.as_str().expect("a type is a string")),
    };
    (!fits).then(|| format!("{at}: {value} is not of type {}", schema["type"]))
}

fn wrong_number(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let number = value.as_f64()?;
    let low = schema["minimum"].as_f64().is_some_and(|least| number < least);
    let high = schema["maximum"].as_f64().is_some_and(|most| number > most);
    (low || high).then(|| format!("{at}: {number} is out of range"))
}

fn wrong_members(all: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(items) = value.as_array() {
        let length = items.len() as u64;
        if schema["minItems"].as_u64().is_some_and(|least| length < least)
            || schema["maxItems"].as_u64().is_some_and(|most| length > most)
        {
            return Some(format!("{at}: {length} items"));
        }
        let of_item = |index: usize| schema["prefixItems"].get(index).or_else(|| schema.get("items"));
        let mut items = items.iter().enumerate();
        return items.find_map(|(index, item)| fault(all, of_item(index)?, item, &format!("{at}[{index}]")));
    }
    let members = value.as_object()?;
    let properties = schema.get("properties")?.as_object()?;
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(name) = missing.into_iter().find(|name| !members.contains_key(*name)) {
        return Some(format!("{at}: {name} is missing"));
    }
    members.iter().find_map(|(name, member)| match properties.get(name) {
        Some(schema) => fault(all, schema, member, &format!("{at}.{name}")),
        None => (schema["additionalProperties"] == false).then(|| format!("{at}: {name} is not in the schema")),
    })
}

fn lines_of(experiment: &str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("records.jsonl");
    let resolved = resolved(experiment);
    let mut world = ScriptedWorld::new(Script::default());
    let mut journal = Journal::open(&path).expect("a journal");
    let at = "2026-01-01T00:00:00Z".to_owned();
    let session = records::Record::Session { homenode: "0.1.0".to_owned(), at: at.clone(), resumed: false };
    journal.append(session).expect("written");
    let cancelled = AtomicBool::new(false);
    let visits = estimate::visits(&resolved);
    Runner::new(&resolved, &mut world, &mut journal, &mut Silent, &cancelled, 1).run(&visits).expect("it runs");
    journal.append(records::Record::End { at, why: "complete".to_owned() }).expect("written");
    std::fs::read_to_string(path).expect("text").lines().map(str::to_owned).collect()
}

const STREAM: &str = "name = \"s\"\ntitle = \"S\"\nworkload = \"stream\"\nthreads = [1, 2]\nrepetitions = 2\n\
    [[configuration]]\nname = \"native\"\nruns = \"native\"\n[[configuration]]\nname = \"vms\"\nruns = \"vms\"\nvms = \
    2\n";
const MATRIX: &str = "name = \"m\"\ntitle = \"M\"\nworkload = \"numa_matrix\"\nrepetitions = 2\n\
    [[configuration]]\nname = \"native\"\nruns = \"native\"\n";

/// The file is what the types say: `HOMENODE_WRITE_SCHEMA=1 cargo test -p evaluate schema` writes
/// it anew.
#[test]
fn the_schema_is_that_of_the_types() {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(records::Line)).expect("JSON") + "\n";
    if std::env::var_os("HOMENODE_WRITE_SCHEMA").is_some() {
        std::fs::write(SCHEMA_FILE, &schema).expect("the file is written");
    }
    assert_eq!(schema, std::fs::read_to_string(SCHEMA_FILE).expect("the schema"));
}

#[test]
fn every_line_is_as_the_schema_says() {
    let schema = schema();
    let mut kinds = std::collections::BTreeSet::new();
    for line in [STREAM, MATRIX].into_iter().flat_map(lines_of) {
        let value: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(fault(&schema, &schema, &value, "line"), None, "{line}");
        assert_eq!(value["schema"], SCHEMA);
        let read: records::Line = serde_json::from_str(&line).expect("what is written can be read");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), value);
        kinds.insert(value["record"].to_string());
    }
    assert_eq!(
        kinds.len(),
        schema["oneOf"].as_array().expect("alternatives").len(),
        "every kind was written: {kinds:?}"
    );
}

#[test]
fn the_check_finds_what_is_wrong() {
    let schema = schema();
    for (from, to) in
        [("\"threads\":1", "\"threads\":\"1\""), ("\"round\":", "\"runde\":"), ("\"schema\":2", "\"schema\":1")]
    {
        let lines = lines_of(STREAM);
        let line =
            lines.iter().find(|line| line.contains("\"record\":\"visit\"") && line.contains(from)).expect("a visit");
        let value: Value = serde_json::from_str(&line.replace(from, to)).expect("JSON");
        assert!(fault(&schema, &schema, &value, "line").is_some(), "{value}");
    }
}
