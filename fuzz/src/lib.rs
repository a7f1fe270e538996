//! What all fuzz targets have in common: each gives its input to a reader of crates/readers.

pub use libfuzzer_sys;
pub use readers;

/// A fuzz target for the reader of this name.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            static READER: std::sync::LazyLock<&$crate::readers::Reader> =
                std::sync::LazyLock::new(|| $crate::readers::reader($name).expect("a reader of this name"));
            (READER.read)(input);
        });
    };
}
