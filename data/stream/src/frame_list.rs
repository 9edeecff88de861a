//! Lists of frames: the kinds, sizes and references of a clip's frames, without the pictures.
//!
//! One frame a line, in decoding order: `Pr 15059 1,2` is its kind, with an `r` behind it if later
//! frames refer to it; its bytes; and how far back the frames lie that it refers to, if there are any.
//! Experiments and simulations play it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use selvedge_units::Bytes;

use crate::{Kind, References};

/// The most frames of a list.
pub const LISTED_FRAMES_MAX: usize = 1_000_000;
/// The largest frame of a list.
pub const LISTED_FRAME_MAX: Bytes = Bytes(16_000_000);

/// A frame of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFrame {
    /// Its relation to other frames.
    pub kind: Kind,
    /// Whether later frames may refer to it.
    pub referenced: bool,
    /// Bytes of its payload, 1 to [`LISTED_FRAME_MAX`].
    pub size: Bytes,
    /// The frames that it refers to.
    pub refs: References,
}

/// The frames of a clip in decoding order, played round and round; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameList(Vec<ListedFrame>);

/// Why a text is not a list of frames: the line, from 1, and what stands there, cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameListError {
    /// It has no line.
    #[error("the list has no frames; write one a line, such as \"Pr 15059 1,2\"")]
    Empty,
    /// It has too many lines.
    #[error("the list has more than {LISTED_FRAMES_MAX} frames; cut it")]
    TooLong,
    /// A line does not begin with a kind.
    #[error(
        "line {0}: \"{1}\" is no kind of frame; write I, P, B, still, audio or data, with an \
        r behind it if frames refer to it"
    )]
    Kind(usize, String),
    /// A line's second field is not a size.
    #[error("line {0}: \"{1}\" is not a number of bytes from 1 to {max}", max = LISTED_FRAME_MAX.0)]
    Size(usize, String),
    /// What stands behind the size is not a list of distances.
    #[error(
        "line {0}: \"{1}\" does not say how far back references are; write 1 to 65534 each, \
        such as \"1,3\", or nothing"
    )]
    References(usize, String),
}

impl FrameList {
    /// A list of these frames.
    ///
    /// # Errors
    /// [`FrameListError::Empty`], [`FrameListError::TooLong`].
    pub fn new(frames: Vec<ListedFrame>) -> Result<Self, FrameListError> {
        match frames.len() {
            0 => Err(FrameListError::Empty),
            1..=LISTED_FRAMES_MAX => Ok(Self(frames)),
            _ => Err(FrameListError::TooLong),
        }
    }

    /// Reads a list.
    ///
    /// # Errors
    /// [`FrameListError`] for the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, FrameListError> {
        let mut frames = Vec::new();
        for (n, line) in text.lines().enumerate() {
            if n == LISTED_FRAMES_MAX {
                return Err(FrameListError::TooLong);
            }
            frames.push(ListedFrame::parse(n + 1, line)?);
        }
        Self::new(frames)
    }

    /// Makes the list begin with the first intra picture at `first` or behind it, if there is one; what
    /// stood before comes at the end. In open groups that picture is not its group's first frame.
    #[must_use]
    pub fn beginning_at(mut self, first: usize) -> Self {
        let rest = self.0.iter().skip(first);
        let after = rest.map(|frame| frame.kind).position(|kind| kind == Kind::Intra);
        self.0.rotate_left(after.map_or(0, |after| first + after));
        self
    }

    /// The frame of this number, from 0, where the list is played round and round. What it refers to
    /// before the first frame of all is not missed.
    #[must_use]
    pub fn frame(&self, seq: u32) -> ListedFrame {
        let frame = self.0[seq as usize % self.0.len()];
        let there = frame.refs.distances().map(u32::from).filter(|&back| back <= seq);
        ListedFrame { refs: References::to(there), ..frame }
    }
}

/// As its text.
impl fmt::Display for FrameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|frame| writeln!(f, "{frame}"))
    }
}

/// As its line.
impl fmt::Display for ListedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.referenced { "r" } else { "" };
        write!(f, "{}{mark} {}", self.kind.name(), self.size.0)?;
        for (n, back) in self.refs.distances().enumerate() {
            write!(f, "{}{back}", if n == 0 { ' ' } else { ',' })?;
        }
        Ok(())
    }
}

