//! A real browser for tests: Chromium without a window, driven by ChromeDriver over the WebDriver protocol. It goes nowhere:
//! what it would fetch from a network by itself is switched off, and what a page asked for can be read.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// How long one command may take before the browser counts as stuck.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Times that chromedriver is started before a test gives up.
const STARTS_MAX: usize = 5;

/// A browser with one empty tab; it ends when this is dropped.
pub struct Browser {
    driver: Child,
    base: String,
    agent: ureq::Agent,
    _profile: tempfile::TempDir,
}

/// What a browser was asked to do and could not.
pub type Refused = String;

impl Browser {
    /// Starts one; none, and a line that says why, where this machine has no browser.
    pub fn start() -> Option<Browser> {
        let found = (program("chromium"), program("chromedriver"));
        let (Some(chromium), Some(chromedriver)) = found else {
            // Not through the test's own output, which is shown of those that fail: a drawing that nobody looked at is to be seen.
            let why = "no chromium with chromedriver on this machine; scripts/test installs them";
            let _ = writeln!(std::io::stderr(), "\nskipped: {why}");
            return None;
        };
        Some(Browser::start_with(&chromium, &chromedriver))
    }

    fn start_with(chromium: &Path, chromedriver: &Path) -> Browser {
        let (driver, port, lines) = (0..STARTS_MAX)
            .find_map(|_| start_driver(chromedriver))
            .expect("chromedriver says its port");
        // It goes on writing, and would stop at a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let profile = tempfile::tempdir().expect("a folder for the browser");
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(COMMAND_TIMEOUT))
            .http_status_as_error(false)
            .build();
        let mut browser = Browser {
            driver,
            base: format!("http://127.0.0.1:{port}/session"),
            agent: config.into(),
            _profile: profile,
        };
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--force-device-scale-factor=1",
            &format!("--user-data-dir={}", browser._profile.path().display()),
        ];
        let session = browser
            .post(
                "",
                &json!({"capabilities": {"alwaysMatch": {
                    "browserName": "chrome",
                    "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                    "goog:chromeOptions": {"binary": chromium, "args": arguments},
                }}}),
            )
            .expect("the browser starts");
        let id = session["sessionId"].as_str().expect("a session");
        browser.base = format!("{}/{id}", browser.base);
        // What the browser shows by itself is not the page that is tested.
        browser
            .post("/url", &json!({"url": "about:blank"}))
            .expect("an empty page opens");
        browser.requested();
        browser.console();
        browser
    }

    /// Opens a file of this machine, and waits until it is loaded.
    pub fn open(&self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.post("/url", &json!({ "url": url }))
            .expect("the page opens");
    }

    /// The value of a script's `return`.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
            .unwrap_or_else(|refused| panic!("{script}: {refused}"))
    }

    /// Clicks on the element that a CSS selector finds first.
    pub fn click(&self, selector: &str) {
        let found = self
            .post(
                "/element",
                &json!({"using": "css selector", "value": selector}),
            )
            .unwrap_or_else(|refused| panic!("{selector}: {refused}"));
        let id = found.as_object().and_then(|found| found.values().next());
        let id = id.and_then(Value::as_str).expect("an element").to_owned();
        self.post(&format!("/element/{id}/click"), &json!({}))
            .unwrap_or_else(|refused| panic!("a click on {selector}: {refused}"));
    }

    /// Makes the page so large, in pixels.
    pub fn resize(&self, width: u32, height: u32) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// What the system prefers: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Moves the pointer, in pixels of the window.
    pub fn point_at(&self, x: f64, y: f64) {
        self.devtools(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": x, "y": y}),
        );
    }

    /// A picture of the whole page, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let answer = self.devtools(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true}),
        );
        let text = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .expect("base64")
    }

    /// What the page, or the browser about it, wrote to its console.
    pub fn console(&self) -> Vec<String> {
        let entries = self.log("browser");
        entries.iter().map(Value::to_string).collect()
    }

    /// Every address that the page asked for.
    pub fn requested(&self) -> Vec<String> {
        self.log("performance")
            .iter()
            .filter_map(|entry| {
                let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
                let message = &message["message"];
                if message["method"] != "Network.requestWillBeSent" {
                    return None;
                }
                Some(message["params"]["request"]["url"].as_str()?.to_owned())
            })
            .collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self
            .post("/se/log", &json!({ "type": kind }))
            .expect("a log");
        entries.as_array().expect("entries").clone()
    }

    fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post(
            "/goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
        .unwrap_or_else(|refused| panic!("{command}: {refused}"))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, Refused> {
        let mut answer = self
            .agent
            .post(format!("{}{path}", self.base))
            .send_json(body)
            .map_err(|error| error.to_string())?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(256 << 20)
            .read_to_string()
            .map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", value["message"])),
            None => Ok(value),
        }
    }
}

/// Starts chromedriver: the process, its port, and what else it says. None where it ended before it said its port, as it did once in
/// sixteen disturbed rounds; what it chooses for one address family may be taken for the other.
fn start_driver(chromedriver: &Path) -> Option<(Child, u16, Lines<BufReader<ChildStdout>>)> {
    let mut driver = Command::new(chromedriver)
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts");
    let mut lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let port = line.split("successfully on port ").nth(1)?;
        port.trim_end_matches('.').parse().ok()
    });
    if port.is_none() {
        let _ = driver.kill();
        let _ = driver.wait();
    }
    Some((driver, port?, lines))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver alone would leave it.
        let _ = self.agent.delete(&self.base).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A program of the search path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}
