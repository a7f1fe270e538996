//! The machine: sockets, NUMA nodes, last-level caches, cores, hardware threads, memory, distances.
//!
//! Everything here is data: ordered, immutable once read, the same for a live host, a captured
//! `/sys` tree, hwloc XML, a machine file, and a synthetic string. Reading lives in [`read`];
//! nothing else of homenode parses a machine.

mod bandwidth;
mod bytes;
mod bytes_per_second;
mod ids;
pub mod input;
mod interleaving;
mod isolation;
mod kinds;
pub mod limits;
mod machine;
pub mod rates;
pub mod read;
mod toml_text;
pub mod ways;
pub mod words;
pub mod xml;

pub use bandwidth::Bandwidths;
pub use bytes::{Bytes, BytesError};
pub use bytes_per_second::{BytesPerSecond, BytesPerSecondError};
pub use ids::{CoreId, CpuId, CpuSet, Id, IdSet, IdSetError, LlcId, NodeId, NodeSet, SocketId};
pub use isolation::Schedulable;
pub use kinds::CoreKind;
pub use machine::{Distances, HardwareThread, HugePages, Llc, Machine, MemoryKind, Node, USUAL_HUGE_PAGE};
pub use toml_text::{TomlError, TomlText};
