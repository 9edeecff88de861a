//! The help pages of a program, and the examples that they end with. Every page is found; the examples of
//! each are run in a network namespace and a folder of their own, so that ports and files are free and
//! pages run side by side.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Folder, Running, TIMEOUT, program, udp_is_bound_in, until};

/// How many pages' examples run at once: most of them wait for most of their time.
const AT_ONCE: usize = 8;

/// The help of one command.
pub(crate) struct Page {
    /// As it is typed: `selvedge trace replay`.
    pub(crate) command: String,
    /// It has no commands below it.
    pub(crate) is_leaf: bool,
    /// The lines below `Example:`, those that end in `\` joined with the next.
    pub(crate) examples: Vec<String>,
}

/// The pages of all commands that the program's help shows, its own first.
pub(crate) fn pages(binary: &Path) -> Vec<Page> {
    let name = binary.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let mut pages: Vec<Page> = Vec::new();
    let mut todo = vec![vec![name.to_owned()]];
    while let Some(words) = todo.pop() {
        let help = Command::new(binary).args(&words[1..]).arg("--help").output();
        let help = help.unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        assert!(help.status.success(), "{words:?} --help: {help:?}");
        let text = String::from_utf8(help.stdout).expect("help is text");
        let below = commands(&text);
        let examples = examples(&text);
        pages.push(Page { command: words.join(" "), is_leaf: below.is_empty(), examples });
        let longer = |name: String| words.iter().cloned().chain([name]).collect();
        todo.extend(below.into_iter().map(longer));
    }
    pages
}

/// The commands that a help lists: indented names below a heading such as `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_list = false;
    for line in help.lines() {
        match line.strip_prefix("  ") {
            // A long description goes on with a deeper indentation.
            Some(entry) if is_list => {
                names.extend(entry.split(' ').next().filter(|name| !name.is_empty()));
            }
            Some(_) => {}
            None => is_list = line.ends_with(':') && line.to_lowercase().contains("commands"),
        }
    }
    names.into_iter().filter(|name| *name != "help").map(str::to_owned).collect()
}

fn examples(help: &str) -> Vec<String> {
    let mut examples: Vec<String> = Vec::new();
    let lines = help.lines().skip_while(|line| *line != "Example:").skip(1);
    for line in lines.map_while(|line| line.strip_prefix("  ")) {
        match examples.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push_str(line.trim_start());
            }
            _ => examples.push(line.to_owned()),
        }
    }
    examples
}

/// How an example that does not just end with status 0 is run.
pub(crate) enum Expected {
    /// It is interrupted once it has printed this, and ends with status 0.
    Prints(&'static str),
    /// It is interrupted once it has this UDP port, and ends with status 0.
    Binds(u16),
    /// It ends with status 0, or with 1 and the reason where the machine is too slow for what it asks.
    Answers,
    /// It is not run, for this reason; its command line is parsed.
    Parsed(&'static str),
}

/// What the examples of one page need beside them.
pub(crate) struct Beside {
    /// The page's command.
    pub(crate) page: &'static str,
    /// What runs beside them. Where an example has the process number 4711, it is this one's.
    pub(crate) line: &'static str,
    /// A line that succeeds once it is up.
    pub(crate) is_up: &'static str,
}

/// How the examples of a program are run.
pub(crate) struct Examples<'a> {
    /// The program; what lies beside it is found, too.
    pub(crate) binary: &'a Path,
    /// The examples that do not just end with status 0.
    pub(crate) expected: &'a [(&'a str, Expected)],
    pub(crate) beside: &'a [Beside],
    /// Puts the files that examples name into the folder.
    pub(crate) files: fn(&Folder),
}

