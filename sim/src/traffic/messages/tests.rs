//! Ends of stacks over bad lines and beside attackers keep what is promised; each promise has an end that breaks it.

use selvedge_control_config::network::{self, FileError, NetworkConfig};

use super::*;
use crate::fuzz;
use crate::packet::EndpointId;
use crate::scenario::Scenario;
use crate::simulation::{Limits, Simulation};

const BAD: &str = "loss = \"20 %\"\ncorrupts = \"5 %\"\nduplicates = \"5 %\"\nreorders = true\n\
                   delay = \"20 ms\"\njitter = \"10 ms\"\n";
const GOOD: &str = "delay = \"0 ms\"\n";
const SEALED: &str = "ui | reliable | frag(300) | encrypt(chacha20) | net";

/// Two ends on a line of this kind, and an attacker of each.
fn network(stack: &str, line: &str) -> NetworkConfig {
    let text = format!(
        "[network]\nsource = \"made up\"\n[host.a]\n[host.b]\n[link.l]\nbetween = [\"a\", \"b\"]\n\
         {line}[traffic.m]\nkind = \"messages\"\nfrom = \"a\"\nto = \"b\"\nevery = \"10 ms\"\nsize = \"700 B\"\n\
         stack = \"{stack}\"\n[traffic.x]\nkind = \"hostile\"\nfrom = \"a\"\nto = \"b\"\nevery = \"3 ms\"\n\
         [traffic.y]\nkind = \"hostile\"\nfrom = \"b\"\nto = \"a\"\nevery = \"3 ms\"\n"
    );
    network::parse(&text, "test", &mut |_| Err(FileError::NotText)).unwrap()
}

/// Runs it with a fault planted at the second end.
fn run(stack: &str, line: &str, fault: fn(&mut Messages)) -> (Simulation, Vec<Breach>) {
    run_for(Duration::from_secs(5), stack, line, fault)
}

fn run_for(
    lasts: Duration,
    stack: &str,
    line: &str,
    fault: fn(&mut Messages),
) -> (Simulation, Vec<Breach>) {
    let config = NetworkConfig { lasts, ..network(stack, line) };
    let mut network = Scenario::new(&config, &[], None, 5, None).unwrap().network;
    fault(network.endpoint_mut(EndpointId(1)).unwrap());
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    simulation.run(Instant::ZERO + config.lasts, &mut |_: &_| {}).unwrap();
    let breaches = fuzz::messages(&config, &simulation);
    (simulation, breaches)
}

fn ends(simulation: &Simulation) -> [&Messages; 2] {
    let ends: Vec<_> = simulation.endpoints().collect();
    [ends[0], ends[1]]
}

fn refused(end: &Messages, why: Reason) -> u64 {
    end.stack.line().connection().dropped(why)
}

#[test]
fn stacks_keep_their_promises_over_a_bad_line() {
    for stack in fuzz::STACKS {
        let (simulation, breaches) = run(stack, BAD, |_| {});
        assert_eq!(breaches, [], "{stack}");
        for end in ends(&simulation) {
            assert!(end.sent == 301 && end.received > 100, "{stack}: {} came", end.received);
            assert!(refused(end, Reason::Corrupt) > 100, "{stack}");
            let again = [Reason::Duplicate, Reason::Replayed, Reason::Late];
            assert!(again.iter().map(|why| refused(end, *why)).sum::<u64>() > 50, "{stack}");
            let is_forged = forger(&end.program.stack, end.sends).is_some();
            assert!(!is_forged || refused(end, Reason::Forged) > 50, "{stack}");
        }
    }
}

#[test]
fn all_messages_arrive_where_nothing_is_lost_beside_an_attacker() {
    for stack in fuzz::STACKS {
        let (simulation, breaches) = run(stack, GOOD, |_| {});
        assert_eq!(breaches, [], "{stack}");
        let received = ends(&simulation).map(|end| end.received);
        assert_eq!(received, [301; 2], "{stack}");
    }
}

