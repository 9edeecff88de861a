//! The moving pictures of one stream, for pages: whole frames in, the last second or two of access
//! units and images out, to however many look on.
//!
//! `packets -> Depacketizer -> ring of units (-> Thumbnailer -> ring of images, while asked for)`.
//! Who looks on takes from the rings what follows the last picture taken; who is too slow misses
//! pictures up to the next intra picture, and nothing is kept for anybody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use parking_lot::Mutex;
use selvedge_control_config::view::{PictureForm, Pictures, StreamPicture};
use selvedge_data_stream::Kind;
use selvedge_units::{Duration, Instant};

use crate::depacketizer::Depacketizer;
use crate::error::SourceError;
use crate::picture::{Codec, h264};
use crate::thumbnail::{ImageSize, Thumbnailer};

/// Pictures and bytes that a ring keeps, and pictures that are given out at once.
const PICTURES_MAX: usize = 64;
const BYTES_MAX: usize = 1 << 20;
const TAKEN_MAX: usize = 4;
/// Times of frames on their way through the depacketizer.
const TIMES_MAX: usize = 128;
/// Pictures are wanted for this long after somebody asked.
const ASKED: Duration = Duration::from_secs(3);

/// Keeps what can be shown of a stream.
#[derive(Debug)]
pub struct Preview {
    depacketizer: Mutex<Option<Depacketizer>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    codec: Codec,
    epoch: StdInstant,
    kept: Mutex<Kept>,
    /// Makes images of units, while somebody wants them.
    imager: Mutex<Option<Thumbnailer>>,
}

#[derive(Debug, Default)]
struct Kept {
    units: Ring,
    images: Ring,
    /// When frames were due, by their times of presentation.
    due: VecDeque<(Duration, Instant)>,
    codec: String,
    /// When units and images were asked for last.
    asked: [Option<Instant>; 2],
}

impl Preview {
    /// For a stream of this codec; `None` for sound.
    ///
    /// # Errors
    /// As [`Depacketizer::new`].
    pub fn new(codec: Codec, clock_rate: u32) -> Result<Option<Self>, SourceError> {
        let (kept, imager) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { codec, epoch: StdInstant::now(), kept, imager });
        let to = Arc::clone(&shared);
        let give = move |unit: &[u8], present| to.take_unit(unit, present);
        let depacketizer = Depacketizer::new(codec, clock_rate, give)?;
        Ok(depacketizer.map(|it| Self { depacketizer: Mutex::new(Some(it)), shared }))
    }

    /// Takes all packets of a frame that can be decoded, in decoding order; it is to be shown no
    /// earlier than after `left`. Does not wait.
    pub fn push(&self, packets: &[Vec<u8>], left: Duration) {
        let due = self.shared.now() + left;
        let mut depacketizer = self.depacketizer.lock();
        // The lock is held until the time is noted: the unit comes from another thread.
        let mut kept = self.shared.kept.lock();
        let Some(present) = depacketizer.as_mut().and_then(|it| it.push(packets)) else { return };
        if kept.due.len() >= TIMES_MAX {
            kept.due.pop_front();
        }
        kept.due.push_back((present, due));
    }

    /// The codec as RFC 6381 writes it; empty until it is known, and where a browser has no
    /// decoder for it.
    #[must_use]
    pub fn codec(&self) -> String {
        self.shared.kept.lock().codec.clone()
    }

    /// Whether somebody has asked for pictures lately.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let now = self.shared.now();
        self.shared.kept.lock().asked.iter().flatten().any(|at| now.since(*at) < ASKED)
    }

    /// Pictures behind the one with this number, a few at most.
    #[must_use]
    pub fn pictures(&self, form: PictureForm, after: Option<u64>) -> Pictures {
        let now = self.shared.now();
        let mut kept = self.shared.kept.lock();
        kept.asked[usize::from(form == PictureForm::Images)] = Some(now);
        // What are images from the beginning need no imager.
        let is_units = form == PictureForm::Coded || self.shared.codec == Codec::Jpeg;
        let ring = if is_units { &kept.units } else { &kept.images };
        Pictures { now, list: ring.after(after) }
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        // GStreamer's thread, which holds the other end, has ended then.
        *self.depacketizer.lock() = None;
        *self.shared.imager.lock() = None;
    }
}

