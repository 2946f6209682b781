//! Every input that is kept runs through its target, and some that are made up anew.

use std::fs;
use std::path::{Path, PathBuf};

use weir_fuzz_targets::{
    TARGETS, Target, conversation, conversation_seeds, iscsi_conversation, iscsi_conversation_seeds,
};
use weir_reactor::sim::seed_from_env_or_random;

/// Conversations of a protocol that are made up anew.
const CONVERSATIONS: u64 = 60;
/// Inputs of every other target that are.
const INPUTS: u64 = 200;
/// Steps of a conversation that is made up.
const STEPS: u64 = 40;

fn folder(kind: &str, target: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    root.join(kind).join(target)
}

/// The files of a folder, in order; none where there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// Tells which input it was when a target panics.
struct Witness(String);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {}", self.0);
        }
    }
}

/// Runs an input that was made up, and keeps it where it can be looked at when its target panics.
fn run_made_up(name: &str, target: fn(&[u8]), data: Vec<u8>) {
    struct Keeper<'a>(&'a str, Vec<u8>);
    impl Drop for Keeper<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let path = std::env::temp_dir().join(format!("weir-fuzz-{}", self.0));
                let kept = fs::write(&path, &self.1);
                eprintln!("the input is in {} ({kept:?})", path.display());
            }
        }
    }
    let keeper = Keeper(name, data);
    target(&keeper.1);
}

fn run_files(kind: &str) -> usize {
    let mut ran = 0;
    for (name, target) in TARGETS {
        for path in files(&folder(kind, name)) {
            let data = fs::read(&path).expect("a file");
            let witness = Witness(path.display().to_string());
            target(&data);
            drop(witness);
            ran += 1;
        }
    }
    ran
}

#[test]
fn the_corpus_passes() {
    assert!(run_files("corpus") > 0, "there is a corpus");
}

#[test]
fn what_was_found_once_is_mended() {
    run_files("regressions");
}

/// A target whose inputs are programs: its name, and programs to begin with, by name.
type Programs = (&'static str, Target, Vec<(String, Vec<u8>)>);

fn conversations() -> [Programs; 2] {
    [
        ("conversation", conversation, conversation_seeds()),
        (
            "iscsi_conversation",
            iscsi_conversation,
            iscsi_conversation_seeds(),
        ),
    ]
}

#[test]
fn seeds_pass() {
    for (name, target, seeds) in conversations() {
        for (seed, data) in seeds {
            let witness = Witness(format!("the seed {seed} of {name}"));
            target(&data);
            drop(witness);
        }
    }
}

#[test]
fn what_is_made_up_passes() {
    let seed = seed_from_env_or_random();
    let witness = Witness(format!("made up of WEIR_SEED={seed}"));
    let mut numbers = weir_reactor::random::Random::new(seed);
    for (name, target, seeds) in conversations() {
        for _ in 0..CONVERSATIONS {
            // The beginning of a seed, so that most have queues or sessions, and then anything.
            let (_, known) = &seeds[numbers.next() as usize % seeds.len()];
            let mut data = known.clone();
            data.truncate(8 + 8 * (2 + numbers.next() as usize % 8));
            let steps = 8 * (numbers.next() % STEPS);
            data.extend(numbers.bytes(steps as usize));
            run_made_up(name, target, data);
        }
    }
    let is_program = |name: &str| conversations().iter().any(|(of, _, _)| *of == name);
    for (name, target) in TARGETS.iter().filter(|(name, _)| !is_program(name)) {
        let kept: Vec<_> = files(&folder("corpus", name));
        for _ in 0..INPUTS {
            let length = numbers.next() % 200;
            let mut data = numbers.bytes(length as usize);
            if !kept.is_empty() && !numbers.next().is_multiple_of(4) {
                // One that is kept, with some bytes changed.
                data = fs::read(&kept[numbers.next() as usize % kept.len()]).expect("a file");
                for _ in 0..numbers.next() % 6 {
                    if !data.is_empty() {
                        let at = numbers.next() as usize % data.len();
                        data[at] = numbers.next() as u8;
                    }
                }
            }
            run_made_up(name, *target, data);
        }
    }
    drop(witness);
}
