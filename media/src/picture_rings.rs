//! The pictures of one stream that pages can be shown: the last second or two of its access units and
//! images, for any number of pages.
//!
//! `units, images, and when they are due -> rings -> pages`. A page takes from the rings the pictures
//! that follow the last one that it took. A page that is too slow misses pictures up to the next intra
//! picture; no state is kept for any page. Nothing here parses pictures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use parking_lot::Mutex;
use selvedge_control_config::view::{PictureForm, Pictures, StreamPicture};
use selvedge_data_stream::Kind;
use selvedge_units::{Duration, Instant};

use crate::onlookers::{Onlookers, Watched};
use crate::picture::{Codec, Picture};

/// Pictures and bytes that a ring keeps, and pictures that are returned at once.
const PICTURES_MAX: usize = 64;
const BYTES_MAX: usize = 1 << 20;
const TAKEN_MAX: usize = 4;
/// Pictures and bytes of images that arrived before it was known when they are due.
const EARLY_MAX: (usize, usize) = (512, 4 << 20);
/// Times of frames that are due.
const TIMES_MAX: usize = 128;
/// The clock of a ring begins here: what was taken in before has a time too.
const BEGIN: Duration = Duration::from_secs(3_600);
/// Pictures are wanted for this long after a request.
const ASKED: Duration = Duration::from_secs(3);

/// A frame's times, at the moment when it is pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureTimes {
    /// It is to be shown no earlier than after this.
    pub left: Duration,
    /// Since its source took it in; `None` where that is not known.
    pub age: Option<Duration>,
}

/// When a frame is due, and when its source took it in.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    due: Instant,
    taken: Option<Instant>,
}

/// Keeps the pictures of a stream that can be shown.
#[derive(Debug)]
pub struct PictureRings {
    codec: Codec,
    epoch: StdInstant,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    units: Ring,
    images: Ring,
    /// Images without a known frame.
    early: Ring,
    /// The times of frames, by when they are presented.
    times: VecDeque<(Duration, Times)>,
    /// When units and images were last requested.
    asked: [Option<Instant>; 2],
}

impl PictureRings {
    /// For a stream of this codec.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        let ring = || Ring::new(PICTURES_MAX, BYTES_MAX);
        let (units, images, early) = (ring(), ring(), Ring::new(EARLY_MAX.0, EARLY_MAX.1));
        let kept = Kept { units, images, early, times: VecDeque::new(), asked: [None; 2] };
        Self { codec, epoch: StdInstant::now(), kept: Mutex::new(kept) }
    }

    /// Takes a frame that can be decoded, in decoding order; it is to be shown at its time of presentation.
    pub fn push(&self, picture: Picture, present: Duration, times: PictureTimes, unit: &[u8]) {
        self.note_times(times, || Some(present));
        self.push_unit(picture, present, unit);
    }

    /// Records the times of a frame, whose time of presentation `push` returns. No unit or image is taken
    /// meanwhile.
    pub(crate) fn note_times(
        &self,
        PictureTimes { left, age }: PictureTimes,
        push: impl FnOnce() -> Option<Duration>,
    ) {
        let now = self.now();
        let times = Times { due: now + left, taken: age.map(|age| now - age) };
        let mut kept = self.kept.lock();
        let Some(present) = push() else { return };
        if kept.times.len() >= TIMES_MAX {
            kept.times.pop_front();
        }
        kept.times.push_back((present, times));
        if let Some(image) = kept.early.take(present) {
            kept.images.push(true, present, times, image);
        }
    }

    /// The access unit of a frame that is due.
    pub(crate) fn push_unit(&self, picture: Picture, present: Duration, unit: &[u8]) {
        let mut kept = self.kept.lock();
        let times = kept.times_of(present);
        let times = times.unwrap_or_else(|| Times { due: self.now(), taken: None });
        kept.units.push(stands_alone(picture), present, times, unit.into());
    }

    /// Pictures after the one with this number, a few at most.
    #[must_use]
    pub fn pictures(&self, form: PictureForm, after: Option<u64>) -> Pictures {
        let now = self.now();
        let mut kept = self.kept.lock();
        kept.asked[usize::from(form == PictureForm::Images)] = Some(now);
        // Pictures that are images from the beginning need no imager.
        let is_units = form == PictureForm::Coded || self.codec == Codec::Jpeg;
        let ring = if is_units { &kept.units } else { &kept.images };
        Pictures { now, list: ring.after(after) }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + BEGIN + self.epoch.elapsed().into()
    }
}

