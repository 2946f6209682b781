//! Rules of style that a program can check, over the whole tree.
//!
//! Reads files and nothing else; what rustfmt, clippy and the compiler's lints check is left to
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The only crates in which `unsafe` may stand.
const UNSAFE_HOMES: &[&str] = &[
    "memory",
    "reactor",
    "libpcap",
    "rbd",
    "fake-librbd",
    "testing",
];

/// Crates whose sources may read a clock or keep state in a thread: the reactor, which lends both
/// to the others as parameters, the control plane, which is not on the data path, what starts load on several machines, the wire suite, the programs that it is
/// measured against, what tells the control plane's fuzzer when it started, the library that stands for Ceph in tests, and the helpers of tests.
const CLOCK_HOMES: &[&str] = &[
    "reactor",
    "gateway",
    "agent",
    "torture",
    "limit",
    "weir",
    "fuzz",
    "fake-librbd",
    "testing",
];

const FILES_MIN: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

/// Every text file of the tree with its path relative to the root, in a fixed order.
fn tree() -> Vec<(String, String)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
        let mut entries: Vec<_> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let kind = fs::symlink_metadata(&path).expect("an entry").file_type();
            if kind.is_dir() {
                // What git does not track (its own folder, and what was built), and the fuzzers' inputs, which may be any bytes.
                const NOT_OURS: [&str; 7] = [
                    ".git",
                    "target",
                    "__pycache__",
                    "corpus",
                    "regressions",
                    "artifacts",
                    "coverage",
                ];
                if !NOT_OURS.contains(&&*name) {
                    walk(root, &path, found);
                }
            } else if kind.is_file()
                && name != ".git"
                && let Ok(text) = fs::read_to_string(&path)
            {
                let relative = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.push((relative, text));
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    assert!(
        found.len() >= FILES_MIN,
        "this is not the whole tree: {} files",
        found.len()
    );
    found
}

fn sources() -> Vec<(String, String)> {
    tree()
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect()
}

/// The crate's folder of a path such as `crates/ground/block/src/lib.rs`: `block`.
fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.strip_prefix("crates/")?.split('/');
    let first = parts.next()?;
    // What is on no floor is the command line.
    if first == "weir" {
        Some(first)
    } else {
        parts.next()
    }
}

fn none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// Lines in which one of the patterns stands, as `path:line: pattern`.
fn lines_with(files: &[(String, String)], patterns: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            for pattern in patterns {
                if line.contains(pattern.as_str()) {
                    found.push(format!("{path}:{}: {pattern}", number + 1));
                }
            }
        }
    }
    found
}

/// `parts` joined, so that this file does not hold what it looks for.
fn joined(parts: &[[&str; 2]]) -> Vec<String> {
    parts.iter().map(|[a, b]| format!("{a}{b}")).collect()
}

#[test]
fn no_path_of_a_machine() {
    let mut patterns = joined(&[
        ["/ro", "ot/"],
        ["/wo", "rk/"],
        ["/Us", "ers/"],
        ["../sh", "ared"],
    ]);
    // A clone in a folder such as `/weir` cannot be told from a path that means another thing.
    if root().components().count() > 2 {
        patterns.push(format!("{}/", root().display()));
    }
    if let Some(home) = std::env::var_os("HOME").filter(|home| home.len() > 1) {
        patterns.push(format!("{}/", home.display()));
    }
    none("paths of one machine", &lines_with(&tree(), &patterns));
}

#[test]
fn nothing_left_undone() {
    let patterns = joined(&[
        ["todo", "!("],
        ["unimple", "mented!("],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["HA", "CK:"],
        ["#[ig", "nore"],
        ["#[allow(dead", "_code"],
    ]);
    none("work left undone", &lines_with(&sources(), &patterns));
}

#[test]
fn text_files_are_plain() {
    let mut wrong = Vec::new();
    for (path, text) in tree() {
        if path.ends_with(".lock") {
            continue;
        }
        if text.contains('\r') {
            wrong.push(format!("{path}: carriage returns"));
        }
        if !text.is_empty() && !text.ends_with('\n') {
            wrong.push(format!("{path}: no newline at the end"));
        }
        for (number, line) in text.lines().enumerate() {
            if line.ends_with(' ') || line.ends_with('\t') {
                wrong.push(format!("{path}:{}: blanks at the end", number + 1));
            }
        }
    }
    none("untidy text", &wrong);
}

#[test]
fn unsafe_has_its_homes_only() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(name) = crate_of(&path) else {
            continue;
        };
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        let may = UNSAFE_HOMES.contains(&name);
        if is_root && !may && !text.contains("#![forbid(unsafe_code)]") {
            wrong.push(format!("{path} does not say #![forbid(unsafe_code)]"));
        }
    }
    none("unsafe code is not forbidden", &wrong);
}

#[test]
fn clocks_and_threads_state_are_the_reactors() {
    let patterns = joined(&[
        ["Instant::", "now"],
        ["SystemTime::", "now"],
        ["thread_", "local!"],
    ]);
    let data_path: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| {
            crate_of(path).is_some_and(|name| !CLOCK_HOMES.contains(&name))
                && path.contains("/src/")
        })
        .collect();
    assert!(!data_path.is_empty());
    none(
        "a clock or a thread-local outside the reactor",
        &lines_with(&data_path, &patterns),
    );
}

#[test]
fn every_source_says_what_it_is_for() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let first = text
            .lines()
            .find(|line| !line.starts_with("#!") && !line.is_empty());
        if !first.is_some_and(|line| line.starts_with("//!")) {
            wrong.push(path);
        }
    }
    none(
        "sources that do not begin with what they are for (//!)",
        &wrong,
    );
}

