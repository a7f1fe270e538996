//! KubeVirt's own type, read strictly, and snapshots.

use super::cases::{CASES, emitted};
use super::judges::{judge, said};
use serde_json::Value;
use stacks::emit::Kind;
use std::path::Path;
use std::process::Command;

#[test]
fn virtual_machines_of_every_shape() {
    for (name, machine, spec) in CASES {
        insta::assert_snapshot!(format!("kubevirt-{name}"), emitted(Kind::Kubevirt, machine, spec));
    }
}

/// What KubeVirt leaves out of what was asked for, or understands otherwise, as a path; nothing
/// where all is there.
fn lost(asked: &Value, understood: &Value, path: &str) -> Option<String> {
    match (asked, understood) {
        (Value::Object(asked), Value::Object(understood)) => {
            let mut members = asked.iter();
            members.find_map(|(key, value)| {
                lost(value, understood.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
            })
        }
        (Value::Array(asked), Value::Array(understood)) if asked.len() == understood.len() => {
            let mut pairs = asked.iter().zip(understood).enumerate();
            pairs.find_map(|(index, (asked, understood))| lost(asked, understood, &format!("{path}[{index}]")))
        }
        _ => (asked != understood).then(|| format!("{path}: {asked} became {understood}")),
    }
}

/// One test, since the judge takes a while to make.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn kubevirt_s_own_type_understands_them_and_refuses_what_is_wrong() {
    let test = "kubevirt_s_own_type_understands_them_and_refuses_what_is_wrong";
    let Some(judge) = judge(test, "kubevirt") else { return };
    for (name, machine, spec) in CASES {
        check_understood(&judge, name, &emitted(Kind::Kubevirt, machine, spec));
    }
    // Names that YAML 1.1 takes for something else than text.
    for name in ["no", "y", "on", "null", "0x1f", "1.5", "12345", "1e3", "0b1", "true", "2001-01-01", "0o7"] {
        let text = emitted(Kind::Kubevirt, CASES[0].1, &format!("name = \"{name}\"\nvcpus = 1\nmemory = \"1 GiB\"\n"));
        let understood = check_understood(&judge, name, &text);
        assert_eq!(understood["metadata"]["name"], name.replace('.', "-"));
    }
    let right = emitted(Kind::Kubevirt, CASES[0].1, CASES[0].2);
    for (from, to) in
        [("dedicatedCpuPlacement", "dedicatedCpus"), ("sockets: 1", "sockets: one"), ("guest: 8Gi", "guest: 8 GiB")]
    {
        assert!(right.contains(from), "{from} is not in\n{right}");
        assert!(!said(&mut Command::new(&judge), &right.replace(from, to)).status.success(), "{to} was taken");
    }
}

/// What KubeVirt understood, after a look that all of the text is in it.
fn check_understood(judge: &Path, name: &str, text: &str) -> Value {
    let answer = said(&mut Command::new(judge), text);
    assert!(answer.status.success(), "{name}: {}\n{text}", String::from_utf8_lossy(&answer.stderr));
    let understood: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let asked: Value = serde_saphyr::from_str(text).expect("YAML");
    assert_eq!(lost(&asked, &understood, ""), None, "{name}:\n{text}");
    understood
}
