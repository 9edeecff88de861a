//! Hellos of a handshake, changed in transit; and the proposals that they carry.

use crate::secure::{Kind, run};
use selvedge_comm_stack::wire::Proposal;
use selvedge_data_stack::compose::Composition;

pub fn fuzz(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, text)) => proposal(text),
        _ => run(bytes, Kind::Hello),
    }
}

fn proposal(text: &[u8]) {
    let Some(proposal) = Proposal::parse(text) else { return };
    let again = Proposal::parse(proposal.text().as_bytes());
    assert_eq!(again.as_ref(), Some(&proposal));
    for contract in [proposal.out, proposal.back] {
        assert!(contract.check().is_ok());
    }
    if let Ok(stack) = proposal.line.parse::<Composition>() {
        assert_eq!(stack.to_string().parse(), Ok(stack));
    }
}
