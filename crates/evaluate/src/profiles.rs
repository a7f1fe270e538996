//! Workload profiles: reading a file of `profiles/`, and those that come with homenode.

use simulator::workload::{Application, Class, WorkloadProfile};
use std::path::Path;
use topology::rates::Sourced;
use topology::{TomlError, TomlText};

macro_rules! profile_files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every file in `profiles/`.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),*];
    };
}

profile_files!(
    "applu",
    "apsi",
    "art",
    "equake",
    "fma3d",
    "lammps",
    "lu",
    "milc",
    "namd-stmv",
    "pop2",
    "stream-gcc-o2-nehalem",
    "stream-ordinary",
    "stream-streaming",
    "swim",
    "wupwise",
);

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is neither a shipped name nor a file.
    #[error("{name}: there is no workload profile of this name: write one of {known}, or a file that ends in .toml")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that would be valid.
        known: String,
    },
    /// The file cannot be read.
    #[error("{file}: cannot read the workload profile: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, has an unknown field, or a value that cannot be used.
    #[error(transparent)]
    Toml(#[from] TomlError),
}

/// Names of the profiles that come with homenode, in order.
pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The profile of this name that comes with homenode, or, where the name ends in `.toml`, of this
/// file.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn find(name: &str) -> Result<WorkloadProfile, ProfileError> {
    if let Some(&(name, text)) = FILES.iter().find(|&&(known, _)| known == name) {
        return Ok(parse(text, name)?);
    }
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        let known = shipped_names().collect::<Vec<_>>().join(", ");
        return Err(ProfileError::Unknown { name: name.to_owned(), known });
    }
    let text = topology::input::text(name, topology::input::LONGEST_TEXT)
        .map_err(|source| ProfileError::Read { file: name.to_owned(), source })?;
    Ok(parse(&text, name)?)
}

/// Reads and checks a profile; `file` names it in errors.
///
/// # Errors
/// The first thing that makes it unusable, with its line.
pub fn parse(text: &str, file: &str) -> Result<WorkloadProfile, TomlError> {
    let text = TomlText::new(text, file);
    let profile: WorkloadProfile = text.read()?;
    match first_fault(&profile) {
        None => Ok(profile),
        Some((field, problem)) => Err(text.fault(&field, problem)),
    }
}

type Fault = Option<(String, String)>;

fn first_fault(profile: &WorkloadProfile) -> Fault {
    match (&profile.application, profile.kernels.is_empty()) {
        (Some(_), false) => {
            return Some((
                "application".to_owned(),
                "expected either [[kernel]] or [application], not both".to_owned(),
            ));
        }
        (None, true) => {
            return Some(("name".to_owned(), "expected at least one [[kernel]], or [application]".to_owned()));
        }
        (Some(application), true) => return application_fault(application),
        (None, false) => {}
    }
    profile.kernels.iter().enumerate().find_map(|(index, kernel)| {
        let field = |name: &str| format!("kernel[{index}].{name}");
        lines_in_flight(field("lines_in_flight"), &kernel.lines_in_flight)
            .or_else(|| from_zero(field("core_ns_per_line"), &kernel.core_ns_per_line))
            .or_else(|| share(field("write_share"), &kernel.write_share))
            .or_else(|| above_zero(field("counted_bytes_per_line"), &kernel.counted_bytes_per_line))
    })
}

fn application_fault(application: &Application) -> Fault {
    let field = |name: &str| format!("application.{name}");
    let parts = [
        ("serial_s", &application.serial_s),
        ("compute_core_s", &application.compute_core_s),
        ("virtual_overhead", &application.virtual_overhead),
    ];
    let negative = parts.into_iter().find_map(|(name, part)| from_zero(field(name), part.as_ref()?));
    let missing = match application.class {
        Class::Compute if application.compute_core_s.is_none() => Some("compute_core_s"),
        Class::Serial if application.serial_s.is_none() => Some("serial_s"),
        Class::Compute => None,
        _ if application.memory.is_none() => Some("memory"),
        _ => None,
    };
    negative
        .or_else(|| missing.map(|name| (field("class"), format!("an application of this class needs `{name}`"))))
        .or_else(|| memory_fault(application))
        .or_else(|| message_fault(application))
}

fn memory_fault(application: &Application) -> Fault {
    let memory = application.memory.as_ref()?;
    let field = |name: &str| format!("application.memory.{name}");
    let of_class = |lines: f64| match application.class {
        Class::Latency if lines != 1.0 => Some("expected 1: each miss waits for the one before".to_owned()),
        Class::Bandwidth | Class::Serial if memory.core_ns_per_line.value != 0.0 => {
            Some("with this class the core needs no time for a line: expected core_ns_per_line = 0".to_owned())
        }
        _ => None,
    };
    above_zero(field("lines"), &memory.lines)
        .or_else(|| lines_in_flight(field("lines_in_flight"), &memory.lines_in_flight))
        .or_else(|| from_zero(field("core_ns_per_line"), &memory.core_ns_per_line))
        .or_else(|| share(field("write_share"), &memory.write_share))
        .or_else(|| of_class(memory.lines_in_flight.value).map(|problem| (field("lines_in_flight"), problem)))
}

fn message_fault(application: &Application) -> Fault {
    let messages = application.messages.as_ref()?;
    let field = |name: &str| format!("application.messages.{name}");
    if messages.at_processes == 0 {
        return Some((field("at_processes"), "expected a whole number from 1".to_owned()));
    }
    from_zero(field("exponent"), &messages.exponent)
        .or_else(|| from_zero(field("count"), &messages.count))
        .or_else(|| from_zero(field("gb"), &messages.gb))
}

fn above_zero(field: String, value: &Sourced<f64>) -> Fault {
    (!(value.value > 0.0 && value.value.is_finite())).then(|| (field, "expected a number above 0".to_owned()))
}

fn from_zero(field: String, value: &Sourced<f64>) -> Fault {
    (!(value.value >= 0.0 && value.value.is_finite())).then(|| (field, "expected a number from 0".to_owned()))
}

fn share(field: String, value: &Sourced<f64>) -> Fault {
    (!(0.0..=1.0).contains(&value.value)).then(|| (field, "expected a share from 0 to 1".to_owned()))
}

fn lines_in_flight(field: String, value: &Sourced<f64>) -> Fault {
    (!(value.value >= 1.0 && value.value.is_finite())).then(|| (field, "expected a number from 1".to_owned()))
}

#[cfg(test)]
mod tests;
