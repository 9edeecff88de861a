//! Frames between programs and a node of the same host, through shared memory.
//!
//! A program is a [`Camera`], which gives a node the frames of one stream, or a [`Viewer`], which gets the frames of
//! one. The node's end is a [`CameraPort`] or a [`ViewerPort`], at a path of the file system. Each connection has a
//! segment of its own: a ring of descriptors and a pool of frames ([`Segment`]). The node makes it, seals it and hands
//! it over. A writer wakes its reader by a message on the socket, and only if the reader sleeps.
//!
//! No end trusts the other: descriptors are checked, and bytes copied out once before anybody looks at them.

mod camera;
mod camera_port;
mod counts;
mod frame;
mod greeting;
mod newcomers;
mod reader;
mod segment;
mod viewer;
mod viewer_port;
mod writer;

pub use camera::{Camera, WriteError};
pub use camera_port::CameraPort;
pub use counts::{Board, Counts};
pub use frame::{FrameInfo, FrameKind};
pub use greeting::{ConnectError, Greeting, Role};
pub use newcomers::ListenError;
pub use reader::{Corrupt, FrameReader};
pub use segment::{Layout, Segment, SegmentError};
pub use viewer::{ReadError, Viewer};
pub use viewer_port::ViewerPort;
pub use writer::{FrameWriter, Refused};
