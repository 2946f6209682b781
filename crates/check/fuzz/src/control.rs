//! Parsers of the control plane: the configuration, the state file, and the API.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::Value;
use tower_service::Service;
use weir_gateway::api::{About, router};
use weir_gateway::config::{Config, parse_duration};
use weir_gateway::control::Control;
use weir_gateway::engine::fake::FakeEngine;
use weir_gateway::limits::Budget;
use weir_gateway::name::{Eui64, HostName, ListenerAddress, Model, Nguid, Nqn, Serial, VolumeName};
use weir_gateway::state::State;
use weir_gateway::store::{FileStore, Store, StoreError};

use crate::text::text;

/// Requests of one input at most.
const REQUESTS_MAX: usize = 24;
/// The longest answer, in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// The configuration file, and the names and durations that stand in it or in the API.
pub fn configuration(data: &[u8]) {
    let text = text(data);
    if let Err(error) = Config::parse(text, Path::new("weir.toml")) {
        assert!(!error.to_string().is_empty());
    }
    let _ = parse_duration(text);
    macro_rules! survives {
        ($($name:ty),*) => {$(
            if let Ok(name) = text.parse::<$name>() {
                let written = name.to_string();
                assert_eq!(written.parse::<$name>().as_ref(), Ok(&name), "{written}");
            }
        )*};
    }
    survives!(
        VolumeName,
        Nqn,
        HostName,
        Serial,
        Model,
        Nguid,
        Eui64,
        ListenerAddress
    );
}

/// A folder of its own for one input.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-fuzz-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The state file. Where the first byte is odd, what follows is a state, in an envelope that is right: of format 1, 2 or 3 for `1`,
/// `3` or `5`.
pub fn state(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let content = match first & 1 {
        1 => {
            // What surrounds a state is no part of its checksum.
            let state = text(rest).trim();
            let sum = crc32c::crc32c(state.as_bytes());
            let format = 1 + (first >> 1) % 3;
            format!("{{\"format\": {format}, \"crc32c\": \"{sum:08x}\", \"state\": {state}}}\n")
                .into_bytes()
        }
        _ => rest.to_vec(),
    };
    let folder = Folder::new();
    let path = folder.0.join("state.json");
    fs::write(&path, content).expect("a file is written");
    let mut store = FileStore::open(&path).expect("nobody else has it");
    match store.load() {
        Ok(state) => {
            let state = state.expect("there is a file");
            state.check().expect("what is loaded follows the rules");
            let written = serde_json::to_string(&state).expect("plain JSON");
            let again: State = serde_json::from_str(&written).expect("what was written");
            assert_eq!(again, state);
        }
        Err(error) => assert!(
            matches!(
                error,
                StoreError::Damaged { .. }
                    | StoreError::Newer { .. }
                    | StoreError::Unknown { .. }
                    | StoreError::Invalid { .. }
            ),
            "{error}"
        ),
    }
}

/// A store that keeps nothing over restarts.
#[derive(Default)]
struct Forgetful(Option<u64>);

impl Store for Forgetful {
    fn load(&mut self) -> Result<Option<State>, StoreError> {
        Ok(None)
    }

    fn save(&mut self, state: &State, expected: Option<u64>) -> Result<(), StoreError> {
        assert_eq!(self.0, expected, "every save follows the one before");
        self.0 = Some(state.revision);
        Ok(())
    }

    fn place(&self) -> String {
        "nowhere".to_owned()
    }
}

/// Requests to the control API, one after another, parted by NULs: a byte for the method, the path and query up to the end of
/// the line, and the body.
pub fn api(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let engine = Arc::new(FakeEngine::new());
        let control = Control::start(engine, Box::new(Forgetful::default())).await;
        let control = control.expect("an empty state");
        let about = About {
            version: "0.0.0",
            state: "nowhere".into(),
            started: Instant::now(),
            budget: Budget::default(),
        };
        let mut router = router(Arc::clone(&control), about);
        for request in data.split(|&byte| byte == 0).take(REQUESTS_MAX) {
            ask(&mut router, request).await;
            control.state().check().expect("a state follows the rules");
        }
    });
}

async fn ask(router: &mut Router, bytes: &[u8]) {
    let Some((method, rest)) = bytes.split_first() else {
        return;
    };
    let method = match method {
        b'G' => Method::GET,
        b'P' => Method::PUT,
        b'A' => Method::PATCH,
        b'O' => Method::POST,
        b'D' => Method::DELETE,
        _ => Method::OPTIONS,
    };
    let end = rest.iter().position(|&byte| byte == b'\n');
    let (path, body) = match end {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (rest, &[][..]),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_vec()));
    // What is no URI never gets here.
    let Ok(request) = request else { return };
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ANSWER_MAX);
    let body = body.await.expect("an answer of a moderate length");
    assert!(
        !status.is_server_error(),
        "{status}: {}",
        String::from_utf8_lossy(&body)
    );
    if status.is_client_error() {
        let answer: Value = serde_json::from_slice(&body).expect("a refusal is JSON");
        let message = answer["error"]["message"].as_str();
        assert!(message.is_some_and(|message| !message.is_empty()));
    }
}
