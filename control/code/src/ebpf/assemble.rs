//! Labels to distances. Unreachable instructions are left out: the verifier refuses them.

use super::KernelError;
use super::instruction::{CALL, EXIT, Instruction, JA, JMP, LDDW};

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<(Instruction, Option<Label>)>,
    labels: Vec<Option<usize>>,
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    pub(super) fn push(&mut self, instruction: Instruction) {
        self.code.push((instruction, None));
    }

    pub(super) fn jump(&mut self, instruction: Instruction, to: Label) {
        self.code.push((instruction, Some(to)));
    }

    fn target(&self, label: Label) -> usize {
        self.labels[label.0].expect("every label is placed")
    }

    pub(super) fn finish(self) -> Result<Vec<Instruction>, KernelError> {
        let reached = self.reached();
        let mut places = Vec::with_capacity(reached.len() + 1);
        let mut count = 0;
        for reached in &reached {
            places.push(count);
            count += usize::from(*reached);
        }
        places.push(count);
        let mut done = Vec::with_capacity(count);
        for (at, (instruction, label)) in self.code.iter().enumerate() {
            if !reached[at] {
                continue;
            }
            let mut instruction = *instruction;
            if let Some(label) = label {
                let distance = places[self.target(*label)] as i64 - places[at] as i64 - 1;
                instruction.offset = i16::try_from(distance)
                    .map_err(|_| KernelError::TooLarge(distance.unsigned_abs() as usize))?;
            }
            done.push(instruction);
        }
        Ok(done)
    }

    fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.code.len()];
        let mut open = vec![0];
        while let Some(mut at) = open.pop() {
            while at < self.code.len() && !reached[at] {
                reached[at] = true;
                let (instruction, label) = self.code[at];
                if let Some(label) = label {
                    open.push(self.target(label));
                }
                let jump = instruction.code & 7 == JMP;
                if jump && matches!(instruction.code & 0xf0, JA | EXIT) {
                    debug_assert!(instruction.code & 0xf0 != CALL);
                    break;
                }
                if instruction.code == LDDW {
                    at += 1;
                    reached[at] = true;
                }
                at += 1;
            }
        }
        reached
    }
}