impl Shared {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn take_unit(self: &Arc<Self>, unit: &[u8], present: Duration) {
        let picture = self.codec.picture(unit);
        let stands_alone = match picture.kind {
            Kind::Still => true,
            Kind::Intra => picture.closes,
            _ => false,
        };
        let now = self.now();
        let wants_images = {
            let mut kept = self.kept.lock();
            if kept.codec.is_empty()
                && stands_alone
                && self.codec == Codec::H264
                && let Some(id) = h264::profile_level_id(unit)
            {
                kept.codec = format!("avc1.{id}");
            }
            let due = kept.due_of(present, now);
            kept.units.push(stands_alone, present, due, unit);
            self.codec != Codec::Jpeg && kept.asked[1].is_some_and(|asked| now.since(asked) < ASKED)
        };
        let mut imager = self.imager.lock();
        if !wants_images {
            *imager = None;
            return;
        }
        if imager.is_none() {
            let to = Arc::downgrade(self);
            let give = move |jpeg: &[u8], present| {
                if let Some(to) = to.upgrade() {
                    let now = to.now();
                    let mut kept = to.kept.lock();
                    let due = kept.due_of(present, now);
                    kept.images.push(true, present, due, jpeg);
                }
            };
            match Thumbnailer::with_size(self.codec, ImageSize::WATCHED, give) {
                Ok(made) => *imager = made,
                Err(error) => tracing::debug!(%error, "no images"),
            }
        }
        if let Some(imager) = imager.as_mut() {
            imager.feed(picture, present, unit);
        }
    }
}

impl Kept {
    /// When a picture was due; now, if that is known no longer.
    fn due_of(&self, present: Duration, now: Instant) -> Instant {
        self.due.iter().rev().find(|(at, _)| *at == present).map_or(now, |(_, due)| *due)
    }
}

#[derive(Debug, Default)]
struct Ring {
    pictures: VecDeque<StreamPicture>,
    bytes: usize,
    next: u64,
}

impl Ring {
    fn push(&mut self, intra: bool, present: Duration, due: Instant, bytes: &[u8]) {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes.len();
        self.pictures.push_back(StreamPicture { number, intra, present, due, bytes: bytes.into() });
        while self.pictures.len() > PICTURES_MAX
            || (self.bytes > BYTES_MAX && self.pictures.len() > 1)
        {
            self.bytes -= self.pictures.pop_front().map_or(0, |old| old.bytes.len());
        }
    }

    fn after(&self, after: Option<u64>) -> Vec<StreamPicture> {
        let next = after.map(|number| number + 1);
        let follows = |from: &usize| self.pictures.get(*from).map(|p| p.number) == next;
        let of_next = next.zip(self.pictures.front().map(|first| first.number));
        let at = of_next.and_then(|(next, first)| usize::try_from(next.checked_sub(first)?).ok());
        let is_newest = next == Some(self.next);
        let begin = at.filter(follows).or_else(|| {
            if is_newest { None } else { self.pictures.iter().rposition(|each| each.intra) }
        });
        // A viewer who is ahead of the last intra picture has had it.
        let begin = begin.filter(|&at| next.is_none_or(|next| self.pictures[at].number >= next));
        begin.map_or_else(Vec::new, |at| {
            self.pictures.range(at..).take(TAKEN_MAX).cloned().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring, after: Option<u64>) -> Vec<u64> {
        ring.after(after).iter().map(|each| each.number).collect()
    }

    /// Every tenth picture is an intra picture.
    fn ring(pictures: u64, size: usize) -> Ring {
        let mut ring = Ring::default();
        for n in 0..pictures {
            ring.push(n % 10 == 0, Duration(n), Instant(n), &vec![0; size]);
        }
        ring
    }

    #[test]
    fn who_keeps_up_gets_every_picture_once() {
        let ring = ring(13, 10);
        assert_eq!(numbers(&ring, Some(8)), [9, 10, 11, 12]);
        assert!(numbers(&ring, Some(12)).is_empty());
        assert_eq!(numbers(&ring, Some(0)), (1..5).collect::<Vec<_>>(), "a few at a time");
    }

    #[test]
    fn who_is_new_or_too_slow_begins_with_the_last_intra_picture() {
        let ring = ring(203, 10);
        assert_eq!(ring.pictures.len(), PICTURES_MAX);
        assert_eq!(numbers(&ring, None), [200, 201, 202]);
        assert_eq!(numbers(&ring, Some(17)), [200, 201, 202]);
        assert!(numbers(&Ring::default(), None).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_comes() {
        let ring = ring(500, 100_000);
        assert!(ring.bytes <= BYTES_MAX, "{}", ring.bytes);
        assert_eq!(ring.bytes, ring.pictures.iter().map(|each| each.bytes.len()).sum::<usize>());
        assert_eq!(super::tests::ring(2, 2 * BYTES_MAX).pictures.len(), 1);
    }
}
