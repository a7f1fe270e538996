use crate::command::Section;
use crate::workload::ParameterFault;

fn fault(text: &str) -> ParameterFault {
    toml::from_str::<Section>(text).expect(text).first_fault().expect_err(text)
}

const LJ: &str = r#"
argv = ["lmp", "-in", "in.lj"]
environment = { OMP_NUM_THREADS = "{threads}" }
files = ["in.lj"]
[[figure]]
name = "speed"
unit = "{timestep}/s"
better = "more"
regex = 'Performance: .* ([0-9.]+) timesteps/s'
[[figure]]
name = "energy"
unit = "1"
better = "less"
file = "log.lammps"
regex = '^ +100 .* (-[0-9.]+) +[0-9.]+$'
[verify]
values = [{ figure = "energy", expected = -4.6, tolerance = 0.01 }]
"#;

#[test]
fn the_section_of_a_solver_can_be_used() {
    let section: Section = toml::from_str(LJ).unwrap();
    assert_eq!(section.first_fault(), Ok(()));
    assert_eq!((section.figures().len(), section.time_limit(), section.verify.values.len()), (2, 300, 1));
}

#[test]
fn a_fault_names_the_field_the_value_and_what_would_be_valid() {
    let figure = |rest: &str| format!("argv = [\"a\"]\n[[figure]]\nname = \"f\"\nunit = \"s\"\n{rest}\n");
    let problems =
        |of: &str, first: &str| format!("argv = ['a']\n{of}\n[[problem]]\n{first}\n[[problem]]\nname = 'big'");
    for (text, field, problem) in [
        (String::new(), "argv", "shell"),
        ("argv = []".to_owned(), "argv", "a program"),
        ("argv = [\"a\"]\nshell = \"a\"".to_owned(), "shell", "one of"),
        ("argv = [\"a\", \"{rank}\"]".to_owned(), "argv", "{ranks}"),
        ("argv = [\"a\", \"{memory}\"]".to_owned(), "argv", "{memory_mib}"),
        ("argv = [\"a\"]\nsize = 'small'".to_owned(), "size", "[[command.problem]]"),
        (problems("size = 'large'", "name = 'small'"), "size", "small, big"),
        (problems("", "name = 'big'"), "problem[1].name", "no other problem"),
        (problems("", "name = 'small'\nfrom_threads = 0"), "problem[0].from_threads", "from 1"),
        (problems("", "name = 'small'\nvariables = { ranks = '2' }"), "problem[0].variables", "none of threads"),
        (problems("", "name = 'small'\nvariables = { n = '2' }"), "problem[1].variables", "the same names"),
        (
            problems("", "name = 'small'\nvalues = [{ figure = 'x', expected = 1.0, tolerance = 0.1 }]"),
            "problem[0].values[0].figure",
            "wall time",
        ),
        ("argv = [\"a\"]\nthreads_per_rank = 0".to_owned(), "threads_per_rank", "from 1"),
        ("argv = [\"a\"]\nfiles = [\"x/in\", \"y/in\"]".to_owned(), "files", "last name"),
        ("argv = [\"a\"]\nfiles = [\"..\"]".to_owned(), "files", "no file"),
        ("argv = [\"a\"]\n[[phase]]\nname = \"p\"\nargv = [\"b\"]".to_owned(), "phase", "either"),
        ("[[phase]]\nname = \"p\"".to_owned(), "phase[0].argv", "shell"),
        (figure("regex = '('"), "figure[0].regex", "unclosed"),
        (figure("regex = 'a (b)'\ngroup = 2"), "figure[0].regex", "no group 2"),
        (figure(""), "figure[0].regex", "one of"),
        (figure("regex = 'a'\njson_pointer = '/a'"), "figure[0].regex", "one of"),
        (figure("json_pointer = 'a'"), "figure[0].json_pointer", "begins with /"),
        (figure("csv_column = 'a'\nrow = 0"), "figure[0].row", "from 1"),
        (figure("json_pointer = '/a'\ngroup = 1"), "figure[0].group", "regex"),
        (figure("regex = 'a'\nfile = '/etc/passwd'"), "figure[0].file", "in which the command runs"),
        (figure("regex = 'a'\nfile = '../x'"), "figure[0].file", "in which the command runs"),
        (figure("taken = 'peak_memory'"), "figure[0].unit", "MiB"),
        (figure("taken = 'wall_time'\nfile = 'x'"), "figure[0].file", "no file"),
        (figure("regex = 'a'\nphase = 'mesh'"), "figure[0].phase", "command"),
        (figure("regex = 'a'").replace("\"s\"", "\"furlong\""), "figure[0].unit", "{step}/s"),
        ("argv = [\"a\"]\n[verify]\npattern = '['".to_owned(), "verify.pattern", "unclosed"),
        (
            "argv = [\"a\"]\n[verify]\nvalues = [{ figure = \"x\", expected = 1.0, tolerance = 0.1 }]".to_owned(),
            "verify.values[0].figure",
            "wall time",
        ),
        (
            "argv = [\"a\"]\n[verify]\nvalues = [{ figure = \"wall time\", expected = 1.0, tolerance = -0.1 }]"
                .to_owned(),
            "verify.values[0].tolerance",
            "from 0",
        ),
    ] {
        let found = fault(&text);
        assert_eq!(found.field, field, "{text}: {found:?}");
        assert!(found.problem.contains(problem), "{text}: {found:?}");
    }
}

#[test]
fn an_unknown_field_is_named() {
    let error = toml::from_str::<Section>("argv = [\"a\"]\ntime_limit = 3").unwrap_err().to_string();
    assert!(error.contains("time_limit") && error.contains("time_limit_seconds"), "{error}");
}
