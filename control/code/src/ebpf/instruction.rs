//! Single eBPF instructions: encoding, after the kernel's Documentation/bpf/standardization, and a listing
//! for people.

use std::fmt;

/// A register; r0 takes results, r1 to r5 arguments, r6 to r9 survive calls, r10 is the frame.
pub(super) type Register = u8;

/// One instruction, eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation and class.
    pub code: u8,
    /// The register that is changed.
    pub destination: Register,
    /// The register that is read, or a variant of the operation.
    pub source: Register,
    /// A jump's distance, or an offset in memory.
    pub offset: i16,
    /// A number.
    pub immediate: i32,
}

pub(super) const ALU32: u8 = 0x04;
pub(super) const JMP: u8 = 0x05;
pub(super) const ALU64: u8 = 0x07;
/// The operand is a register.
pub(super) const X: u8 = 0x08;

pub(super) const ADD: u8 = 0x00;
pub(super) const SUB: u8 = 0x10;
pub(super) const MUL: u8 = 0x20;
pub(super) const DIV: u8 = 0x30;
pub(super) const OR: u8 = 0x40;
pub(super) const AND: u8 = 0x50;
pub(super) const LSH: u8 = 0x60;
pub(super) const RSH: u8 = 0x70;
pub(super) const NEG: u8 = 0x80;
pub(super) const MOD: u8 = 0x90;
pub(super) const XOR: u8 = 0xa0;
pub(super) const MOV: u8 = 0xb0;
pub(super) const ARSH: u8 = 0xc0;

pub(super) const JA: u8 = 0x00;
pub(super) const JEQ: u8 = 0x10;
pub(super) const JGT: u8 = 0x20;
pub(super) const JGE: u8 = 0x30;
pub(super) const JNE: u8 = 0x50;
pub(super) const JSGT: u8 = 0x60;
pub(super) const JSGE: u8 = 0x70;
pub(super) const CALL: u8 = 0x80;
pub(super) const EXIT: u8 = 0x90;
pub(super) const JLT: u8 = 0xa0;
pub(super) const JLE: u8 = 0xb0;
pub(super) const JSLT: u8 = 0xc0;
pub(super) const JSLE: u8 = 0xd0;
/// `may_goto`: jumps when the kernel's limit is reached, which makes any loop a bounded one for the verifier.
pub(super) const JCOND: u8 = 0xe0;

pub(super) const WORD: u8 = 0x00;
pub(super) const HALF: u8 = 0x08;
pub(super) const BYTE: u8 = 0x10;
pub(super) const DOUBLE: u8 = 0x18;
pub(super) const LDX: u8 = 0x01;
pub(super) const ST: u8 = 0x02;
pub(super) const STX: u8 = 0x03;
pub(super) const MEM: u8 = 0x60;
/// Loads with sign.
pub(super) const MEMSX: u8 = 0x80;
/// Loads a number of 64 bits, or a map's address; takes two slots.
pub(super) const LDDW: u8 = 0x18;

impl Instruction {
    /// The kernel's encoding.
    pub fn encode(self) -> u64 {
        u64::from(self.code)
            | u64::from(self.destination & 15 | self.source << 4) << 8
            | u64::from(self.offset as u16) << 16
            | u64::from(self.immediate as u32) << 32
    }
}

fn size(code: u8) -> &'static str {
    match code & 0x18 {
        WORD => "u32",
        HALF => "u16",
        BYTE => "u8",
        _ => "u64",
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, destination: to, source: from, offset, immediate } = *self;
        let class = code & 7;
        match class {
            ALU32 | ALU64 => {
                let r = if class == ALU64 { "r" } else { "w" };
                let operand =
                    if code & X != 0 { format!("{r}{from}") } else { immediate.to_string() };
                let sign = match code & 0xf0 {
                    ADD => "+=",
                    SUB => "-=",
                    MUL => "*=",
                    DIV if offset == 1 => "s/=",
                    DIV => "/=",
                    OR => "|=",
                    AND => "&=",
                    LSH => "<<=",
                    RSH => ">>=",
                    MOD if offset == 1 => "s%=",
                    MOD => "%=",
                    XOR => "^=",
                    ARSH => "s>>=",
                    MOV if offset != 0 => return write!(f, "{r}{to} = (s{offset}) {r}{from}"),
                    MOV => "=",
                    NEG => return write!(f, "{r}{to} = -{r}{to}"),
                    _ => "?=",
                };
                write!(f, "{r}{to} {sign} {operand}")
            }
            LDX => {
                let sign = if code & 0xe0 == MEMSX { "signed " } else { "" };
                write!(f, "r{to} = {sign}{} [r{from} {offset:+}]", size(code))
            }
            STX => write!(f, "{} [r{to} {offset:+}] = r{from}", size(code)),
            ST => write!(f, "{} [r{to} {offset:+}] = {immediate}", size(code)),
            JMP => {
                let operand =
                    if code & X != 0 { format!("r{from}") } else { immediate.to_string() };
                let sign = match code & 0xf0 {
                    JA => return write!(f, "goto {offset:+}"),
                    CALL => return write!(f, "call {immediate}"),
                    EXIT => return f.write_str("exit"),
                    JCOND => return write!(f, "may_goto {offset:+}"),
                    JEQ => "==",
                    JGT => ">",
                    JGE => ">=",
                    JNE => "!=",
                    JSGT => "s>",
                    JSGE => "s>=",
                    JLT => "<",
                    JLE => "<=",
                    JSLT => "s<",
                    JSLE => "s<=",
                    _ => "?",
                };
                write!(f, "if r{to} {sign} {operand} goto {offset:+}")
            }
            _ if code == LDDW && from == 2 => write!(f, "r{to} = the memory's address"),
            _ if code == LDDW => write!(f, "r{to} = {:#x} (low half)", immediate as u32),
            _ => write!(f, "high half {:#x}", immediate as u32),
        }
    }
}
