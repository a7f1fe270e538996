//! Affinities of domains, changed through libvirt, so that `virsh vcpuinfo` and `virsh vcpupin` say
//! what is true.
//!
//! Only what runs is changed (`--live`), never the definition (`--config`): that is its owner's,
//! and the next start begins from it. Which libvirt has a VM, and that it is the VM that is looked
//! at, is proven before ([`crate::local`]); a VM of which it is not is left to the kernel.

use crate::local::{LocalLibvirt, NotItsProcess};
use crate::{Connection, LibvirtError};
use linux::host::{AffinityManager, ChosenByDefinition, Managed};
use linux::vm::RunningVm;
use scheduler::VmKey;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use topology::CpuSet;
use topology::input::excerpt;
use topology::limits::{LIBVIRT_ANSWER, LIBVIRT_REST};

/// Binds vCPUs of VMs that a libvirt of this host manages through that libvirt: the system's, or
/// this user's own.
pub fn affinity_manager() -> AffinityManager {
    affinity_manager_of(LocalLibvirt::of_this_user(), LIBVIRT_ANSWER)
}

/// As [`affinity_manager`], with these libvirts and this time for one client.
pub fn affinity_manager_of(libvirts: Vec<LocalLibvirt>, limit: Duration) -> AffinityManager {
    let silent = Mutex::new(BTreeMap::<String, Instant>::new());
    Box::new(move |vm, threads, cpus| {
        if !vm.origin.manager.is_libvirt() {
            return None;
        }
        let mut silent = silent.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match bind(&libvirts, vm, threads, cpus, limit, &mut silent) {
            Ok(None) => Ok(()),
            Ok(Some(chosen)) => Err(chosen.into()),
            Err(why) => Err(why.into()),
        })
    })
}

/// Why vCPUs were not bound through libvirt.
#[derive(Debug, thiserror::Error)]
enum NotBound {
    #[error("no libvirt that is asked says that it has this process ({})", sentence(.0))]
    Unproven(Vec<NotItsProcess>),
    #[error("its command line has no UUID, so that libvirt cannot be asked for it")]
    Unnamed,
    #[error("libvirt at {uri} says that its UUID is that of {other}")]
    OtherDomain { uri: String, other: String },
    #[error("libvirt at {0} did not answer in time within the last {rest} s", rest = LIBVIRT_REST.as_secs())]
    Silent(String),
    #[error("libvirt at {uri} gave no answer within {seconds} s")]
    Timeout { uri: String, seconds: u64 },
    #[error(
        "libvirt at {uri} does not answer: {words}; start it (systemctl start libvirtd.socket, or virtqemud.socket)"
    )]
    NoDaemon { uri: String, words: String },
    #[error(transparent)]
    Libvirt(LibvirtError),
}

