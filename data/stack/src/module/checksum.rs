//! A CRC-32 over the whole message, end to end.

use super::interface::{Call, Module, Outputs, Reason};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// Appends four bytes, and removes and checks them.
#[derive(Debug, Default)]
pub struct Checksum;

impl<C: Concurrency> Module<C> for Checksum {
    fn down(&self, mut message: Message, _: &Call<'_, C>, out: &mut Outputs) {
        let sum = crc32fast::hash(message.bytes());
        message.append(&sum.to_be_bytes());
        out.down(message);
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        match message.take_trailer().map(u32::from_be_bytes) {
            Some(sum) if sum == crc32fast::hash(message.bytes()) => out.up(message),
            _ => call.drop(message, Reason::Corrupt),
        }
    }
}
