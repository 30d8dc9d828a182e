//! A Chromium without a window, driven through its DevTools protocol: over a pipe, so there is no
//! port that somebody else could have, and nothing to be looked up.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time after which a browser counts as one that does not answer.
const PATIENCE: Duration = Duration::from_secs(120);

const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Value,
    commands: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// The program, if this machine has it.
pub(crate) fn chromium() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return Some(path.into());
    }
    let directories = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&directories)
        .flat_map(|directory| names.map(|name| directory.join(name)));
    found.into_iter().find(|path| path.is_file())
}

impl Browser {
    /// Starts the program with an empty page.
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a place for the browser's files");
        // Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let to = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, events) = (Value::Null, Vec::new());
        let mut browser =
            Browser { child, to, from, session, commands: 0, events, _profile: profile };
        let target =
            browser.command("Target.createTarget", json!({"url": "about:blank"}))["targetId"]
                .take();
        let attached =
            browser.command("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command to the browser, and returns the answer.
    pub(crate) fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.commands += 1;
        let mut message = json!({"id": self.commands, "method": method, "params": parameters});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut answer = self.next(method);
            if answer["id"] == self.commands {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self, waiting_for: &str) -> Value {
        self.from
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no answer to {waiting_for}: {error}"))
    }

    /// Opens a file and waits until its scripts have done what they do by themselves.
    pub(crate) fn open(&mut self, page: &Path) {
        self.events.clear();
        self.command("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("Page.navigate");
            self.events.push(event);
        }
        let started = Instant::now();
        while self.evaluate("document.documentElement.dataset.ready") != "yes" {
            let complaints = self.complaints();
            assert!(complaints.is_empty(), "the page's scripts have failed: {complaints:?}");
            assert!(started.elapsed() < PATIENCE, "the page's scripts do not come to an end");
        }
    }

    /// What an expression comes to, after its promise if it is one; pictures are drawn before and
    /// after.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let expression = format!(
            "(async () => {{ await settled(); const value = await ({expression}); await settled(); return value; }})()"
        );
        let settled = "globalThis.settled ??= () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));";
        let parameters = json!({"expression": format!("{settled} {expression}"), "awaitPromise": true, "returnByValue": true});
        let mut answer = self.command("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// What went wrong on the page since it was opened, and what it wanted from elsewhere.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let complains = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(event["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            Some("Log.entryAdded") => event["params"]["entry"]["level"] != "verbose",
            Some("Network.requestWillBeSent") => {
                !event["params"]["request"]["url"]
                    .as_str()
                    .is_some_and(|url| url.starts_with("file:"))
                    || event["params"]["type"] != "Document"
            }
            _ => false,
        };
        self.events.iter().filter(complains).map(ToString::to_string).collect()
    }

    /// Moves, presses or releases the mouse.
    pub(crate) fn mouse(&mut self, kind: &str, (x, y): (f64, f64), count: u32) {
        let button = if kind == "mouseMoved" && count == 0 { "none" } else { "left" };
        let buttons = u32::from(count > 0 && kind != "mouseReleased");
        let event = json!({"type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": count});
        self.command("Input.dispatchMouseEvent", event);
    }

    /// Presses and releases a key.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.command("Input.dispatchKeyEvent", json!({"type": kind, "key": key}));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
