//! The text of a file of secrets.
//!
//! It is JSON: `{"format": 1, "crc32c": "XXXXXXXX", "secrets": {...}}`, where the checksum is that of the text of `secrets`, byte for
//! byte. Within stand the generation and, for each target, the secrets of CHAP. Only the gateway's user may read the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::file::checksum;
use crate::name::IscsiName;
use crate::state::{ChapSecrets, Secret, Secrets};

/// The format that this version writes.
const FORMAT: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    format: u32,
    crc32c: String,
    #[serde(borrow)]
    secrets: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    generation: u64,
    chap: BTreeMap<IscsiName, PlainChap>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainChap {
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mutual_secret: Option<String>,
}

/// The text of the file of this generation.
pub(super) fn encode(secrets: &Secrets, generation: u64) -> String {
    let plain = |of: &ChapSecrets| PlainChap {
        secret: of.initiator.expose().to_owned(),
        mutual_secret: of.target.as_ref().map(|secret| secret.expose().to_owned()),
    };
    let chap = secrets.chap.iter();
    let plain = Plain {
        generation,
        chap: chap.map(|(name, of)| (name.clone(), plain(of))).collect(),
    };
    let text = serde_json::to_string_pretty(&plain).expect("secrets are plain JSON");
    let crc32c = checksum(&text);
    format!("{{\"format\": {FORMAT}, \"crc32c\": \"{crc32c}\", \"secrets\": {text}}}\n")
}

/// The secrets that a text holds, which are to be of this generation, or why it does not hold them. No reason repeats any of the text.
pub(super) fn decode(text: &str, generation: u64) -> Result<Secrets, &'static str> {
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|_| "it is not a file of secrets")?;
    if envelope.format != FORMAT {
        return Err("another version of Weir wrote it");
    }
    if checksum(envelope.secrets.get()) != envelope.crc32c {
        return Err("it is damaged: its checksum is wrong");
    }
    let plain: Plain = serde_json::from_str(envelope.secrets.get())
        .map_err(|_| "it holds what this version of Weir does not know")?;
    if plain.generation != generation {
        return Err("it is of another generation");
    }
    let mut secrets = Secrets {
        generation: Some(generation),
        chap: BTreeMap::new(),
    };
    let secret =
        |text| Secret::new("secret", text).map_err(|_| "it holds a secret that is not allowed");
    for (name, of) in plain.chap {
        let of = ChapSecrets {
            initiator: secret(of.secret)?,
            target: of.mutual_secret.map(secret).transpose()?,
        };
        secrets.chap.insert(name, of);
    }
    Ok(secrets)
}
