//! `weir target`.

use std::io::{self, Read};
use std::path::Path;

use weir_gateway::api::ChapSpec;
use weir_gateway::api::views::{LunView, TargetView};
use weir_gateway::name::{HostName, IscsiName};
use weir_gateway::state::{ChapUsers, TargetPatch, TargetSpec};

use super::Asked;
use crate::cli::{ChapArguments, TargetCommand};
use crate::client::{Failure, segment};
use crate::table::{lines, or_dash, table, values};

const PATH: &str = "/v1/iscsi/targets";
/// The variable of the secret that initiators prove that they know.
const SECRET_VARIABLE: &str = "WEIR_CHAP_SECRET";
/// The variable of the secret that the target proves that it knows.
const MUTUAL_SECRET_VARIABLE: &str = "WEIR_CHAP_MUTUAL_SECRET";
/// Most bytes that are read of a file with a secret: more than any secret has, and its line's end.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

fn path(iqn: &IscsiName) -> String {
    format!("{PATH}/{}", segment(iqn))
}

fn host_path(iqn: &IscsiName, host: &HostName) -> String {
    format!("{}/hosts/{}", path(iqn), segment(host))
}

pub(crate) fn run(asked: &Asked, command: TargetCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        TargetCommand::List => asked.show(&client.get(PATH)?, list),
        TargetCommand::Show { iqn } => asked.show(&client.get(&path(&iqn))?, show),
        TargetCommand::Add {
            iqn,
            alias,
            allow_any_host,
        } => {
            let spec = TargetSpec {
                alias,
                allow_any_host: allow_any_host.then_some(true),
            };
            let answer = client.put(&path(&iqn), &spec)?;
            asked.show_added(&answer, &format!("target {iqn}"), show)
        }
        TargetCommand::Set {
            iqn,
            alias,
            allow_any_host,
        } => {
            let patch = TargetPatch {
                alias,
                allow_any_host,
            };
            if patch == TargetPatch::default() {
                let message = "nothing to change was given";
                return Err(Failure::new(message).hint("use --alias or --allow-any-host"));
            }
            asked.show(&client.patch(&path(&iqn), &patch)?, show)
        }
        TargetCommand::Remove { iqn, force } => {
            client.delete(&format!("{}?force={force}", path(&iqn)))?;
            Ok(asked.show_done(&format!("removed target {iqn}")))
        }
        TargetCommand::Allow { iqn, host } => {
            let answer = client.put(&host_path(&iqn, &host), &serde_json::json!({}))?;
            asked.show(&answer, show)
        }
        TargetCommand::Deny { iqn, host } => {
            client.delete(&host_path(&iqn, &host))?;
            Ok(asked.show_done(&format!("host {host} may not log in to {iqn} any more")))
        }
        TargetCommand::Chap(arguments) => chap(asked, arguments),
    }
}

fn chap(asked: &Asked, arguments: ChapArguments) -> Result<String, Failure> {
    let ChapArguments {
        iqn,
        none,
        user,
        secret_file,
        mutual_user,
        mutual_secret_file,
    } = arguments;
    let path = format!("{}/chap", path(&iqn));
    let Some(user) = user.filter(|_| !none) else {
        asked.client.delete(&path)?;
        return Ok(asked.show_done(&format!("target {iqn} asks for no proof any more")));
    };
    let is_input = |file: &Option<_>| file.as_deref() == Some(Path::new("-"));
    if is_input(&secret_file) && is_input(&mutual_secret_file) {
        let message = "standard input holds one secret";
        return Err(Failure::new(message).hint("give one of the two in a file"));
    }
    let secret = secret("--secret-file", secret_file.as_deref(), SECRET_VARIABLE)?;
    let mutual = |_: &String| {
        let file = mutual_secret_file.as_deref();
        self::secret("--mutual-secret-file", file, MUTUAL_SECRET_VARIABLE)
    };
    let spec = ChapSpec {
        user,
        secret,
        mutual_secret: mutual_user.as_ref().map(mutual).transpose()?,
        mutual_user,
    };
    asked.show(&asked.client.put(&path, &spec)?, show)
}

/// The first line of a file, of standard input, or a variable of the environment.
fn secret(option: &str, file: Option<&Path>, variable: &str) -> Result<String, Failure> {
    let Some(file) = file else {
        return std::env::var(variable).map_err(|_| {
            Failure::new(format!(
                "no secret was given: use {option} FILE, or set {variable}"
            ))
        });
    };
    let name = match file == Path::new("-") {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let text = read(file).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(Failure::new(format!(
            "{name} holds no secret in its first line"
        ))),
    }
}

fn read(file: &Path) -> io::Result<String> {
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(std::fs::File::open(file)?),
    };
    let mut text = String::new();
    source
        .take(SECRET_FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn list(views: Vec<TargetView>) -> String {
    let row = |view: &TargetView| {
        let hosts = match view.allow_any_host {
            true => "any".to_owned(),
            false => view.allowed_hosts.len().to_string(),
        };
        [
            view.name.to_string(),
            hosts,
            view.luns.len().to_string(),
            proof(view.chap.as_ref()).to_owned(),
            view.alias.clone(),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["TARGET", "HOSTS", "LUNS", "CHAP", "ALIAS"], &rows)
}

/// Who proves something.
fn proof(chap: Option<&ChapUsers>) -> &'static str {
    match chap {
        None => "none",
        Some(users) if users.mutual_user.is_some() => "mutual",
        Some(_) => "one-way",
    }
}

fn show(view: TargetView) -> String {
    let hosts = match view.allow_any_host {
        true => "any".to_owned(),
        false => lines(&view.allowed_hosts),
    };
    let lun = |view: &LunView| {
        let state = if view.online { "online" } else { "offline" };
        format!("{} {} {state}", view.lun, view.volume)
    };
    let chap = view.chap.as_ref();
    let mutual_user = chap.and_then(|users| users.mutual_user.as_ref());
    values(&[
        ("name", view.name.to_string()),
        ("alias", view.alias),
        ("hosts", hosts),
        ("CHAP", proof(chap).to_owned()),
        ("user", or_dash(chap.map(|users| &users.user))),
        ("mutual user", or_dash(mutual_user)),
        ("LUNs", lines(view.luns.iter().map(lun))),
    ])
}
