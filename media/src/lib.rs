//! Media: where frames come from, what their pictures are to each other, small pictures of them.

#![forbid(unsafe_code)]

pub mod picture;

pub use picture::{Codec, Picture};