struct Manifest {
    path: String,
    table: toml::Table,
}

fn manifests() -> Vec<Manifest> {
    let found: Vec<_> = tree()
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/") && path.ends_with("/Cargo.toml"))
        .map(|(path, text)| Manifest {
            path,
            table: text.parse().expect("a manifest"),
        })
        .collect();
    assert!(found.len() >= FILES_MIN, "{} manifests", found.len());
    found
}

#[test]
fn arrows_point_down() {
    let output = Command::new(root().join("scripts/arrows")).output();
    let output = output.expect("scripts/arrows runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn manifests_share_the_workspaces_rules() {
    let mut wrong = Vec::new();
    for manifest in manifests() {
        let inherits = |outer: &str, inner: Option<&str>| {
            let value = manifest.table.get(outer);
            let value = inner.map_or(value, |inner| value.and_then(|value| value.get(inner)));
            value
                .and_then(|value| value.get("workspace"))
                .and_then(toml::Value::as_bool)
                == Some(true)
        };
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            if !inherits("package", Some(key)) {
                wrong.push(format!("{}: {key} is not the workspace's", manifest.path));
            }
        }
        if !inherits("lints", None) {
            wrong.push(format!("{}: lints are not the workspace's", manifest.path));
        }
        if manifest.table["package"].get("description").is_none() {
            wrong.push(format!("{}: no description", manifest.path));
        }
    }
    none("manifests on their own", &wrong);
}

/// The targets of a Markdown text's links, without anchors; not those to other sites.
fn links(text: &str) -> BTreeSet<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default().to_owned())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    let mut wrong = Vec::new();
    for (path, text) in tree() {
        if !path.ends_with(".md") {
            continue;
        }
        let folder = root.join(&path).parent().unwrap().to_owned();
        for target in links(&text) {
            if !folder.join(&target).exists() {
                wrong.push(format!("{path}: {target}"));
            }
        }
    }
    none("links to what is not there", &wrong);
}

#[test]
fn decisions_are_in_the_index() {
    let index = fs::read_to_string(root().join("docs/decisions/README.md")).expect("an index");
    let linked = links(&index);
    let mut numbers = BTreeSet::new();
    let mut wrong = Vec::new();
    for (path, text) in tree() {
        let Some(file) = path.strip_prefix("docs/decisions/") else {
            continue;
        };
        if file == "README.md" {
            continue;
        }
        let number = file.split('-').next().unwrap_or_default();
        if number.len() != 4 || number.parse::<u16>().is_err() {
            wrong.push(format!(
                "{file} does not begin with its number of four digits"
            ));
        } else if !numbers.insert(number.to_owned()) {
            wrong.push(format!("{file} has the number of another"));
        }
        if !linked.contains(file) {
            wrong.push(format!(
                "{file} is not linked from docs/decisions/README.md"
            ));
        }
        if !text.starts_with("# ") {
            wrong.push(format!("{file} has no title"));
        }
    }
    none("decisions", &wrong);
}

#[test]
fn scripts_can_be_run_and_say_how() {
    let mut wrong = Vec::new();
    for (path, text) in tree() {
        let is_script = text.starts_with("#!/");
        let folder = ["scripts/", "bench/", ".ci/", "tests/vm/"];
        if folder.iter().any(|folder| path.starts_with(folder)) && is_script {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &fs::metadata(root().join(&path)).unwrap().permissions(),
            );
            if mode & 0o111 == 0 {
                wrong.push(format!("{path} is not executable"));
            }
            let said = text.lines().nth(1).unwrap_or_default();
            if !said.starts_with("# ") && !said.starts_with("\"\"\"") {
                wrong.push(format!(
                    "{path} does not say what it is for in its second line"
                ));
            }
        }
    }
    none("scripts", &wrong);
}

/// The lines that each hunk of a patch wants to find, with the file that they are of.
fn hunks(patch: &str) -> Vec<(String, String)> {
    let mut hunks: Vec<(String, String)> = Vec::new();
    let mut file = "";
    for line in patch.lines().skip_while(|line| !line.starts_with("--- ")) {
        match (line.strip_prefix("--- a/"), hunks.last_mut()) {
            (Some(name), _) => file = name,
            (None, _) if line.starts_with("+++ ") => {}
            (None, _) if line.starts_with("@@ ") => hunks.push((file.to_owned(), String::new())),
            (None, Some((_, wanted))) if line.starts_with([' ', '-']) => {
                wanted.push_str(&line[1..]);
                wanted.push('\n');
            }
            _ => {}
        }
    }
    hunks
}

/// What `scripts/mutants` plants: a change of the code may take the place of a fault away.
#[test]
fn planted_faults_have_their_place() {
    let tree = tree();
    let patches = tree
        .iter()
        .filter(|(path, _)| path.starts_with("tests/mutants/") && path.ends_with(".patch"));
    let mut wrong = Vec::new();
    let mut planted = 0;
    for (path, patch) in patches {
        planted += 1;
        let hunks = hunks(patch);
        if hunks.is_empty() {
            wrong.push(format!("{path} changes nothing"));
        }
        for (file, wanted) in hunks {
            let found = tree.iter().find(|(path, _)| *path == file);
            if found.is_none_or(|(_, text)| !text.contains(&wanted)) {
                wrong.push(format!("{path} does not apply to {file} any more"));
            }
        }
    }
    assert!(planted > 0, "there are faults to plant");
    none("planted faults", &wrong);
}
