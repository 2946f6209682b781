//! What machine this is, as Linux tells it in files.
//!
//! What cannot be read is left empty: a result is worth storing without it.

use std::fs;
use std::path::Path;

use crate::document::Machine;

impl Machine {
    /// This machine, of which `processors` may be used.
    #[must_use]
    pub fn this(processors: u32) -> Self {
        Self::at(Path::new("/"), processors)
    }

    fn at(root: &Path, processors: u32) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let line = |path: &str| read(path).trim().to_owned();
        Machine {
            processor: processor(&read("proc/cpuinfo")),
            processors,
            memory_bytes: memory_bytes(&read("proc/meminfo")),
            kernel: line("proc/sys/kernel/osrelease"),
            operating_system: operating_system(&read("etc/os-release")),
            clock_source: line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }
}

/// The value of the first line `key<separator>value`.
fn value<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == key).then_some(value.trim())
    })
}

/// `/proc/cpuinfo` names the model on x86, and on arm64 only its implementer and part.
fn processor(text: &str) -> String {
    if let Some(model) = value(text, "model name", ':') {
        return model.to_owned();
    }
    match (
        value(text, "CPU implementer", ':'),
        value(text, "CPU part", ':'),
    ) {
        (Some(implementer), Some(part)) => format!("implementer {implementer}, part {part}"),
        _ => String::new(),
    }
}

fn memory_bytes(text: &str) -> u64 {
    let kibibytes = value(text, "MemTotal", ':').and_then(|value| {
        let number = value.strip_suffix("kB")?.trim();
        number.parse::<u64>().ok()
    });
    kibibytes.unwrap_or(0) * 1024
}

fn operating_system(text: &str) -> String {
    value(text, "PRETTY_NAME", '=')
        .unwrap_or_default()
        .trim_matches(['"', '\''])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_tells_is_read() {
        assert_eq!(
            processor("processor\t: 0\nmodel name\t: Some Model @ 2GHz\n"),
            "Some Model @ 2GHz"
        );
        assert_eq!(
            processor("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "implementer 0x41, part 0xd0c"
        );
        assert_eq!(
            memory_bytes("MemTotal:        4000 kB\nMemFree: 1 kB\n"),
            4_096_000
        );
        assert_eq!(memory_bytes("MemTotal: much"), 0);
        assert_eq!(
            operating_system("NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n"),
            "Some Linux 1"
        );
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let machine = Machine::at(Path::new("/nowhere/at/all"), 3);
        assert_eq!(
            machine,
            Machine {
                processors: 3,
                ..Machine::default()
            }
        );
    }

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let machine = Machine::this(1);
        assert!(machine.memory_bytes > 0 && !machine.kernel.is_empty());
    }
}
