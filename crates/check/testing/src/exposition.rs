//! What a Prometheus scrape takes of a metrics page: all of it, or, for one thing that is wrong, nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Fails where a scrape would refuse the page.
#[track_caller]
pub fn assert_scrapes(page: &str) {
    if let Err(refusal) = scrape(page) {
        panic!("a scrape refuses the page: {refusal}\n{page}");
    }
}

/// Reads a page in the text format, version 0.0.4, and says what is wrong with it: two samples of one name and one set of labels
/// above all, whatever the order of these.
pub fn scrape(page: &str) -> Result<(), String> {
    let mut helped = BTreeSet::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let mut family = "";
    for line in page.lines() {
        let failed = |why: &str| format!("{why}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next(), words.next().unwrap_or_default());
            let rest = words.next().unwrap_or_default();
            let is_new = match what {
                Some("HELP") => helped.insert(name),
                Some("TYPE") => {
                    family = name;
                    kinds.insert(name, rest).is_none()
                }
                _ => return Err(failed("neither help nor type")),
            };
            if !is_new {
                return Err(failed("a second time"));
            }
            continue;
        }
        let (of, value) = line.rsplit_once(' ').ok_or_else(|| failed("no value"))?;
        value.parse::<f64>().map_err(|_| failed("not a number"))?;
        let (name, labels) = match of.split_once('{') {
            Some((name, labels)) => {
                let labels = labels.strip_suffix('}');
                let labels = labels.ok_or_else(|| failed("labels without an end"))?;
                (name, labels_in(labels).ok_or_else(|| failed("labels"))?)
            }
            None => (of, BTreeMap::new()),
        };
        let of_family = match kinds.get(family) {
            Some(&"histogram") => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(family)),
            Some(_) => name == family,
            None => false,
        };
        if !of_family {
            return Err(failed("not below its type"));
        }
        if !series.insert((name, labels)) {
            return Err(failed("two samples of one series"));
        }
    }
    match series.is_empty() {
        true => Err("it has no samples".to_owned()),
        false => Ok(()),
    }
}

/// Labels by name, as they are on the page; none where they are not well formed.
fn labels_in(text: &str) -> Option<BTreeMap<&str, &str>> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = after.find(|character| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        })?;
        if name.is_empty() || labels.insert(name, &after[..end]).is_some() {
            return None;
        }
        rest = &after[end + 1..];
        if rest.is_empty() {
            return Some(labels);
        }
        rest = rest.strip_prefix(',')?;
    }
}
