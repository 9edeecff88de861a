//! Cameras and viewers for C, and for Python by `ctypes`: opaque handles, integers with their unit in the name, errors by
//! return code. The header `include/selvedge_frames.h` is written by hand; a test compiles it with two programs.
//!
//! C calls this crate, which calls [`selvedge_comm_frames`]. Pointers can only be checked for null. A panic stops here:
//! the call returns [`Error::Panic`].

mod call;

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::path::Path;

use selvedge_comm_frames::{Camera, ConnectError, FrameInfo, FrameKind, ReadError};
use selvedge_comm_frames::{Refused, Viewer, WriteError};
use selvedge_units::{Duration, Instant};

use call::{call, free_handle, hand_over, text};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// A pointer is null.
    Null = -1,
    /// A text is not UTF-8, or a number is none of those that the header lists.
    Value = -2,
    /// The node does not listen, or does not answer.
    Connect = -3,
    /// The node refuses the program.
    Refused = -4,
    /// The memory is full: the frame is left out.
    Full = -5,
    /// The frame is empty, or never fits.
    Size = -6,
    /// The node has gone.
    Gone = -7,
    /// What came is no frame.
    Corrupt = -8,
    /// A fault in the library.
    Panic = -9,
}

/// What is stated of a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    number: u64,
    at_ns: u64,
    deadline_ns: u64,
    kind: u32,
    decodable: u32,
}

/// What became of a camera's frames.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameCounts {
    taken: u64,
    sent: u64,
    dropped: u64,
    decodable: u64,
    left_out: u64,
    aim_bps: u64,
}

/// A viewer, and the bytes of its last frame.
#[derive(Debug)]
pub struct ViewerHandle {
    viewer: Viewer,
    bytes: Vec<u8>,
    encoding: CString,
}

fn connect_code(error: &ConnectError) -> Error {
    match error {
        ConnectError::Refused(_) => Error::Refused,
        ConnectError::Segment(_) => Error::Corrupt,
        _ => Error::Connect,
    }
}

/// Connects a camera.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_camera_connect(
    path: *const c_char,
    encoding: *const c_char,
    camera: *mut *mut Camera,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        hand_over(camera, || {
            let (path, encoding) = (text(path)?, text(encoding)?);
            Camera::connect(Path::new(path), encoding)
                .map_err(|error| call::keep(connect_code(&error), &error))
        })
    }
}

/// Gives the node a frame.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_camera_write(
    camera: *mut Camera,
    info: *const Info,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let (camera, info) = unsafe { (camera.as_mut(), info.as_ref()) };
    call(|| {
        let camera = camera.ok_or(Error::Null)?;
        if bytes.is_null() {
            return Err(Error::Null);
        }
        let info = match info {
            None => FrameInfo::default(),
            Some(info) => FrameInfo {
                at: Instant(info.at_ns),
                deadline: Instant(info.deadline_ns),
                kind: *FrameKind::ALL.get(info.kind as usize).ok_or(Error::Value)?,
                ..FrameInfo::default()
            },
        };
        // SAFETY: not null; the caller promises `len` bytes.
        let bytes = unsafe { core::slice::from_raw_parts(bytes.cast(), len) };
        camera.write(info, bytes).map(|()| 0).map_err(|error| {
            let code = match error {
                WriteError::Refused(Refused::Full) => Error::Full,
                WriteError::Refused(_) => Error::Size,
                WriteError::Gone => Error::Gone,
            };
            call::keep(code, &error)
        })
    })
}

/// What became of the frames.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_camera_counts(
    camera: *const Camera,
    counts: *mut FrameCounts,
) -> c_int {
    // SAFETY: passed on from the caller.
    let camera = unsafe { camera.as_ref() };
    call(|| {
        let camera = camera.ok_or(Error::Null)?;
        if counts.is_null() {
            return Err(Error::Null);
        }
        let now = camera.counts();
        let all = FrameCounts {
            taken: now.taken,
            sent: now.sent,
            dropped: now.dropped,
            decodable: now.decodable,
            left_out: camera.left_out(),
            aim_bps: now.aim.0,
        };
        // SAFETY: not null; the caller promises room.
        unsafe { counts.write(all) };
        Ok(0)
    })
}

