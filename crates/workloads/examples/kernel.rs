//! `kernel NAME CLASS THREADS RUNS`: runs a kernel here and prints, for each run, its seconds and
//! whether it is verified. For `bench/kernels-vs-c`.

use std::sync::Arc;
use workloads::kernel::{Class, Description, KernelRun};
use workloads::{Anywhere, Placement, WorkloadError};

fn main() -> Result<(), WorkloadError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, class, threads, runs] = &arguments[..] else {
        return Err(WorkloadError::BadJob("usage: kernel NAME CLASS THREADS RUNS".into()));
    };
    let number = |text: &str| text.parse().map_err(|_| WorkloadError::BadJob(format!("`{text}` is no number")));
    let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
    let (kernel, class) = (Description::named(name)?, Class::named(class)?);
    let mut run = KernelRun::prepare(kernel, class, number(threads)?, &anywhere)?;
    for _ in 0..number(runs)? {
        let repetition = run.repeat()?;
        println!("{:.6} {} {:.0}", repetition.seconds, repetition.verified(), repetition.mop_per_second());
        for verification in &repetition.verifications {
            eprintln!("{verification:?} error {:e}", verification.error());
        }
    }
    Ok(())
}