/// What is broken where the second end has a fault.
fn broken(stack: &str, line: &str, fault: fn(&mut Messages)) -> Vec<Promise> {
    let (_, breaches) = run(stack, line, fault);
    let promises: BTreeSet<_> = breaches.into_iter().map(|breach| breach.promise).collect();
    promises.into_iter().collect()
}

/// The end with another stack than its program has.
fn replace(end: &mut Messages, line: &str, connection: FlowId) {
    end.stack = stack(&line.parse().unwrap(), connection, &keys().swapped()).unwrap();
}

#[test]
fn a_stack_that_is_not_reliable_is_found() {
    let fault = |end: &mut Messages| end.program.stack = "ui | reliable | net".parse().unwrap();
    assert_eq!(broken("ui | unreliable | net", BAD, fault), [Promise::InOrder]);
    // Where nothing is lost it can't be known.
    assert_eq!(broken("ui | unreliable | net", GOOD, fault), []);
}

#[test]
fn a_message_that_comes_twice_or_changed_is_found() {
    let twice = |end: &mut Messages| end.seen.extend(50..60);
    let changed = |end: &mut Messages| end.program.size = Bytes(701);
    let sealed = "ui | unreliable | encrypt(aes256) | net";
    assert_eq!(broken(sealed, GOOD, twice), [Promise::OpensOnce]);
    assert_eq!(broken(sealed, GOOD, changed), [Promise::OpensOnce]);
    let below = |end: &mut Messages| end.stack.line().connection().count(Reason::Duplicate);
    assert_eq!(broken(sealed, GOOD, below), [Promise::OpensOnce]);
    assert_eq!(broken("ui | unreliable | net", GOOD, twice), [Promise::Once]);
    let unsent = |end: &mut Messages| end.beyond = 1_000;
    assert_eq!(broken("ui | unreliable | net", GOOD, unsent), [Promise::Once]);
}

#[test]
fn a_stack_that_does_not_encrypt_is_found() {
    let fault = |end: &mut Messages| replace(end, "ui | unreliable | net", FlowId(0));
    // It lets in what it can't open, too.
    let found = broken("ui | unreliable | encrypt(aes256) | net", GOOD, fault);
    assert_eq!(found, [Promise::OpensOnce, Promise::Secret]);
}

#[test]
fn a_forged_datagram_that_is_let_in_is_found() {
    let fault = |end: &mut Messages| end.expect_forged(end.receives);
    assert_eq!(broken(SEALED, GOOD, fault), [Promise::Counted]);
}

#[test]
fn messages_that_do_not_arrive_or_are_not_sent_again_are_found() {
    let fault = |end: &mut Messages| replace(end, SEALED, FlowId(77));
    assert_eq!(broken(SEALED, GOOD, fault), [Promise::Arrives]);
    // Messages are under way at the end.
    let fault = |end: &mut Messages| end.program.until = Instant::MAX;
    let (simulation, breaches) =
        run_for(Duration::from_secs(32), SEALED, "delay = \"100 ms\"\n", fault);
    assert_eq!(breaches, []);
    let [first, second] = ends(&simulation);
    // To who looks at the beginning, they are sent again later than they may be.
    let breaches = second.breaches(first, false, Instant::ZERO);
    assert_eq!(breaches.len(), 1, "{breaches:?}");
}

#[test]
fn a_silent_peer_is_given_up_at_both_ends() {
    let given_up = |secs, line| {
        let (simulation, breaches) = run_for(Duration::from_secs(secs), SEALED, line, |_| {});
        assert_eq!(breaches, []);
        ends(&simulation).map(|end| end.stack.line().has_lost_peer())
    };
    assert_eq!(given_up(32, "loss = \"100 %\"\n"), [true; 2]);
    assert_eq!(given_up(28, "loss = \"100 %\"\n"), [false; 2]);
    assert_eq!(given_up(32, BAD), [false; 2]);
}
