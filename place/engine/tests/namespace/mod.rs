//! A network namespace of a test's own, whose loopback is a slow link; removed when dropped.

use std::io::Write;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in tests that run inside a namespace.
const INSIDE: &str = "SELVEDGE_TEST_INSIDE";

/// A network namespace. Needs root, `ip` and `tc`.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace whose loopback has this capacity (`rate`, `burst` and `limit` as in `tc-tbf`: bits
    /// per second, bytes at once, bytes that may wait).
    pub(crate) fn with_slow_loopback(rate: &str, burst: &str, limit: &str) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("selvedge-test-{}-{count}", std::process::id());
        run(&["ip", "netns", "add", &name])?;
        let namespace = Self { name };
        let inside = |command: &[&str]| {
            run(&[&["ip", "netns", "exec", &namespace.name][..], command].concat())
        };
        // The loopback's own packets, of up to 64 kB, would be larger than the burst, and dropped each time.
        inside(&["ip", "link", "set", "lo", "mtu", "1500", "up"])?;
        let shape = ["rate", rate, "burst", burst, "limit", limit];
        inside(&[&["tc", "qdisc", "replace", "dev", "lo", "root", "tbf"][..], &shape].concat())?;
        Ok(namespace)
    }

    /// Runs one test of this program again, inside; it has three minutes, and is killed after that.
    pub(crate) fn run_test(&self, test: &str) -> Output {
        let program = std::env::current_exe().expect("a running program has a path");
        Command::new("ip")
            .args(["netns", "exec", &self.name, "timeout", "--kill-after=10", "180"])
            .arg(program)
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .expect("ip has run before")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = run(&["ip", "netns", "del", &self.name]) {
            eprintln!("left behind: {error}");
        }
    }
}

/// Runs `body` inside such a namespace, by running this test again there. Where none can be created, prints
/// that and returns.
pub(crate) fn inside_slow_loopback(test: &str, rate: &str, burst: &str, limit: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let namespace = match Namespace::with_slow_loopback(rate, burst, limit) {
        Ok(namespace) => namespace,
        Err(error) => {
            // Bypasses the harness, which would hide it in a test that passes.
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "SKIPPED: {test}: needs root, ip and tc: {error}");
            return;
        }
    };
    let output = namespace.run_test(test);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    print!("{stdout}");
    assert!(output.status.success(), "inside the namespace: {}\n{stderr}", output.status);
    assert!(stdout.contains("1 passed"), "the test did not run inside:\n{stdout}");
}

fn run(command: &[&str]) -> Result<(), String> {
    let line = command.join(" ");
    let output = Command::new(command[0])
        .args(&command[1..])
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {}", said.trim())) }
}
