//! Compression of each message by itself (LZ4 blocks); a message that does not shrink is sent as it is.
//!
//! The header is the uncompressed length, `u32`, big-endian; 0 for a message that is sent as it is.

use super::interface::{Call, Module, Outputs, Reason};
use crate::concurrency::Concurrency;
use crate::contract::MESSAGE_MAX;
use crate::message::Message;

/// Compresses and decompresses.
#[derive(Debug, Default)]
pub struct Compress;

impl<C: Concurrency> Module<C> for Compress {
    fn down(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let most = lz4_flex::block::get_maximum_output_size(message.len());
        let mut smaller = Message::of_len(most, call.buffers);
        let packed = lz4_flex::block::compress_into(message.bytes(), smaller.bytes_mut());
        match packed {
            Ok(len) if len < message.len() => {
                smaller.set_len(len);
                smaller.push(&(message.len() as u32).to_be_bytes());
                let smaller = smaller.with_metadata_of(&message);
                call.buffers.recycle(message);
                out.down(smaller);
            }
            _ => {
                call.buffers.recycle(smaller);
                message.push(&0_u32.to_be_bytes());
                out.down(message);
            }
        }
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some(len) = message.pull().map(u32::from_be_bytes) else {
            return call.drop(message, Reason::Malformed);
        };
        if len == 0 {
            return out.up(message);
        }
        if u64::from(len) > MESSAGE_MAX.0 {
            return call.drop(message, Reason::TooLarge);
        }
        let mut larger = Message::of_len(len as usize, call.buffers);
        let done = lz4_flex::block::decompress_into(message.bytes(), larger.bytes_mut());
        if !done.is_ok_and(|done| done == len as usize) {
            call.buffers.recycle(larger);
            return call.drop(message, Reason::Malformed);
        }
        let larger = larger.with_metadata_of(&message);
        call.buffers.recycle(message);
        out.up(larger);
    }
}
