//! The rules of deny.toml that need nothing but cargo: sources, bans and licences of all dependencies.
//!
//! `scripts/nightly` has cargo-deny check them too, and what is known against the crates (advisories).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every package that is built for one of the targets of deny.toml.
fn packages(rules: &toml::Table) -> Vec<Value> {
    let mut found = Vec::new();
    for target in strings(&rules["graph"]["targets"]) {
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--locked",
                "--all-features",
                "--format-version",
                "1",
            ])
            .args(["--filter-platform", &target])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata: {told}");
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let used: BTreeSet<_> = metadata["resolve"]["nodes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|node| node["id"].as_str().expect("an identifier").to_owned())
            .collect();
        let packages = metadata["packages"].as_array().expect("a list");
        let used = packages
            .iter()
            .filter(|package| used.contains(package["id"].as_str().expect("an identifier")));
        found.extend(used.cloned());
    }
    assert!(found.len() > 100, "{} packages only", found.len());
    found
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("the rules");
    text.parse().expect("TOML")
}

fn strings(list: &toml::Value) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    list.map(|value| value.as_str().expect("a string").to_owned())
        .collect()
}

/// Tells whether the allowed licences satisfy an expression (SPDX 3.0.1, Annex B), with "/" as crates wrote OR before.
fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let result = any(&mut rest, allowed)?;
    rest.first()
        .map_or(Ok(result), |word| Err(format!("'{word}' is left over")))
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, String> {
    let mut result = all(rest, allowed)?;
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        result |= all(rest, allowed)?;
    }
    Ok(result)
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, String> {
    let mut result = one(rest, allowed)?;
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        result &= one(rest, allowed)?;
    }
    Ok(result)
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, String> {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let result = any(rest, allowed)?;
            let [")", after @ ..] = *rest else {
                return Err("a parenthesis is not closed".to_owned());
            };
            *rest = after;
            Ok(result)
        }
        [license, "WITH", exception, after @ ..] => {
            *rest = after;
            Ok(allowed.contains(&format!("{license} WITH {exception}")))
        }
        [license, after @ ..] if !["OR", "AND", "WITH", ")"].contains(license) => {
            *rest = after;
            Ok(allowed.contains(*license))
        }
        _ => Err("a licence is missing".to_owned()),
    }
}

#[test]
fn licences_are_read_as_they_are_written() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Zlib"];
    let allowed = allowed.map(str::to_owned).into();
    for (expression, satisfied) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("MIT/GPL-3.0-only", true),
        ("MIT AND GPL-3.0-only", false),
        ("(GPL-3.0-only OR Zlib) AND MIT", true),
        ("GPL-3.0-only OR Zlib AND MPL-2.0", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
    ] {
        assert_eq!(
            is_satisfied(expression, &allowed),
            Ok(satisfied),
            "{expression}"
        );
    }
    for broken in ["", "MIT OR", "(MIT", "MIT)", "MIT Zlib", "AND MIT"] {
        assert!(is_satisfied(broken, &allowed).is_err(), "{broken}");
    }
}

#[test]
fn dependencies_keep_the_rules() {
    let rules = rules();
    let allowed = strings(&rules["licenses"]["allow"]).into_iter().collect();
    let banned: Vec<_> = rules["bans"]["deny"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|ban| ban["crate"].as_str().expect("a name").to_owned())
        .collect();
    let mut wrong = BTreeSet::new();
    for package in packages(&rules) {
        let name = package["name"].as_str().expect("a name");
        let who = format!("{name} {}", package["version"].as_str().expect("a version"));
        if banned.iter().any(|ban| ban == name) {
            wrong.insert(format!("{who} is banned"));
        }
        for dependency in package["dependencies"].as_array().expect("a list") {
            if dependency["req"] == "*"
                && dependency["path"].is_null()
                && package["source"].is_null()
            {
                wrong.insert(format!("{who} takes any version of {}", dependency["name"]));
            }
        }
        match package["source"].as_str() {
            // The workspace's own.
            None => continue,
            Some(source)
                if source.starts_with("registry+") && source.ends_with("/crates.io-index") => {}
            Some(source) => {
                wrong.insert(format!("{who} comes from {source}"));
            }
        }
        match package["license"].as_str() {
            None => {
                wrong.insert(format!("{who} names no licence"));
            }
            Some(license) => match is_satisfied(license, &allowed) {
                Ok(true) => {}
                Ok(false) => {
                    wrong.insert(format!("{who} has the licence {license}"));
                }
                Err(error) => {
                    wrong.insert(format!("{who} has the licence '{license}': {error}"));
                }
            },
        }
    }
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(
        wrong.is_empty(),
        "against deny.toml:\n  {}",
        wrong.join("\n  ")
    );
}
