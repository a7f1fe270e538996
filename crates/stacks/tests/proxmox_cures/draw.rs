//! Configurations that people write, and such as nobody would.

/// Numbers that follow from one.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn often(&mut self) -> bool {
        self.below(4) > 0
    }

    fn seldom(&mut self) -> bool {
        self.below(8) == 0
    }
}

/// A configuration.
pub(super) fn conf(draw: &mut Draw) -> String {
    let mut lines = vec!["name: drawn".to_owned()];
    let (sockets, cores) = (1 + draw.below(4), 1 + draw.below(12));
    let memory = match draw.below(4) {
        0 => 16 + draw.below(20_000),
        1 => 512 * (1 + draw.below(40)),
        _ => 1024 * (1 + draw.below(40)),
    };
    lines.push(format!("sockets: {sockets}"));
    lines.push(format!("cores: {cores}"));
    lines.push(format!("memory: {}{memory}", draw.of(&["", "", "current="])));
    if draw.below(3) == 0 {
        lines.push(format!("vcpus: {}", draw.below(sockets * cores + 2)));
    }
    if draw.often() {
        lines.push(format!("numa: {}", draw.of(&["1", "1", "1", "1", "yes", "On", "true", "0", "no"])));
    }
    if draw.below(3) == 0 {
        lines.push(format!("hugepages: {}", draw.of(&["2", "1024", "any"])));
    }
    if draw.below(3) == 0 {
        let words = ["network,disk,usb,memory", "memory", "1", "0", "disk,cpu,memory", "network,disk,usb,cpu", "ram"];
        lines.push(format!("hotplug: {}", draw.of(&words)));
    }
    if draw.below(3) == 0 {
        lines
            .push(format!("affinity: {}", draw.of(&["0-3", "0-7", "0-15", "1, 3,5", "4-7,12-15", "0,2,4,6", "0-3;5"])));
    }
    if draw.often() {
        nodes(draw, &mut lines, sockets * cores, memory);
    }
    if draw.seldom() {
        lines.push("args: -device x -numa dist,src=0,dst=1,val=31 -numa dist,src=1,dst=0,val=31".to_owned());
    }
    if draw.seldom() {
        lines.push(format!("cpu: {}", draw.of(&["host", "x86-64-v2-AES"])));
    }
    if draw.seldom() {
        lines.push("virtiofs0: share".to_owned());
    }
    lines.join("\n") + "\n"
}

fn nodes(draw: &mut Draw, lines: &mut Vec<String>, vcpus: u64, memory: u64) {
    let count = 1 + draw.below(4);
    let (mut from, mut left) = (0, memory);
    for index in 0..count {
        let last = index + 1 == count;
        let end = if last && draw.often() { vcpus } else { (from + 1 + draw.below(vcpus)).min(vcpus + draw.below(2)) };
        let (first, beyond) = (if draw.seldom() { from.saturating_sub(1) } else { from }, end.max(from + 1));
        from = beyond;
        let cpus = match beyond - first {
            1 => first.to_string(),
            2 => format!("{first};{}", first + 1),
            _ => format!("{first}-{}", beyond - 1),
        };
        let part = if last && draw.often() { left } else { (memory / count).min(left) };
        left -= part.min(left);
        let mut parts = vec![format!("{}={cpus}", if draw.below(20) == 0 { "cpu" } else { "cpus" })];
        if draw.below(3) > 0 {
            parts.push(format!(
                "{}={}",
                draw.of(&["hostnodes", "hostnodes", "hostnodes", "hostnode"]),
                draw.of(&["0", "1", "0-1", "0;1", "3", "12"])
            ));
        }
        if !draw.seldom() {
            parts.push(format!("memory={part}"));
        }
        if draw.often() {
            parts.push(format!("policy={}", draw.of(&["bind", "bind", "preferred", "interleave", "strict"])));
        }
        lines.push(format!("numa{}: {}", index + u64::from(draw.seldom()), parts.join(",")));
    }
}
