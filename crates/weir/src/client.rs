//! The control API's client: one request over the Unix socket.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use weir_gateway::api::error::ErrorBody;
use weir_gateway::config::{Config, Environment};

/// Longest time for an answer. Opening and fencing volumes takes seconds at worst.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// What stands for itself in one segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b':');

/// Why a command failed, and the way out.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What is wrong.
    pub(crate) message: String,
    /// What can be done about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What the gateway answered.
pub(crate) struct Answer {
    /// Whether the request changed something (201), rather than finding it so.
    pub(crate) created: bool,
    /// The body; null where there is none.
    pub(crate) body: Value,
}

impl Answer {
    /// The body as what it should be.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_value(self.body.clone()).map_err(|error| {
            Failure::new(format!("the gateway's answer is not understood: {error}"))
                .hint("use the weir command of the gateway's own version")
        })
    }
}

/// A client of one gateway.
pub(crate) struct Client {
    socket: PathBuf,
}

/// One segment of a path, escaped.
pub(crate) fn segment(name: &impl ToString) -> String {
    utf8_percent_encode(&name.to_string(), SEGMENT).to_string()
}

impl Client {
    /// A client of the gateway at `socket`, or at the place where gateways have theirs.
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        let socket = socket.unwrap_or_else(|| {
            let environment = Environment::of_this_process();
            let own = Config::default().control_socket(&environment);
            let system = Environment {
                variable: &|_| None,
                root: true,
            };
            let system = Config::default().control_socket(&system);
            if own.exists() { own } else { system }
        });
        Self { socket }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.request(&Method::GET, path, None)
    }

    pub(crate) fn put(&self, path: &str, body: &impl serde::Serialize) -> Result<Answer, Failure> {
        self.request(&Method::PUT, path, Some(encode(body)))
    }

    pub(crate) fn post(&self, path: &str, body: &impl serde::Serialize) -> Result<Answer, Failure> {
        self.request(&Method::POST, path, Some(encode(body)))
    }

    pub(crate) fn patch(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<Answer, Failure> {
        self.request(&Method::PATCH, path, Some(encode(body)))
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.request(&Method::DELETE, path, None)
    }

    fn request(&self, method: &Method, path: &str, body: Option<Bytes>) -> Result<Answer, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start: {error}")))?;
        runtime.block_on(async {
            let exchange = self.exchange(method, path, body);
            tokio::time::timeout(ANSWER_TIME_MAX, exchange)
                .await
                .unwrap_or_else(|_| {
                    let seconds = ANSWER_TIME_MAX.as_secs();
                    let message = format!("the gateway does not answer within {seconds} seconds");
                    Err(Failure::new(message)
                        .hint("see its log; whether the change was made is open"))
                })
        })
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Answer, Failure> {
        let stream = tokio::net::UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| unreachable(&self.socket, &error))?;
        let broken = |error: hyper::Error| {
            Failure::new(format!("the gateway broke the connection off: {error}"))
                .hint("see its log")
        };
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| Failure::new(format!("cannot ask for {path}: {error}")))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(broken)?
            .to_bytes();
        if status.is_success() {
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            return Ok(Answer {
                created: status.as_u16() == 201,
                body,
            });
        }
        Err(match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(ErrorBody { error }) => Failure {
                message: error.message,
                hint: error.hint,
            },
            Err(_) => Failure::new(format!(
                "the gateway answered {status}: {}",
                String::from_utf8_lossy(&bytes)
            )),
        })
    }
}

fn encode(body: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(body)
        .expect("requests are plain JSON")
        .into()
}

/// Why nobody was reached at `socket`, and what to do.
fn unreachable(socket: &Path, error: &io::Error) -> Failure {
    let shown = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "no gateway is running: there is no control socket {shown}"
        ))
        .hint("start one with: weir serve; if its socket is elsewhere, use --socket PATH"),
        io::ErrorKind::ConnectionRefused => {
            Failure::new(format!("no gateway is running: nobody answers at {shown}"))
                .hint("start it with: weir serve; or see why it ended (journalctl -u weir)")
        }
        io::ErrorKind::PermissionDenied => {
            let group = std::fs::metadata(socket)
                .ok()
                .and_then(|found| group_name(found.gid()));
            let group = group.map(|name| format!(", or as a member of the group {name}"));
            Failure::new(format!("you may not use the control socket {shown}")).hint(format!(
                "run this command as root{}",
                group.unwrap_or_default()
            ))
        }
        _ => Failure::new(format!("cannot reach the gateway at {shown}: {error}")),
    }
}

/// The name of a group that is not root's own.
fn group_name(id: u32) -> Option<String> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (id != 0 && fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}
