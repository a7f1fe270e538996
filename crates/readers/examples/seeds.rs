//! Writes the inputs of each reader as files: what the fuzzer begins with.
//!
//! `cargo run --package readers --example seeds -- DIRECTORY`, in the repository.

use readers::READERS;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("say into which directory"));
    };
    for reader in READERS {
        let own = directory.join(reader.name);
        std::fs::create_dir_all(&own)?;
        for (name, input) in reader.inputs(&std::env::current_dir()?)? {
            std::fs::write(own.join(name), input)?;
        }
    }
    Ok(())
}
