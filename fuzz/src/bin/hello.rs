//! What strangers say to a stack's endpoint: any datagram is of the handshake or is not, any
//! proposal makes sense or is refused, and what was read is what was written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_comm_stack::wire::{self, Proposal};
use selvedge_data_stack::compose::Composition;
use selvedge_fuzz::Choices;

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let (way, id) = (choices.byte(), choices.long());
    let rest = choices.bytes(usize::MAX);
    let mut text = vec![0; wire::LONGEST];
    match way % 4 {
        0 => {
            if let Some((kind, id, payload)) = wire::split(rest) {
                assert_eq!(wire::datagram(kind, id, payload), rest);
            }
        }
        1 => {
            let Some(proposal) = Proposal::parse(rest) else { return };
            let again = Proposal::parse(proposal.text().as_bytes());
            assert_eq!(again.as_ref(), Some(&proposal));
            for contract in [proposal.out, proposal.back] {
                assert!(contract.check().is_ok());
            }
            if let Ok(stack) = proposal.line.parse::<Composition>() {
                assert_eq!(stack.to_string().parse(), Ok(stack));
            }
        }
        2 => {
            // As a listener reads it, with a secret and without.
            for secret in [None, Some([7; 32])] {
                let mut listener = wire::noise(secret.as_ref(), false).expect("we have ciphers");
                let Ok(len) = listener.read_message(rest, &mut text) else { continue };
                let _ = Proposal::parse(&text[..len]);
                let mut answer = vec![0; wire::HELLO_MIN];
                let len = listener.write_message(b"", &mut answer).expect("there is room");
                // An answer is never longer than the question.
                assert!(len <= wire::HELLO_MIN);
                let _ = wire::keys(&mut listener, false);
            }
        }
        _ => {
            // As it is sent: what is not too long arrives whole, and nothing does damaged.
            let Some(rest) = rest.get(..rest.len().min(wire::LONGEST - 13)) else { return };
            let mut datagram = wire::datagram(wire::HELLO, id, rest);
            assert_eq!(wire::split(&datagram), Some((wire::HELLO, id, rest)));
            let at = id as usize % datagram.len();
            datagram[at] ^= 1 << (way >> 5);
            assert_eq!(wire::split(&datagram), None);
        }
    }
});