/// Whether the node asked for a key picture since the last call.
///
/// # Safety
/// `camera` must be null or a camera.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_camera_key_request(camera: *mut Camera) -> c_int {
    // SAFETY: passed on from the caller.
    let camera = unsafe { camera.as_mut() };
    call(|| camera.ok_or(Error::Null).map(|camera| camera.take_key_request().into()))
}

/// Disconnects a camera.
///
/// # Safety
/// `camera` must be null or a camera, and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_camera_free(camera: *mut Camera) {
    // SAFETY: passed on from the caller.
    unsafe { free_handle(camera) };
}

/// Connects a viewer.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_viewer_connect(
    path: *const c_char,
    viewer: *mut *mut ViewerHandle,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        hand_over(viewer, || {
            let viewer = Viewer::connect(Path::new(text(path)?))
                .map_err(|error| call::keep(connect_code(&error), &error))?;
            let encoding = CString::new(viewer.encoding().unwrap_or("")).unwrap_or_default();
            Ok(ViewerHandle { viewer, bytes: Vec::new(), encoding })
        })
    }
}

/// Waits for the next frame: 1 if it came, 0 if none did.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_viewer_read(
    viewer: *mut ViewerHandle,
    timeout_ns: u64,
    info: *mut Info,
    bytes: *mut *const u8,
    len: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let viewer = unsafe { viewer.as_mut() };
    call(|| {
        let ViewerHandle { viewer, bytes: kept, .. } = viewer.ok_or(Error::Null)?;
        if info.is_null() || bytes.is_null() || len.is_null() {
            return Err(Error::Null);
        }
        let read = viewer.read(Duration(timeout_ns), kept).map_err(|error| {
            let code = if error == ReadError::Gone { Error::Gone } else { Error::Corrupt };
            call::keep(code, &error)
        })?;
        let Some(frame) = read else { return Ok(0) };
        let stated = Info {
            number: frame.number,
            at_ns: frame.at.0,
            deadline_ns: frame.deadline.0,
            kind: frame.kind as u32,
            decodable: frame.is_decodable.into(),
        };
        // SAFETY: none is null; the caller promises room.
        unsafe {
            info.write(stated);
            bytes.write(kept.as_ptr());
            len.write(kept.len());
        }
        Ok(1)
    })
}

/// The encoding of the viewer's stream; empty if the node did not know it yet.
///
/// # Safety
/// `viewer` must be null or a viewer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_viewer_encoding(viewer: *const ViewerHandle) -> *const c_char {
    // SAFETY: passed on from the caller.
    unsafe { viewer.as_ref() }.map_or(c"".as_ptr(), |viewer| viewer.encoding.as_ptr())
}

/// Disconnects a viewer.
///
/// # Safety
/// `viewer` must be null or a viewer, and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_viewer_free(viewer: *mut ViewerHandle) {
    // SAFETY: passed on from the caller.
    unsafe { free_handle(viewer) };
}

/// The meaning of a return value.
#[unsafe(no_mangle)]
pub extern "C" fn selvedge_frames_error_text(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        0.. => c"no error",
        -1 => {
            c"a pointer is null; pass a handle that a connect call made, and room for each result"
        }
        -2 => c"a text is not UTF-8, or a kind is none of the header's; correct the argument",
        -3 => c"no node answers at this path; start one whose stream names it",
        -4 => c"the node refuses; selvedge_frames_last_error has the reason",
        -5 => c"the memory is full, so the frame is left out; go on with the next",
        -6 => c"the frame is empty, or longer than half of the memory; write smaller frames",
        -7 => c"the node has gone; free the handle and connect again",
        -8 => c"what came is no frame; use library and node of one release",
        _ => c"a fault in the library; please report it",
    };
    text.as_ptr()
}

/// The last error of this thread with its values.
#[unsafe(no_mangle)]
pub extern "C" fn selvedge_frames_last_error() -> *const c_char {
    call::last()
}