impl ListedFrame {
    fn parse(line: usize, text: &str) -> Result<Self, FrameListError> {
        let mut fields = text.splitn(3, ' ');
        let mut next = || fields.next().unwrap_or_default();
        let (name, size, refs) = (next(), next(), next());
        let found =
            |text: &str| text.chars().take(40).flat_map(char::escape_debug).collect::<String>();
        let kind = Kind::from_name(name.strip_suffix('r').unwrap_or(name));
        let kind = kind.ok_or_else(|| FrameListError::Kind(line, found(name)))?;
        let bytes = size.parse().ok().filter(|bytes| (1..=LISTED_FRAME_MAX.0).contains(bytes));
        let bytes = bytes.ok_or_else(|| FrameListError::Size(line, found(size)))?;
        let back = |text: &str| text.parse().ok().filter(|back| (1..u16::MAX).contains(back));
        let mut distances = References::NONE;
        for text in refs.split(',').filter(|_| !refs.is_empty()) {
            let back: u16 =
                back(text).ok_or_else(|| FrameListError::References(line, found(refs)))?;
            distances = distances.with(back.into());
        }
        let referenced = name.ends_with('r');
        Ok(Self { kind, referenced, size: Bytes(bytes), refs: distances })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_list_is_played_round_and_round() {
        let list = FrameList::parse("Ir 900 \nB 70 1,3\r\nPr 80 2,60\n").unwrap();
        let refs = |seq: u32| list.frame(seq).refs.distances().collect::<Vec<_>>();
        assert_eq!((list.frame(0).kind, list.frame(0).referenced), (Kind::Intra, true));
        assert_eq!((list.frame(1).kind, list.frame(1).referenced), (Kind::Bidirectional, false));
        assert_eq!(
            [refs(1), refs(4), refs(2), refs(62)],
            [vec![1], vec![1, 3], vec![2], vec![2, 60]]
        );
        assert_eq!(list.frame(4).size, Bytes(70));
        let moved = list.clone().beginning_at(1);
        assert_eq!(moved, list, "no intra picture is left");
        let two = FrameList::parse("Pr 1\nIr 2\nPr 3\nIr 4").unwrap();
        let sizes = |list: FrameList| [0, 1, 2, 3].map(|n| list.frame(n).size.0);
        assert_eq!(sizes(two.clone().beginning_at(0)), [2, 3, 4, 1]);
        assert_eq!(sizes(two.clone().beginning_at(2)), [4, 1, 2, 3]);
        assert_eq!(sizes(two.beginning_at(usize::MAX)), [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let say = |text: &str| FrameList::parse(text).unwrap_err().to_string();
        assert!(say("").starts_with("the list has no frames"));
        assert!(say("Ir 1\n\nPr 2 1").starts_with("line 2: \"\" is no kind of frame"));
        assert!(say("Ir 1\nQ 2").starts_with("line 2: \"Q\" is no kind of frame"));
        assert!(say("Ir").starts_with("line 1: \"\" is not a number of bytes"));
        assert!(say("Ir 0").starts_with("line 1: \"0\" is not a number of bytes"));
        assert!(say("Ir 16000001").starts_with("line 1: \"16000001\" is not"));
        for refs in ["0", "1,", "1,65535", "-1", "1;2", "1 1", " "] {
            assert!(
                say(&alloc::format!("Ir 1 {refs}"))
                    .contains(&alloc::format!("\"{refs}\" does not say"))
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long, and is pure arithmetic")]
    fn a_long_text_has_a_short_message() {
        assert!(FrameList::parse(&"x".repeat(1_000_000)).unwrap_err().to_string().len() < 200);
        assert_eq!(
            FrameList::parse(&"I 1\n".repeat(LISTED_FRAMES_MAX + 1)),
            Err(FrameListError::TooLong)
        );
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "pure arithmetic, and cases are kept in files")]
        fn survives_any_text(text in "([IPBrstilaudo]{0,3} ?[0-9]{0,9} ?[0-9,]{0,9} ?\n?){0,9}|.{0,99}", seq: u32) {
            if let Ok(list) = FrameList::parse(&text) {
                prop_assert!(list.frame(seq).size <= LISTED_FRAME_MAX);
                prop_assert_eq!(FrameList::parse(&list.to_string()), Ok(list.clone()));
                prop_assert!(list.frame(seq % 9).refs.distances().all(|back| u32::from(back) <= seq % 9));
            }
        }
    }
}
