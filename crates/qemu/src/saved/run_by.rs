//! What a QEMU says of itself that another one must agree on.

use crate::QemuError;
use crate::hot_add::places;
use crate::qmp::Qmp;
use linux::process::command_line;
use serde_json::{Value, json};
use topology::Bytes;
use topology::input::shortened;
use topology::limits::MOST_OBJECTS;
use vm::VmSpec;
use vm::manifest::{MemoryBlock, RunBy};
use workloads::protocol::PORT_NAME;

/// How a CPU model begins that is the host's own.
const OF_HOST: &str = "host";

/// Asks QEMU, and looks at its command line.
pub(crate) fn run_by(qmp: &mut Qmp, pid: u32, spec: &VmSpec, hardware: bool) -> Result<RunBy, QemuError> {
    let words = command_line(pid).map_err(QemuError::host(qmp.vm()))?;
    let option = words.windows(2).find(|pair| pair[0] == "-cpu");
    let cpu_model = option.map(|pair| pair[1].clone()).unwrap_or_default();
    let (disk_sizes, flash_sizes) = image_sizes(qmp, spec)?;
    Ok(RunBy {
        qemu: qmp.version().to_owned(),
        machine: machine_type(qmp)?,
        host_cpu: cpu_model.starts_with(OF_HOST).then(host_cpu),
        cpu_model,
        hardware,
        memory: blocks(qmp)?,
        places: places(qmp)?,
        disk_sizes,
        flash_sizes,
        agent: words.iter().any(|word| word.starts_with("virtserialport,") && word.contains(PORT_NAME)),
    })
}

/// `pc-q35-7.2`: what `q35` means to this QEMU.
fn machine_type(qmp: &mut Qmp) -> Result<String, QemuError> {
    let answer = qmp.execute("qom-get", &json!({ "path": "/machine", "property": "type" }))?;
    let name = answer.as_str().and_then(|name| name.strip_suffix("-machine"));
    name.map(str::to_owned).ok_or_else(|| strange(qmp, "qom-get", &answer))
}

fn blocks(qmp: &mut Qmp) -> Result<Vec<MemoryBlock>, QemuError> {
    let answer = qmp.execute("query-memdev", &json!({}))?;
    let block =
        |one: &Value| Some(MemoryBlock { id: one["id"].as_str()?.to_owned(), size: Bytes(one["size"].as_u64()?) });
    let blocks = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(blocks.iter().take(MOST_OBJECTS).filter_map(block).collect())
}

/// Sizes of the spec's disks, and of the firmware's flash, as the guest sees them.
fn image_sizes(qmp: &mut Qmp, spec: &VmSpec) -> Result<(Vec<Bytes>, Vec<Bytes>), QemuError> {
    let answer = qmp.execute("query-block", &json!({}))?;
    let devices = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let size = |name: String| {
        let device = devices.iter().find(|device| device["device"] == name)?;
        device["inserted"]["image"]["virtual-size"].as_u64().map(Bytes)
    };
    let disks = (0..spec.disks.len()).map(|index| size(format!("disk{index}")));
    let disks: Option<Vec<Bytes>> = disks.collect();
    // QEMU's own names for the code and the variables.
    let flash = (0..2).map_while(|unit| size(format!("pflash{unit}"))).collect();
    Ok((disks.ok_or_else(|| strange(qmp, "query-block", &answer))?, flash))
}

fn strange(qmp: &Qmp, command: &str, answer: &Value) -> QemuError {
    let message = format!("its answer is not understood: {}", shortened(&answer.to_string()));
    QemuError::Refused { vm: qmp.vm().to_owned(), command: command.to_owned(), message }
}

/// The host's CPU by its name.
pub fn host_cpu() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}
