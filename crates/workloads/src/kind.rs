//! A workload by its name: what experiments, agents and records use, which know no workload's type.

use crate::WorkloadError;
use crate::workload::{Host, Over, ParameterFault, Prepared, Quantity, Settled, Share, Site, Workload};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use toml::de::ValueDeserializer;
use topology::Bytes;

type Ready = Result<Box<dyn Prepared>, WorkloadError>;

/// One of the workloads.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    parameters: fn() -> Arc<dyn Parameters>,
    from_toml: fn(ValueDeserializer) -> Result<Arc<dyn Parameters>, toml::de::Error>,
    from_json: fn(Value) -> Result<Arc<dyn Parameters>, serde_json::Error>,
    prepare: fn(Value, u32, &dyn Host) -> Ready,
}

impl Kind {
    /// The one of a type.
    pub const fn of<W: Workload>() -> Self {
        Self {
            name: W::NAME,
            parameters: || Arc::new(W::default()),
            from_toml: |section| Ok(Arc::new(W::deserialize(section)?)),
            from_json: |value| Ok(Arc::new(serde_json::from_value::<W>(value)?)),
            prepare: |job, repetitions, host| {
                let job = serde_json::from_value(job).map_err(|error| WorkloadError::BadJob(error.to_string()))?;
                W::prepare(&job, repetitions, host)
            },
        }
    }

    /// The workload of a name.
    pub fn named(name: &str) -> Option<Self> {
        crate::WORKLOADS.iter().copied().find(|kind| kind.name == name)
    }

    /// The workload as it is without a section of its own.
    pub fn section(self) -> Section {
        Section { kind: self, parameters: (self.parameters)() }
    }

    /// The workload with the parameters of its section of a TOML file.
    ///
    /// # Errors
    /// A field is unknown, or not of its type.
    pub fn from_toml(self, section: ValueDeserializer) -> Result<Section, toml::de::Error> {
        Ok(Section { kind: self, parameters: (self.from_toml)(section)? })
    }

    /// A job that [`Parameters::job`] made, ready for its repetitions.
    ///
    /// # Errors
    /// It cannot be run here; the message names the field.
    pub fn prepare(self, job: Value, repetitions: u32, host: &dyn Host) -> Ready {
        (self.prepare)(job, repetitions, host)
    }
}

/// A workload with its parameters, whatever its type.
#[derive(Clone)]
pub struct Section {
    kind: Kind,
    parameters: Arc<dyn Parameters>,
}

impl Section {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The section that a workload's own type has become.
    pub fn new<W: Workload>(parameters: W) -> Self {
        Self { kind: Kind::of::<W>(), parameters: Arc::new(parameters) }
    }

    /// The parameters as the workload's own type; `None` of another workload.
    pub fn get<W: Workload>(&self) -> Option<&W> {
        self.parameters.as_any().downcast_ref()
    }

    /// [`Workload::settle`].
    ///
    /// # Errors
    /// The host cannot run it.
    pub fn settle(&self, site: &Site) -> Result<Settled<Section>, ParameterFault> {
        let Settled { parameters, about, notes } = self.parameters.settle(site)?;
        Ok(Settled { parameters: Self { kind: self.kind, parameters }, about, notes })
    }
}

impl std::ops::Deref for Section {
    type Target = dyn Parameters;
    fn deref(&self) -> &Self::Target {
        self.parameters.as_ref()
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.kind.name, self.parameters.value())
    }
}

impl PartialEq for Section {
    fn eq(&self, other: &Self) -> bool {
        let value = |section: &Self| section.parameters.value().ok();
        self.kind.name == other.kind.name && value(self) == value(other)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    workload: String,
    parameters: Value,
}

impl Serialize for Section {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parameters = self.parameters.value().map_err(S::Error::custom)?;
        Written { workload: self.kind.name.to_owned(), parameters }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { workload, parameters } = Written::deserialize(deserializer)?;
        let kind =
            Kind::named(&workload).ok_or_else(|| D::Error::custom(format!("there is no workload {workload:?}")))?;
        Ok(Self { kind, parameters: (kind.from_json)(parameters).map_err(D::Error::custom)? })
    }
}

/// What a [`Section`] can be asked, whatever its type. See [`Workload`] for each of them.
pub trait Parameters: Send + Sync {
    /// [`Workload::OVER`].
    fn over(&self) -> Over;
    /// [`Workload::check`].
    ///
    /// # Errors
    /// The first value that cannot be used.
    fn check(&self) -> Result<(), ParameterFault>;
    /// [`Workload::quantities`].
    fn quantities(&self) -> Vec<Quantity>;
    /// [`Workload::memory`].
    fn memory(&self, participants: u32) -> Bytes;
    /// [`Workload::seconds`].
    fn seconds(&self, threads: u32, emulated: bool) -> f64;
    /// [`Workload::is_time_known`].
    fn is_time_known(&self) -> bool;
    /// [`Workload::suits`].
    fn suits(&self, threads: u32) -> bool;
    /// [`Workload::patience`].
    fn patience(&self) -> u32;
    /// [`Workload::guest_needs`].
    fn guest_needs(&self) -> Vec<PathBuf>;
    /// [`Workload::input_files`].
    fn input_files(&self) -> Vec<PathBuf>;
    /// [`Workload::job`], as JSON.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    fn job(&self, share: &Share) -> Result<Value, serde_json::Error>;
    /// [`Workload::settle`], of the type that nobody knows.
    #[doc(hidden)]
    #[allow(clippy::missing_errors_doc)]
    fn settle(&self, site: &Site) -> Result<Settled<Arc<dyn Parameters>>, ParameterFault>;
    /// As JSON.
    ///
    /// # Errors
    /// They cannot be written as JSON.
    fn value(&self) -> Result<Value, serde_json::Error>;
    /// As the workload's own type.
    fn as_any(&self) -> &dyn Any;
}

impl<W: Workload> Parameters for W {
    fn over(&self) -> Over {
        W::OVER
    }
    fn check(&self) -> Result<(), ParameterFault> {
        W::check(self)
    }
    fn quantities(&self) -> Vec<Quantity> {
        W::quantities(self)
    }
    fn memory(&self, participants: u32) -> Bytes {
        W::memory(self, participants)
    }
    fn seconds(&self, threads: u32, emulated: bool) -> f64 {
        W::seconds(self, threads, emulated)
    }
    fn is_time_known(&self) -> bool {
        W::is_time_known(self)
    }
    fn suits(&self, threads: u32) -> bool {
        W::suits(self, threads)
    }
    fn patience(&self) -> u32 {
        W::patience(self)
    }
    fn guest_needs(&self) -> Vec<PathBuf> {
        W::guest_needs(self)
    }
    fn input_files(&self) -> Vec<PathBuf> {
        W::input_files(self)
    }
    fn job(&self, share: &Share) -> Result<Value, serde_json::Error> {
        serde_json::to_value(W::job(self, share))
    }
    fn settle(&self, site: &Site) -> Result<Settled<Arc<dyn Parameters>>, ParameterFault> {
        let Settled { parameters, about, notes } = W::settle(self.clone(), site)?;
        Ok(Settled { parameters: Arc::new(parameters), about, notes })
    }
    fn value(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
