//! The example of embedding runs, and is as short as the README says.

#[path = "../examples/embed.rs"]
mod embed;

/// The most lines of code in the body of the example's `main`.
const LINES_MAX: usize = 15;

#[test]
fn the_example_runs() {
    embed::main().expect("it starts, sends and stops");
}

#[test]
fn the_example_is_short() {
    let text = include_str!("../examples/embed.rs");
    let (_, body) = text.split_once("fn main() -> ").expect("it has a main");
    let (body, _) = body.split_once("\n}\n").expect("which ends");
    let lines = body.lines().skip(1).map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!((2..=LINES_MAX).contains(&code), "{code} lines, at most {LINES_MAX}");
}
