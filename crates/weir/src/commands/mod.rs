//! The commands that ask a running gateway. Each makes one request and shows the answer.

pub(crate) mod connection;
pub(crate) mod export;
pub(crate) mod file;
pub(crate) mod host;
pub(crate) mod image;
pub(crate) mod latency;
pub(crate) mod listener;
pub(crate) mod lun;
pub(crate) mod namespace;
pub(crate) mod reactor;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod subsystem;
pub(crate) mod target;
pub(crate) mod volume;

use weir_gateway::state::SocketOptions;

use crate::client::{Answer, Client, Failure};
use crate::table;

/// How the gateway is asked and how answers are shown.
pub(crate) struct Asked {
    /// Whether to show the answer as JSON.
    pub(crate) json: bool,
    /// The client.
    pub(crate) client: Client,
}

impl Asked {
    /// Shows an answer as JSON if that was asked for, else as `text` shows it.
    fn show<T: serde::de::DeserializeOwned>(
        &self,
        answer: &Answer,
        text: impl FnOnce(T) -> String,
    ) -> Result<String, Failure> {
        if self.json {
            Ok(json(&answer.body))
        } else {
            answer.read().map(text)
        }
    }

    /// Shows what was added or found, below a line that says which of the two.
    fn show_added<T: serde::de::DeserializeOwned>(
        &self,
        answer: &Answer,
        what: &str,
        text: impl FnOnce(T) -> String,
    ) -> Result<String, Failure> {
        let created = answer.created;
        self.show(answer, |view| {
            let line = if created {
                "added"
            } else {
                "nothing to do: there already is"
            };
            format!("{line} {what}\n{}", text(view))
        })
    }

    /// Shows the members of all groups that a path lists, as JSON if that was asked for, else as `list` lists them.
    fn show_members<G: serde::de::DeserializeOwned, V: serde::Serialize>(
        &self,
        path: &str,
        members: impl FnMut(G) -> Vec<V>,
        list: impl FnOnce(Vec<V>) -> String,
    ) -> Result<String, Failure> {
        let groups: Vec<G> = self.client.get(path)?.read()?;
        let views: Vec<V> = groups.into_iter().flat_map(members).collect();
        if self.json {
            let views = serde_json::to_value(views).expect("views are plain JSON");
            return Ok(json(&views));
        }
        Ok(list(views))
    }

    /// Shows that something was done that has no answer of its own.
    fn show_done(&self, what: &str) -> String {
        if self.json {
            "{}\n".to_owned()
        } else {
            format!("{what}\n")
        }
    }
}

fn json(value: &serde_json::Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("JSON is JSON");
    text.push('\n');
    text
}

/// Socket options on one line each.
fn socket_options(options: &SocketOptions) -> String {
    let size = |bytes| weir_block::size::Size(u64::from(bytes)).to_string();
    let given = [
        ("send buffer", options.send_buffer.map(size)),
        ("receive buffer", options.receive_buffer.map(size)),
        ("congestion control", options.congestion_control.clone()),
        ("dscp", options.dscp.map(|value| value.to_string())),
        ("priority", options.priority.map(|value| value.to_string())),
    ];
    let line = |(name, value): (&str, Option<String>)| Some(format!("{name} {}", value?));
    table::lines(given.into_iter().filter_map(line))
}

/// The socket options to set: those given, on top of the present ones unless these are reset.
fn merged(present: SocketOptions, given: Option<SocketOptions>, reset: bool) -> SocketOptions {
    let present = if reset {
        SocketOptions::default()
    } else {
        present
    };
    let Some(given) = given else { return present };
    SocketOptions {
        send_buffer: given.send_buffer.or(present.send_buffer),
        receive_buffer: given.receive_buffer.or(present.receive_buffer),
        congestion_control: given.congestion_control.or(present.congestion_control),
        dscp: given.dscp.or(present.dscp),
        priority: given.priority.or(present.priority),
    }
}