impl Onlookers for PictureRings {
    /// The recent requests of pages. Pictures that are images from the beginning need no conversion.
    fn watched(&self) -> Watched {
        let now = self.now();
        let asked = self.kept.lock().asked;
        let [units, images] = asked.map(|at| at.is_some_and(|at| now.since(at) < ASKED));
        Watched { units: units || images, images: images && self.codec != Codec::Jpeg }
    }

    /// Small pictures are kept elsewhere.
    fn small(&self, _jpeg: &[u8]) {}

    fn refused(&self, _packets: u64) {}

    /// It is shown once its frame is due.
    fn image(&self, present: Duration, jpeg: &[u8]) {
        let mut kept = self.kept.lock();
        match kept.times_of(present) {
            Some(times) => kept.images.push(true, present, times, jpeg.into()),
            None => kept.early.push(true, present, Times::default(), jpeg.into()),
        }
    }
}

/// Whether a decoder can begin with a picture.
pub(crate) const fn stands_alone(picture: Picture) -> bool {
    match picture.kind {
        Kind::Still | Kind::Audio => true,
        Kind::Intra => picture.closes,
        _ => false,
    }
}

impl Kept {
    /// The times of a picture, if they are known.
    fn times_of(&self, present: Duration) -> Option<Times> {
        self.times.iter().rev().find(|(at, _)| *at == present).map(|(_, times)| *times)
    }
}

#[derive(Debug)]
struct Ring {
    pictures: VecDeque<StreamPicture>,
    bytes: usize,
    next: u64,
    /// The most pictures, and bytes, beside the last picture.
    most: (usize, usize),
}

impl Ring {
    const fn new(pictures: usize, bytes: usize) -> Self {
        Self { pictures: VecDeque::new(), bytes: 0, next: 0, most: (pictures, bytes) }
    }

    fn push(&mut self, intra: bool, present: Duration, times: Times, bytes: Arc<[u8]>) {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes.len();
        let Times { due, taken } = times;
        self.pictures.push_back(StreamPicture { number, intra, present, due, taken, bytes });
        let (pictures, bytes) = self.most;
        while self.pictures.len() > pictures || (self.bytes > bytes && self.pictures.len() > 1) {
            self.bytes -= self.pictures.pop_front().map_or(0, |old| old.bytes.len());
        }
    }

    /// Takes out the picture of this time.
    fn take(&mut self, present: Duration) -> Option<Arc<[u8]>> {
        let at = self.pictures.iter().position(|picture| picture.present == present)?;
        let taken = self.pictures.remove(at)?.bytes;
        self.bytes -= taken.len();
        Some(taken)
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
        // A viewer that is ahead of the last intra picture has already received it.
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
        let mut ring = Ring::new(PICTURES_MAX, BYTES_MAX);
        for n in 0..pictures {
            ring.push(n % 10 == 0, Duration(n), Times::default(), vec![0; size].into());
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
        let (ring, ring_of_none) = (ring(203, 10), ring(0, 10));
        assert_eq!(ring.pictures.len(), PICTURES_MAX);
        assert_eq!(numbers(&ring, None), [200, 201, 202]);
        assert_eq!(numbers(&ring, Some(17)), [200, 201, 202]);
        assert!(numbers(&ring_of_none, None).is_empty());
    }

    #[test]
    fn an_image_is_shown_once_its_frame_is_due() {
        let rings = PictureRings::new(Codec::H264);
        let shown = || rings.pictures(PictureForm::Images, None).list;
        let (first, second) = (Duration::from_millis(40), Duration::from_millis(80));
        rings.image(first, b"one");
        rings.image(second, b"two");
        assert!(shown().is_empty(), "nobody knows yet whether the frames are sent");
        let age = Some(Duration::from_secs(2));
        rings.push(
            Picture::DATA,
            second,
            PictureTimes { left: Duration::from_secs(1), age },
            b"unit",
        );
        let list = shown();
        assert_eq!((list.len(), &*list[0].bytes, list[0].present), (1, &b"two"[..], second));
        let apart = list[0].due.since(list[0].taken.expect("its age is known"));
        assert_eq!(apart, Duration::from_secs(3));
        rings.push(Picture::DATA, Duration::from_secs(9), PictureTimes::default(), b"unit");
        rings.image(Duration::from_secs(9), b"late");
        assert_eq!(&*shown()[0].bytes, b"late");
        let watched = Watched { units: true, images: true };
        assert_eq!(rings.watched(), watched);
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_comes() {
        let ring = ring(500, 100_000);
        assert!(ring.bytes <= BYTES_MAX, "{}", ring.bytes);
        assert_eq!(ring.bytes, ring.pictures.iter().map(|each| each.bytes.len()).sum::<usize>());
        assert_eq!(super::tests::ring(2, 2 * BYTES_MAX).pictures.len(), 1);
    }
}
