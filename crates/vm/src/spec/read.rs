//! From the text of a `vm.toml` to a checked [`VmSpec`].

use super::{Console, VmSpec, check};
use topology::{TomlError, TomlText};

impl VmSpec {
    /// Reads and checks a spec. `file` only names the text in errors; paths inside it are left as
    /// they are written.
    ///
    /// # Errors
    /// The first thing that makes the spec unusable, with its line.
    pub fn from_toml(text: &str, file: &str) -> Result<VmSpec, TomlError> {
        let text = TomlText::new(text, file);
        let spec: VmSpec = text.read().map_err(check::with_range)?;
        check_tables(&spec, &text)?;
        spec.check().map_err(|found| text.fault(&found.field, found.problem))?;
        Ok(spec)
    }
}

/// Refuses fields beside a choice that has none: serde leaves them out without a word.
fn check_tables(spec: &VmSpec, text: &TomlText) -> Result<(), TomlError> {
    if spec.console != Console::Terminal {
        return Ok(());
    }
    let problem = "it does not go with console.to = \"terminal\"; remove it, or write to = \"file\" with a path";
    let other = text.fields_of("console").find(|field| *field != "console.to").map(str::to_owned);
    other.map_or(Ok(()), |field| Err(text.fault(&field, problem.to_owned())))
}
