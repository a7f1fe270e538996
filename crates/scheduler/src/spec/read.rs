//! From the text of a `vm.toml` to a checked [`VmSpec`].

use super::{VmSpec, check};
use topology::{TomlError, TomlText};

impl VmSpec {
    /// Reads and checks a spec. `file` only names the text in errors; paths inside it are left as they are written.
    ///
    /// # Errors
    /// The first thing that makes the spec unusable, with its line.
    pub fn from_toml(text: &str, file: &str) -> Result<VmSpec, TomlError> {
        let text = TomlText::new(text, file);
        let spec: VmSpec = text.read().map_err(check::with_range)?;
        check::check(&spec).map_err(|found| text.fault(&found.field, found.problem))?;
        Ok(spec)
    }
}