fn sentence(reasons: &[NotItsProcess]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Through the libvirt that has the VM; one that gives no answer is noted in `silent`. What the
/// definition says of threads that run no vCPU stays, and is what comes back.
fn bind(
    libvirts: &[LocalLibvirt],
    vm: &RunningVm,
    threads: Managed<'_>,
    cpus: &CpuSet,
    limit: Duration,
    silent: &mut BTreeMap<String, Instant>,
) -> Result<Option<ChosenByDefinition>, NotBound> {
    let libvirt = libvirt_of(libvirts, vm)?;
    let uuid = uuid_of(vm).ok_or(NotBound::Unnamed)?;
    let uri = || libvirt.uri.clone();
    if silent.get(&libvirt.uri).is_some_and(|since| since.elapsed() < LIBVIRT_REST) {
        return Err(NotBound::Silent(uri()));
    }
    let begun = Instant::now();
    let mut failed = |error| match error {
        LibvirtError::Timeout { .. } => {
            silent.insert(uri(), Instant::now());
            NotBound::Timeout { uri: uri(), seconds: limit.as_secs() }
        }
        LibvirtError::NoDaemon { words, .. } => NotBound::NoDaemon { uri: uri(), words },
        error => NotBound::Libvirt(error),
    };
    let connection = Connection::of_this_host(&libvirt.uri).with_limit(limit);
    let answer = connection.ask(&asks_name(uuid)).map_err(&mut failed)?;
    if name_in(&answer) != vm.key.name {
        return Err(NotBound::OtherDomain { uri: uri(), other: excerpt(&answer) });
    }
    let rest = connection.with_limit(limit.saturating_sub(begun.elapsed()));
    match threads {
        Managed::Vcpus(vcpus) => pin(&rest, uuid, vcpus, cpus).map(|()| None).map_err(failed),
        others => pin_others(&rest, uuid, others, cpus).map_err(failed),
    }
}

/// The libvirt whose file holds the VM's process.
fn libvirt_of<'a>(libvirts: &'a [LocalLibvirt], vm: &RunningVm) -> Result<&'a LocalLibvirt, NotBound> {
    let mut reasons = Vec::new();
    for libvirt in libvirts {
        match libvirt.has(vm) {
            Ok(()) => return Ok(libvirt),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(NotBound::Unproven(reasons))
}

/// The UUID on its command line, where it is one: libvirt would take anything else for a name, a
/// number or an option.
fn uuid_of(vm: &RunningVm) -> Option<&str> {
    let is_one = |uuid: &&str| uuid.len() == 36 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    vm.uuid.as_deref().filter(is_one)
}

/// The second half of the proof ([`crate::local`]) is what libvirt answers to this.
fn asks_name(uuid: &str) -> [&str; 3] {
    ["domname", "--domain", uuid]
}

/// A name may begin and end with spaces.
fn name_in(answer: &str) -> &str {
    answer.trim_end_matches('\n')
}

/// CPUs of each vCPU, by its index.
pub type Pins = BTreeMap<u32, CpuSet>;

/// Where libvirt says that the vCPUs of these VMs may run; each libvirt is asked once. VMs that no
/// libvirt has that is asked, or none that answers, are left out.
pub fn pins<'a>(vms: impl IntoIterator<Item = &'a RunningVm>) -> BTreeMap<VmKey, Pins> {
    pins_of(&LocalLibvirt::of_this_user(), vms)
}

/// As [`pins`], of these libvirts.
pub fn pins_of<'a>(libvirts: &[LocalLibvirt], vms: impl IntoIterator<Item = &'a RunningVm>) -> BTreeMap<VmKey, Pins> {
    let mut by_uri = BTreeMap::<&str, Vec<(&VmKey, &str)>>::new();
    for vm in vms.into_iter().filter(|vm| vm.origin.manager.is_libvirt()) {
        if let (Ok(libvirt), Some(uuid)) = (libvirt_of(libvirts, vm), uuid_of(vm)) {
            by_uri.entry(&libvirt.uri).or_default().push((&vm.key, uuid));
        }
    }
    let mut all = BTreeMap::new();
    for (uri, domains) in by_uri {
        let asks = |(_, uuid): &(&VmKey, &str)| {
            [
                asks_name(uuid).map(str::to_owned).to_vec(),
                ["vcpupin", "--domain", uuid, "--live"].map(str::to_owned).to_vec(),
            ]
        };
        let commands: Vec<Vec<String>> = domains.iter().flat_map(asks).collect();
        let Ok(answers) = Connection::of_this_host(uri).with_limit(LIBVIRT_ANSWER).ask_all(&commands) else { continue };
        for ((vm, _), answers) in domains.into_iter().zip(answers.chunks_exact(2)) {
            if let [Ok(name), Ok(table)] = answers
                && name_in(name) == vm.name
            {
                all.insert(vm.clone(), parse_pins(table));
            }
        }
    }
    all
}

/// Lines such as ` 0      6-7`.
fn parse_pins(table: &str) -> Pins {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    table.lines().filter_map(line).collect()
}

