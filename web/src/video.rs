//! The moving pictures and the sound of one WebSocket: the tracks that it watches, and its position in each.
//!
//! Pictures are taken from the node's rings a few at a time, when the socket takes more. Pictures that
//! a slow client misses are left out up to the next intra picture; none are kept for it here.

use std::collections::BTreeMap;

use selvedge_control_config::view::{NodeView, PictureForm, Pictures, StreamPicture};
use selvedge_units::Duration;
use serde_json::Value;

use crate::problem::Problem;

/// The most tracks that a client may watch at a time.
const TRACKS_MAX: usize = 64;
/// Replaces a stream's index in front of a moving picture.
const MARK: u16 = u16::MAX;
/// Bits of a picture's flags.
const INTRA: u8 = 1;
const IMAGE: u8 = 2;

/// The tracks that a client watches.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    tracks: BTreeMap<u16, Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    form: PictureForm,
    last: Option<u64>,
}

impl Watching {
    /// Watches nothing.
    pub(crate) fn clear(&mut self) {
        self.tracks.clear();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.tracks.is_empty()
    }

    /// Takes `[[TRACK, "coded"], [TRACK, "images"], ...]`: the tracks that are watched from now on.
    pub(crate) fn set(&mut self, wanted: &Value) -> Result<(), Problem> {
        let track = |each: &Value| {
            let track =
                u16::try_from(each.get(0)?.as_u64()?).ok().filter(|&track| track != MARK)?;
            let form = match each.get(1)?.as_str()? {
                "coded" => PictureForm::Coded,
                "images" => PictureForm::Images,
                _ => return None,
            };
            let known = self.tracks.get(&track).filter(|known| known.form == form).copied();
            Some((track, known.unwrap_or(Progress { form, last: None })))
        };
        let list = wanted.as_array().filter(|list| list.len() <= TRACKS_MAX);
        let tracks = list.and_then(|list| list.iter().map(track).collect::<Option<_>>());
        self.tracks = tracks.ok_or_else(|| {
            let message = format!("\"watch\" is not a list of at most {TRACKS_MAX} tracks");
            let remedy = "send {\"watch\": [[0, \"coded\"], [1, \"images\"]]}";
            Problem::bad("bad-value", "watch", message, remedy)
        })?;
        Ok(())
    }

    /// The messages that are due now: of each track the next few pictures.
    pub(crate) fn take(&mut self, view: &dyn NodeView) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for (&track, progress) in &mut self.tracks {
            let Pictures { now, list } = view.pictures(track.into(), progress.form, progress.last);
            for picture in &list {
                let left = i128::from(picture.due.0) - i128::from(now.0);
                let age = picture.taken.map(|taken| now.since(taken));
                messages.push(message(track, progress.form, picture, left, age));
                progress.last = Some(picture.number);
            }
        }
        messages
    }
}

/// `[u16 0xffff][u16 track][u8 flags][u8 0][u32 number][i32 ms until it is due][f64 time of
/// presentation in microseconds][i32 ms since its source took it in, or -1][bytes]`, big-endian.
fn message(
    track: u16,
    form: PictureForm,
    picture: &StreamPicture,
    left: i128,
    age: Option<Duration>,
) -> Vec<u8> {
    let age = age.map_or(-1, |age| i32::try_from(age.0 / 1_000_000).unwrap_or(i32::MAX));
    let left =
        i32::try_from(left / 1_000_000).unwrap_or(if left < 0 { i32::MIN } else { i32::MAX });
    let image = if form == PictureForm::Images { IMAGE } else { 0 };
    let intra = if picture.intra { INTRA } else { 0 };
    let mut message = Vec::with_capacity(26 + picture.bytes.len());
    message.extend_from_slice(&MARK.to_be_bytes());
    message.extend_from_slice(&track.to_be_bytes());
    message.extend_from_slice(&[image | intra, 0]);
    message.extend_from_slice(&(picture.number as u32).to_be_bytes());
    message.extend_from_slice(&left.to_be_bytes());
    message.extend_from_slice(&(picture.present.0 as f64 / 1e3).to_be_bytes());
    message.extend_from_slice(&age.to_be_bytes());
    message.extend_from_slice(&picture.bytes);
    message
}
