//! What is printed for a person to copy into a shell is what was meant, whatever it holds: words of
//! others, ids of their backends, names of their VMs.

use proptest::prelude::*;
use qemu::command_line::as_shell;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use topology::{Bytes, NodeSet};
use vm::qemu::{Backend, BackendKind, CommandLine, NumaNode, escape};

/// Words that mean something to a shell, to QEMU's options, or to the program as an option.
const HOSTILE: [&str; 10] =
    ["$(touch x)", "`id`", "a'b", "a\"b", "-h", "--fix", "a,b", ",,", "a=b,size=9", "line\nend; rm -rf . #"];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned),
        "[^\\x00]{0,20}",
        "[-$'\",=;`&|<>*?~! \\\\\n]{0,8}"
    ]
}

/// The words of a command as `sh` understands it.
fn understood(text: &str) -> Vec<String> {
    let said = Command::new("sh").args(["-c", text]).output().expect("sh");
    let out = String::from_utf8(said.stdout).expect("UTF-8");
    out.split_terminator('\0').map(str::to_owned).collect()
}

properties::properties! {
    #![cases(64)]

    #[test]
    fn a_shell_takes_every_word_as_it_is(words in prop::collection::vec(word(), 1..8)) {
        let arguments: Vec<String> = std::iter::once("%s\\0".to_owned()).chain(words.iter().cloned()).collect();
        prop_assert_eq!(understood(&as_shell(Path::new("printf"), &arguments)), words);
    }

    #[test]
    fn ids_and_files_of_backends_come_back_from_a_shell_and_from_qemus_options(id in word(), file in word()) {
        let kind = BackendKind::File { path: file };
        let backend = Backend {
            id: id.clone(),
            kind,
            size: Bytes::from_mib(16),
            huge_page_size: None,
            host_nodes: NodeSet::new(),
            policy: None,
            prealloc: false,
            prealloc_threads: None,
        };
        let node = NumaNode { backends: vec![id.clone()], ..NumaNode::default() };
        let words = ["%s\\0".to_owned(), "qemu".to_owned(), "-object".to_owned(), backend.option(), "-numa".to_owned(), node.option()];
        let command = CommandLine::parse(&understood(&as_shell(Path::new("printf"), &words))).expect("a command line");
        prop_assert_eq!(command.backends, [backend]);
        prop_assert_eq!(&command.nodes[&0].backends, &[id]);
    }
}

#[test]
fn a_real_qemu_takes_a_hostile_name_as_it_is() {
    let name = format!("{} {}", HOSTILE[..8].join(" "), std::process::id());
    let options =
        ["-S", "-machine", "none", "-display", "none", "-nodefaults", "-no-user-config", "-qmp", "stdio", "-name"];
    let mut arguments = options.map(str::to_owned).to_vec();
    arguments.push(format!("guest={}", escape(&name)));
    let text = as_shell(Path::new("qemu-system-x86_64"), &arguments);
    let mut shell =
        Command::new("sh").args(["-c", &text]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
    let asked = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-name\"}\n{\"execute\":\"quit\"}\n";
    // Without QEMU nobody reads.
    let _ = shell.stdin.take().expect("a pipe").write_all(asked.as_bytes());
    let said = shell.wait_with_output().expect("an end");
    if said.status.code() == Some(127) {
        eprintln!("SKIPPED a_real_qemu_takes_a_hostile_name_as_it_is: no qemu-system-x86_64 in PATH");
        return;
    }
    let out = String::from_utf8(said.stdout).expect("UTF-8");
    let answers = out.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let names: Vec<String> =
        answers.filter_map(|answer| Some(answer.get("return")?.get("name")?.as_str()?.to_owned())).collect();
    assert_eq!(names, [name], "{out}");
}
