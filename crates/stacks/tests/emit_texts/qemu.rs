//! The shell text that starts QEMU. That its loop brings threads home is seen on a real QEMU.

use super::cases::{Case, all, devices, emulation, kernel, synthetic, with_line_ends};
use stacks::emit::Kind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use vm::TcgThreads;

#[test]
fn shapes() {
    for (name, case) in all() {
        insta::assert_snapshot!(format!("qemu-{name}"), case.text(Kind::Qemu).expect("a text"));
    }
    insta::assert_snapshot!("qemu-devices", devices().text(Kind::Qemu).expect("a text"));
}

/// The words that `sh` makes of the text, with a `taskset` of our own that prints them.
fn words(text: &str) -> Vec<String> {
    let script = format!("taskset() {{ printf '%s\\0' \"$@\"; }}\n{text}");
    let output: Output = Command::new("sh").arg("-c").arg(script).output().expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn a_shell_takes_odd_names_as_they_are() {
    let words_of = |case: &Case| words(&case.text(Kind::Qemu).expect("a text"));
    let value = |words: &[String], option: &str| {
        let at = words.iter().position(|word| word == option).expect("the option");
        words[at + 1].clone()
    };
    let devices = words_of(&devices());
    assert_eq!(value(&devices, "-drive"), "if=none,id=disk0,file=/images/100 % odd & 'it'.qcow2,format=qcow2");
    assert_eq!(value(&devices, "-chardev"), "stdio,id=console,signal=on,logfile=/var/log/it's web.log,logappend=on");
    let kernel = words_of(&kernel());
    assert_eq!(value(&kernel, "-kernel"), "/boot/my kernel");
    assert_eq!(value(&kernel, "-initrd"), "/boot/i,1");
    assert_eq!(value(&kernel, "-append"), "console=ttyS0 root=/dev/vda \"x y\" 'it' $HOME `id` 50%");
    assert_eq!(kernel[..3], ["-c", "0-3,8-11", "qemu-system-x86_64"]);
}

#[test]
fn a_line_s_end_is_refused_with_its_field() {
    for (field, case) in with_line_ends() {
        let refused = case.text(Kind::Qemu).expect_err("a refusal");
        assert!(refused.starts_with(&format!("{field} = ")) && !refused.contains('\n'), "{refused}");
    }
}

#[test]
fn one_thread_for_all_vcpus_is_not_looked_for() {
    let mut case = all().swap_remove(1).1;
    case.accelerator = emulation(TcgThreads::Single);
    let text = case.text(Kind::Qemu).expect("a text");
    assert!(!text.contains("bind_vcpus") && text.contains("one thread runs all vCPUs"), "{text}");
    assert!(text.contains("NO HARDWARE VIRTUALIZATION"), "{text}");
}

/// A shell and all that it started; they end with the value.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        // The group is its own: `process_group(0)`.
        let _ = Command::new("sh").arg("-c").arg(format!("kill -9 -{}", self.0.id())).status();
        let _ = self.0.wait();
    }
}

/// The number of the process whose arguments hold `argument`, and whose threads have names that
/// begin with `CPU `.
fn process_with(argument: &str) -> Option<String> {
    let is_it = |path: &Path| {
        let arguments = std::fs::read(path.join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()) && !vcpus(path).is_empty()
    };
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let found = processes.filter(|path| path.join("cmdline").exists()).find(|path| is_it(path))?;
    Some(found.display().to_string())
}

/// Name and `Cpus_allowed_list` of each vCPU's thread, by name.
fn vcpus(process: &Path) -> Vec<(String, String)> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(String, String)> = threads
        .map(|thread| (read(&thread.join("comm")).trim().to_owned(), cpus_allowed(&read(&thread.join("status")))))
        .filter(|(name, _)| name.starts_with("CPU "))
        .collect();
    found.sort();
    found
}

fn cpus_allowed(status: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

fn lacks(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("SKIPPED {test}: no {program} in PATH");
    }
    !found
}

#[test]
fn the_text_brings_each_client_s_vcpus_to_its_own_cpus() {
    let test = "the_text_brings_each_client_s_vcpus_to_its_own_cpus";
    let own = cpus_allowed(&std::fs::read_to_string("/proc/self/status").expect("/proc"));
    let own: topology::CpuSet = own.parse().expect("a set");
    let (Some(first), Some(last)) = (own.iter().next(), own.iter().last()) else { panic!("no CPU") };
    if lacks(test, "qemu-system-x86_64") || lacks(test, "taskset") {
        return;
    }
    if first == last {
        return eprintln!("SKIPPED {test}: only one CPU may be used here");
    }
    // Two nodes of a machine that is not here: homes of one CPU each, and no memory policy, which
    // this host may not have.
    let name = format!("emit.qemu-{}", std::process::id());
    let spec = format!(
        "name = \"{name}\"\nvcpus = 3\nmemory = \"66 MiB\"\nboot.from = \"disk\"\n[policy]\nmemory = \
        \"default\"\nvirtual_nodes = [{{ vcpus = 2, memory = \"44 MiB\" }}, \
        {{ vcpus = 1, memory = \"22 MiB\" }}]\n[[disk]]\npath = \"/dev/null\"\nformat = \"raw\"\nread_only = true\n"
    );
    let mut case = Case::new(synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1"), &spec);
    case.accelerator = emulation(TcgThreads::Multi);
    case.spec.disks.clear();
    let [one, two] = case.plan.placement.clients.as_mut_slice() else { panic!("two clients") };
    (one.cpus, two.cpus) = ([first].into_iter().collect(), [last].into_iter().collect());
    let text = case.text(Kind::Qemu).expect("a text");
    let mut command = Command::new("sh");
    command.args(["-c", &text]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
    let shell = Shell(command.spawn().expect("sh"));
    let wanted = [("CPU 0/TCG", first), ("CPU 1/TCG", first), ("CPU 2/TCG", last)];
    let wanted = wanted.map(|(name, cpu)| (name.to_owned(), cpu.to_string()));
    let argument = format!("{name},debug-threads=on");
    let deadline = Instant::now() + Duration::from_secs(120);
    let seen = loop {
        let seen = process_with(&argument).map(|process| vcpus(Path::new(&process))).unwrap_or_default();
        if seen == wanted || Instant::now() > deadline {
            break seen;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(seen, wanted, "{text}");
    drop(shell);
    let gone = || process_with(&argument).is_none();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(gone(), "a stray QEMU");
}
