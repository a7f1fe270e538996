//! What two homenodes say to each other about a VM on its way, seen and held up line by line: a
//! script that stands for ssh.

use super::write_script;
use std::path::{Path, PathBuf};

/// A directory with what was said, and with words that wait.
pub(crate) struct Taps(PathBuf);

impl Taps {
    /// In a directory that is there.
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Makes the script that reaches `program` with this runtime directory.
    pub(crate) fn write_script(&self, script: &Path, program: &str, runtime: &Path) {
        let (place, runtime) = (self.0.display(), runtime.display());
        // As ssh does, it ends when the program ends, whatever the other side does.
        let text = format!(
            r#"shift; set -- $1; shift
export HOMENODE_RUNTIME_DIR={runtime}
[ "$*" = "vm receive" ] || exec {program} "$@"
tap() {{
    while IFS= read -r line; do
        word=${{line#"{{"}}; word=${{word#\"}}; word=${{word%%\"*}}
        echo "$word" >>{place}/said
        while [ -e {place}/hold-$word ]; do sleep 0.01; done
        printf '%s\n' "$line"
    done
}}
mkfifo {place}/in.$$ {place}/out.$$
exec 3<&0
{program} "$@" <{place}/in.$$ >{place}/out.$$ & homenode=$!
tap <&3 >{place}/in.$$ & there=$!
tap <{place}/out.$$ & back=$!
echo $$ $there $back >{place}/link
exec >/dev/null 3<&-
wait $homenode
kill $there 2>/dev/null
wait $back
rm -f {place}/in.$$ {place}/out.$$"#
        );
        write_script(script, &text);
    }

    /// Before a migration: nothing was said.
    pub(crate) fn clear(&self) {
        for name in ["said", "link"] {
            // They may not be there.
            let _ = std::fs::remove_file(self.0.join(name));
        }
    }

    /// The words so far, in the order in which they were said.
    pub(crate) fn said(&self) -> Vec<String> {
        let said = std::fs::read_to_string(self.0.join("said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }

    /// A word waits from now on until the value is dropped.
    pub(crate) fn hold(&self, word: &str) -> Hold {
        let path = self.0.join(format!("hold-{word}"));
        std::fs::write(&path, "").expect("a file");
        Hold(path)
    }

    /// The processes that are the connection now.
    pub(crate) fn link(&self) -> Vec<u32> {
        let pids = std::fs::read_to_string(self.0.join("link")).unwrap_or_default();
        pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// A word that waits.
pub(crate) struct Hold(PathBuf);

impl Drop for Hold {
    fn drop(&mut self) {
        // It is ours.
        let _ = std::fs::remove_file(&self.0);
    }
}
