//! Names that the code must not use again, each with the word that took its place: the source is every
//! file of Rust but tests and fuzz targets, without its comments and strings; see docs/glossary.md.

use std::fs;
use std::iter::Peekable;
use std::str::Chars;

use super::{complain, files, root};

/// What is banned, and what to write in its place. `*` stands for any letters at an end of a name;
/// `fn` or `mod` in front bans only what is declared by that name.
const BANNED: &[(&[&str], &str)] = &[
    (&["told", "Told", "TOLD*"], "notified, reported, observed"),
    (&["tell", "tell_*", "telling", "Teller", "teller"], "notify, report, send, FormatSender"),
    (&["Say", "Ask", "Talk", "Talks", "Talker"], "Message, Request, Response, Negotiation"),
    (&["Came", "What", "Who", "Whose", "Otherwise"], "Datagram, Payload, MemberRule, ClockTarget"),
    (&["hall", "Hall"], "registry, ClientRegistry"),
    (&["desk", "Desk"], "control_server, StackControlServer"),
    (&["gait", "Gait"], "schedule, Schedule"),
    (&["plant", "plants", "Plant"], "pipeline, Pipeline"),
    (&["parcel", "Parcel"], "queued, QueuedMessage"),
    (&["Hand", "Hands"], "PipeEnd, PipeEnds"),
    (&["seat", "seats", "Seat"], "slot, ElementSlot, KernelTask"),
    (&["crew", "Crew", "Elementary"], "worker_pool, WorkerPool, ElementThreads"),
    (&["Lender", "Lent"], "UntrustedConsumer, HeldFrame"),
    (&["Descent"], "FrameQueue"),
    (&["inlet", "Inlet", "inlets", "Inlets"], "frame_producer, FrameProducer"),
    (&["outlet", "Outlet", "outlets", "Outlets"], "frame_consumer, FrameConsumer"),
    (&["Learner", "learner"], "FormatReceiver"),
    (&["Looker"], "ReadinessProbe"),
    (&["Way"], "a name that says which: RingStatus, ReadinessMethod, BenchPath"),
    (&["obey"], "handle_commands"),
    (&["see_off"], "reap_leaving"),
    (&["lie_down", "ASLEEP", "MAIL_ASLEEP"], "prepare_sleep, SLEEPING"),
    (&["CLOGGED", "is_clogged"], "BACKPRESSURE, has_backpressure"),
    (&["is_much"], "exceeds_unread_limit"),
    (&["put_in_order", "push_head"], "enqueue_in_order, enqueue_head"),
    (&["forfeit"], "drop_head"),
    (&["serve_and_push", "serve_many"], "dequeue_and_enqueue, dequeue_many"),
    (&["bring_up"], "promote_head, set_head"),
    (&["at_hand", "*_at_hand", "*_closely"], "quick_decision, *_slow"),
    (&["*_MOST", "*_LEAST"], "*_MAX, *_MIN"),
    (&["PATIENCE"], "TIMEOUT"),
    (&["stir", "rouse", "squeeze"], "wake_thread, set_awake, compress"),
    (&["meld_in", "begin_afresh", "take_back"], "merge, reset_stream, withdraw"),
    (&["let_go", "give_way", "keep_up"], "flush, yield_to, follow_assignment"),
    (&["listen_for_life"], "send_keepalives"),
    (&["parted", "Parted"], "departed, DepartedMember"),
    (&["strange", "turned_away"], "from_strangers, rejected"),
    (&["not_put", "notput", "NotPut"], "EnqueueError"),
    (&["Door", "Mail"], "RingAddress, MailboxMessage"),
    (&["fn say", "fn said", "fn hear", "fn greet"], "send, report, handle, add_connection"),
    (&["fn act", "fn misbehaves"], "react, handle_excess"),
    (&["mod surface", "mod leaving", "mod came", "mod what"], "accessors, departure, datagram"),
    (&["mod posts", "mod prompt", "mod huge", "mod kept"], "change_ring, latency, cached"),
    (&["mod talk", "mod talks", "mod say", "mod look"], "negotiation, message, sample"),
];

fn is_banned(pattern: &str, declared_by: &str, name: &str) -> bool {
    if let Some((keyword, only)) = pattern.split_once(' ') {
        return declared_by == keyword && name == only;
    }
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.len() > end.len() && name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == pattern,
    }
}

/// The names in a source, each with the one before it. Comments, strings and characters are left out.
fn names(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut before = String::new();
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => {
                rest.by_ref().take_while(|&c| c != '\n').for_each(drop)
            }
            '"' => skip_string(&mut rest),
            '\'' => skip_character(&mut rest),
            'r' if matches!(rest.peek(), Some('#' | '"')) => skip_raw(&mut rest),
            c if c.is_alphabetic() || c == '_' => {
                let mut name = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                found.push((before, name.clone()));
                before = name;
            }
            _ => {}
        }
    }
    found
}

fn skip_string(rest: &mut Peekable<Chars<'_>>) {
    while let Some(c) = rest.next() {
        match c {
            '\\' => drop(rest.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// After a quote: a character ends with one, a lifetime has none.
fn skip_character(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    let first = ahead.next();
    if first == Some('\\') || ahead.next() == Some('\'') {
        rest.next();
        if first == Some('\\') {
            rest.next();
        }
        rest.by_ref().take_while(|&c| c != '\'').for_each(drop);
    }
}

fn skip_raw(rest: &mut Peekable<Chars<'_>>) {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        return;
    }
    let mut closing = None;
    for c in rest.by_ref() {
        closing = match (c, closing) {
            ('"', _) => Some(0),
            ('#', Some(n)) => Some(n + 1),
            _ => None,
        };
        if closing == Some(hashes) {
            return;
        }
    }
}

#[test]
fn names_are_found_outside_of_comments_and_strings() {
    let source = r##"fn say<'a>(c: &'a u8) { // told
        let x = "tell"; let y = '"'; let z = '\''; let r = r#"hall " desk"#; inlet }"##;
    let found: Vec<String> = names(source).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found.join(" "), "fn say a c a u8 let x let y let z let r inlet");
    assert!(is_banned("fn say", "fn", "say") && !is_banned("fn say", "let", "say"));
    assert!(is_banned("*_MOST", "", "LINES_MOST") && is_banned("tell_*", "", "tell_all"));
    assert!(!is_banned("Way", "", "Ways"));
}

#[test]
fn old_names_do_not_come_back() {
    let mut wrong = Vec::new();
    for path in files(&root(), &[".rs"]) {
        let inside = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if inside.contains("test") || inside.starts_with("fuzz/") {
            continue;
        }
        for (before, name) in names(&fs::read_to_string(&path).unwrap()) {
            let is_old = |pattern: &&str| is_banned(pattern, &before, &name);
            if let Some((_, new)) = BANNED.iter().find(|(old, _)| old.iter().any(is_old)) {
                wrong.push(format!("{inside}: {name}; write {new}"));
            }
        }
    }
    complain("names of before; docs/glossary.md has the words", &wrong);
}
