use super::*;
use crate::command::variables::Variables;
use crate::command::{Figure, Run, Section, Width};
use crate::workload::{Pinning, Threads};
use std::path::PathBuf;
use std::sync::Mutex;
use topology::Bytes;

/// Programs that are not run: each says what its arguments say, after a status.
struct Scripted {
    directory: tempfile::TempDir,
    ran: Mutex<Vec<String>>,
}

impl Programs for Scripted {
    fn new_directory(&self, _: Option<&str>) -> Result<PathBuf, CommandError> {
        Ok(self.directory.path().to_owned())
    }
    fn drop_caches(&self) -> Result<(), CommandError> {
        Ok(())
    }
    fn run(&self, _: &Job, program: &Program, directory: &Path, hearing: &mut Hearing) -> Result<Run, CommandError> {
        self.ran.lock().unwrap().push(program.phase.clone());
        hearing.stdout.hear(program.argv[1].as_bytes());
        if let Some(text) = program.argv.get(2) {
            std::fs::write(directory.join("log"), text).unwrap();
        }
        let used = Used { wall_seconds: 2.0, peak_memory_bytes: 5, ..Used::default() };
        Ok(Run { ended: Ended::Status(program.argv[0].parse().unwrap()), used, cpus: "0-1".to_owned() })
    }
}

fn threads() -> Threads {
    Threads { count: 2, pinning: Pinning::None, cpu_node: None, memory_node: None }
}

fn run(section: &str) -> (CommandRun, Arc<Scripted>) {
    let section: Section = toml::from_str(section).expect(section);
    section.first_fault().expect("a section that can be used");
    let scripted = Arc::new(Scripted { directory: tempfile::tempdir().unwrap(), ran: Mutex::default() });
    let job = Job::of(&section, Variables { width: Width::of(2, None).unwrap(), memory: Bytes::GIB }, threads());
    (CommandRun::prepare(job, Arc::clone(&scripted) as Arc<dyn Programs>).unwrap(), scripted)
}

const RATE: &str = "[[figure]]\nname = 'rate'\nunit = '1'\nregex = 'rate ([0-9]+)'\n";

#[test]
fn phases_run_in_order_and_figures_come_from_their_own() {
    let (mut command, scripted) = run(&format!(
        "warm_up = 1\n[[phase]]\nname = 'mesh'\nargv = ['0', 'rate 1']\n[[phase]]\nname = 'solve'\nargv = ['0', 'rate \
        {{threads}}', 'a = 7']\n{RATE}\
         [[figure]]\nname = 'mesh rate'\nunit = '1'\nphase = 'mesh'\nregex = 'rate (.*)'\n\
         [[figure]]\nname = 'a'\nunit = '1'\nfile = 'log'\nregex = 'a = (.*)'\n"
    ));
    let measured = command.repeat().unwrap();
    assert_eq!((measured.figures, measured.phases), (vec![2.0, 1.0, 7.0], vec![2.0, 2.0]));
    assert_eq!((measured.used.wall_seconds, measured.used.peak_memory_bytes), (4.0, 5));
    assert_eq!(*scripted.ran.lock().unwrap(), ["mesh", "solve", "mesh", "solve"]);
    assert_eq!((command.verdict(), command.cpus()), (Verdict::NotChecked, "0-1"));
}

#[test]
fn a_command_that_fails_says_how_and_its_last_lines() {
    let (mut command, _) = run(&format!("argv = ['3', \"reading\\nno such atom type\"]\n{RATE}"));
    let error = command.repeat().unwrap_err().to_string();
    assert_eq!(
        error,
        "phase \"command\" ended with exit status 3; its last lines:\n  | reading\n  | no such atom type"
    );
}

#[test]
fn another_exit_status_is_right_where_the_verification_says_so() {
    let (mut command, _) = run(&format!("argv = ['3', 'rate 1']\n{RATE}[verify]\nexit_status = 3\n"));
    command.repeat().unwrap();
    assert_eq!(command.verdict(), Verdict::Verified);
}

#[test]
fn one_wrong_repetition_makes_the_job_wrong() {
    let verify = "[verify]\nvalues = [{ figure = 'rate', expected = 5.0, tolerance = 0.5 }]\n";
    let (mut command, _) = run(&format!("argv = ['0', 'rate 9']\n{RATE}{verify}"));
    command.repeat().unwrap();
    command.job.programs[0].argv[1] = "rate 5".to_owned();
    command.repeat().unwrap();
    assert_eq!(command.verdict(), Verdict::Wrong("rate is 9, and must be 5 within 0.5".to_owned()));
}

#[test]
fn a_pattern_that_is_not_there_comes_with_what_was_said() {
    let (mut command, _) = run(&format!("argv = ['0', \"one\\ntwo\\nrate 5\"]\n{RATE}[verify]\npattern = '^done$'\n"));
    command.repeat().unwrap();
    let wrong = "no line of standard output matches verify.pattern = `^done$`; it said last: two | rate 5";
    assert_eq!(command.verdict(), Verdict::Wrong(wrong.to_owned()));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (mut command, _) = run("argv = ['0', '']\n[[figure]]\nname = 'a'\nunit = '1'\nfile = 'log'\nregex = 'a'\n");
    let error = command.repeat().unwrap_err().to_string();
    assert!(error.contains("cannot read log"), "{error}");
    command.job.files.push(crate::command::InputFile { from: "/no/in.lj".into(), name: "in.lj".to_owned() });
    let error = command.repeat().unwrap_err().to_string();
    assert!(error.contains("files: /no/in.lj"), "{error}");
    assert_eq!(
        command.job().figures[0],
        Figure {
            name: "a".into(),
            unit: "1".into(),
            file: Some("log".into()),
            regex: Some("a".into()),
            ..Figure::default()
        }
    );
}