/// All vCPUs in one run of `virsh`. The domain is named by its UUID: names are used again.
fn pin(libvirt: &Connection, uuid: &str, vcpus: &[u32], cpus: &CpuSet) -> Result<(), LibvirtError> {
    let command = |vcpu: &u32| {
        let (vcpu, cpus) = (vcpu.to_string(), cpus.to_string());
        ["vcpupin", "--domain", uuid, "--vcpu", &vcpu, "--cpulist", &cpus, "--live"].map(str::to_owned).to_vec()
    };
    let commands: Vec<Vec<String>> = vcpus.iter().map(command).collect();
    libvirt.ask_all(&commands)?.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Threads that run no vCPU, unless the definition has a pin of its own for them. Of a domain
/// without one (`transient`) the live pins are all that is known, and may be ours.
fn pin_others(
    libvirt: &Connection,
    uuid: &str,
    threads: Managed<'_>,
    cpus: &CpuSet,
) -> Result<Option<ChosenByDefinition>, LibvirtError> {
    let asks = [vec!["dominfo", "--domain", uuid], vec!["dumpxml", "--domain", uuid, "--inactive"]];
    let asks: Vec<Vec<String>> = asks.map(|words| words.into_iter().map(str::to_owned).collect()).to_vec();
    let mut answers = libvirt.ask_all(&asks)?.into_iter();
    let (about, definition) = (answers.next().transpose()?, answers.next().transpose()?);
    let is_kept = about.is_some_and(|about| is_persistent(&about));
    let chosen = definition.filter(|_| is_kept).and_then(|xml| chosen_by(&xml, threads));
    if chosen.is_some() {
        return Ok(chosen);
    }
    let cpus = cpus.to_string();
    let command = match threads {
        Managed::Iothread(number) => {
            let number = number.to_string();
            ["iothreadpin", "--domain", uuid, "--iothread", &number, "--cpulist", &cpus, "--live"]
                .map(str::to_owned)
                .to_vec()
        }
        _ => ["emulatorpin", "--domain", uuid, "--cpulist", &cpus, "--live"].map(str::to_owned).to_vec(),
    };
    libvirt.ask_all(&[command])?.into_iter().try_for_each(|answer| answer.map(drop))?;
    Ok(None)
}

/// `Persistent:     yes`.
fn is_persistent(about: &str) -> bool {
    about.lines().filter_map(|line| line.strip_prefix("Persistent:")).any(|said| said.trim() == "yes")
}

/// The pin that a definition has for these threads.
fn chosen_by(xml: &str, threads: Managed<'_>) -> Option<ChosenByDefinition> {
    let domain = stacks::domain::parse(xml, "its definition").ok()?;
    let (what, cpus) = match threads {
        Managed::Vcpus(_) => return None,
        Managed::Emulator => ("its emulator threads".to_owned(), domain.emulator_pin?),
        Managed::Iothread(number) => (format!("iothread {number}"), domain.iothread_pins.get(&number).cloned()?),
    };
    Some(ChosenByDefinition { what, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_virsh_is_read() {
        let pins = parse_pins(" 0      0,2-3\n 1      6-7\n\n");
        assert_eq!(pins, BTreeMap::from([(0, "0,2-3".parse().unwrap()), (1, "6-7".parse().unwrap())]));
        assert!(parse_pins(" VCPU   CPU Affinity\n----------------------\n").is_empty());
    }

    #[test]
    fn what_a_definition_pins_by_itself_stays() {
        let xml = "<domain type='kvm'><name>a</name><memory>4096</memory><vcpu>2</vcpu><iothreads>2</iothreads>\
            <cputune><emulatorpin cpuset='7'/><iothreadpin iothread='2' cpuset='6'/></cputune>\
            <os><type>hvm</type></os></domain>";
        let said = |threads| chosen_by(xml, threads).map(|chosen| chosen.to_string());
        let emulator = "its emulator threads may use CPUs 7: its definition says so, and they stay there";
        assert_eq!(said(Managed::Emulator).as_deref(), Some(emulator));
        assert_eq!(chosen_by(xml, Managed::Iothread(2)).map(|chosen| chosen.cpus), "6".parse().ok());
        assert_eq!((said(Managed::Iothread(1)), said(Managed::Vcpus(&[0]))), (None, None));
        assert!(is_persistent("Name: a\nPersistent:     yes\n") && !is_persistent("Persistent:     no\n"));
    }

    #[test]
    fn only_a_uuid_is_handed_to_libvirt() {
        let uuid = "5f0c3c46-7f7e-4b35-9c0e-000000000001";
        for (said, taken) in [(uuid, true), ("3", false), ("web", false), ("--help", false), (&uuid[1..], false)] {
            let vm = RunningVm { uuid: Some(said.to_owned()), ..RunningVm::default() };
            assert_eq!(uuid_of(&vm), taken.then_some(said));
        }
        assert_eq!(name_in(" a b \n"), " a b ");
    }
}
