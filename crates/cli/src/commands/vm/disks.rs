//! Disks of a VM that is to go on later or elsewhere.

use crate::failure::bad_input;
use std::io::ErrorKind;
use vm::VmSpec;

/// Refuses a VM whose disks would not be there when it goes on. `because`: why one that throws its
/// writes away cannot be.
///
/// # Errors
/// Which disk, and why.
pub(super) fn check(spec: &VmSpec, because: &str) -> anyhow::Result<()> {
    for (index, disk) in spec.disks.iter().enumerate() {
        let field = format!("VM {}: disk[{index}]", spec.name);
        if disk.snapshot {
            return Err(bad_input(format!("{field}.snapshot = true: {because}")));
        }
        // What only libvirt may see counts as there.
        if disk.path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Err(bad_input(format!(
                "{field}.path = {}: it is not there any more. QEMU still has it open, and could not open it again: \
                put it back first",
                disk.path.display()
            )));
        }
    }
    Ok(())
}