impl Examples<'_> {
    /// Checks that each command without others below it has an example, and each exception one that it
    /// is of.
    pub(crate) fn check(&self, pages: &[Page]) {
        let without = pages.iter().filter(|page| page.is_leaf && page.examples.is_empty());
        let without: Vec<&str> = without.map(|page| page.command.as_str()).collect();
        assert_eq!(without, [""; 0], "commands without an example");
        assert_eq!(self.stale(pages), [""; 0], "exceptions of no example");
    }

    fn stale<'a>(&'a self, pages: &[Page]) -> Vec<&'a str> {
        let is_there =
            |line: &str| pages.iter().any(|page| page.examples.iter().any(|e| e == line));
        let expected = self.expected.iter().map(|(line, _)| *line).filter(|line| !is_there(line));
        let has_page = |name: &str| pages.iter().any(|page| page.command == name);
        let beside = self.beside.iter().map(|one| one.page).filter(|page| !has_page(page));
        expected.chain(beside).collect()
    }

    /// Runs the examples of all pages.
    ///
    /// # Panics
    /// If one does not do what it should, with its line and output.
    pub(crate) fn run(&self, pages: &[Page]) {
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // What fails is named with the thread.
                        let thread = std::thread::Builder::new().name(page.command.clone());
                        let ran = thread.spawn_scoped(scope, || self.run_page(page));
                        let ran = ran.expect("there may be one more thread").join();
                        failed.fetch_add(usize::from(ran.is_err()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(failed.into_inner(), 0, "pages with an example that does not work");
    }

    fn run_page(&self, page: &Page) {
        if page.examples.is_empty() {
            return;
        }
        let scene = Scene::new(self.binary);
        (self.files)(&scene.folder);
        let beside = self.beside.iter().find(|beside| beside.page == page.command);
        let beside = beside.map(|beside| {
            let running = scene.start(&format!("exec {}", beside.line));
            until(&format!("\"{}\" succeeds beside {}", beside.is_up, beside.line), || {
                scene.start(beside.is_up).end(TIMEOUT).code == Some(0)
            });
            running
        });
        for example in &page.examples {
            let line = match &beside {
                Some(beside) => example.replace("4711", &beside.id().to_string()),
                None => example.clone(),
            };
            let expected =
                self.expected.iter().find(|(of, _)| of == example).map(|(_, expected)| expected);
            scene.example(&line, expected);
        }
    }
}

/// A folder and a network namespace for the examples of a page.
struct Scene {
    folder: Folder,
    network: Network,
    /// Where programs are found.
    path: String,
}

impl Scene {
    fn new(binary: &Path) -> Self {
        let folder = Folder::new();
        for inside in ["home", "run", "tmp"] {
            std::fs::create_dir(folder.join(inside)).expect("the folder is new");
        }
        let beside = binary.parent().expect("a program lies in a folder");
        let path = format!("{}:{}", beside.display(), std::env::var("PATH").unwrap_or_default());
        Self { folder, network: Network::new().expect("the test has tried"), path }
    }

    /// Starts a line of shell.
    fn start(&self, line: &str) -> Running {
        let mut command = self.network.bash(&format!("set -o pipefail; {line}"));
        command.current_dir(self.folder.path()).env("PATH", &self.path);
        // GStreamer's registry and the profile of modules take long to make: those that there are do.
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        for (name, usual) in [("XDG_CACHE_HOME", ".cache"), ("XDG_STATE_HOME", ".local/state")] {
            command
                .env(name, std::env::var_os(name).map_or_else(|| home.join(usual), PathBuf::from));
        }
        for (name, inside) in [("HOME", "home"), ("XDG_RUNTIME_DIR", "run"), ("TMPDIR", "tmp")] {
            command.env(name, self.folder.join(inside));
        }
        Running::start(command.env_remove("SELVEDGE_LOG"))
    }

    fn example(&self, line: &str, expected: Option<&Expected>) {
        let ended = match expected {
            None | Some(Expected::Answers) => self.start(line).end(TIMEOUT),
            Some(Expected::Parsed(_)) => self.start(&parsed(line)).end(TIMEOUT),
            Some(Expected::Prints(text)) => self.interrupted(line, &|running| {
                running.stdout().contains(text) || running.stderr().contains(text)
            }),
            Some(Expected::Binds(port)) => {
                self.interrupted(line, &|running| udp_is_bound_in(running.id(), *port))
            }
        };
        let is_answer = matches!(expected, Some(Expected::Answers)) && ended.code == Some(1);
        let is_right = ended.code == Some(0) || is_answer && ended.stderr.starts_with("selvedge: ");
        assert!(is_right, "{line}: {ended:?}");
    }

    fn interrupted(&self, line: &str, is_up: &dyn Fn(&Running) -> bool) -> super::Ended {
        let mut running = self.start(&format!("exec {line}"));
        running.until(&format!("is up: {line}"), is_up);
        running.signal("INT");
        running.end(TIMEOUT)
    }
}

/// The line's own command asked for help: all that stands before `--help` has been parsed then.
fn parsed(line: &str) -> String {
    let own = &line[line.find("selvedge").expect("an example runs a command")..];
    let end = [" -- ", " | "].iter().filter_map(|mark| own.find(mark)).min();
    format!("{} --help", &own[..end.unwrap_or(own.len())])
}

/// A network namespace with a loopback and nothing else, for as long as its first process lives.
pub(crate) struct Network(Running);

impl Network {
    /// Makes one; `Err` says why it can't.
    pub(crate) fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "setpriv", "--pdeathsig", "KILL"]);
        command.args(["sh", "-c", "ip link set lo up && echo up && exec tail -f /dev/null"]);
        let mut first = Running::start(&mut command);
        let mut is_up = false;
        until("a network namespace is up, or refused", || {
            is_up = first.stdout().contains("up");
            is_up || first.has_ended()
        });
        if is_up { Ok(Self(first)) } else { Err(first.end(TIMEOUT).stderr) }
    }

    /// A command that runs this line inside; its process number is the shell's.
    fn bash(&self, line: &str) -> Command {
        let mut command = program("nsenter");
        let target = self.0.id().to_string();
        command.args(["--target", &target, "--user", "--net", "--preserve-credentials"]);
        // Entering a user namespace takes away what `program` has set.
        command.args(["setpriv", "--pdeathsig", "KILL", "bash", "-c", line]);
        command
    }
}
