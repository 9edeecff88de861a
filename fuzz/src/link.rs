//! The link under any sequence of operations in virtual time, checked against a plain account of every
//! frame (`book`).
//!
//! Input: the link's parameters, then operations of a byte each with their arguments. The bytes choose
//! streams and arrivals freely; the caller's side of the contract is kept: time does not go back, and
//! `sent` and `failed` follow a poll.

mod book;

use crate::choices::Choices;
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::{Contract, DropReason, Frame, Kind, Late, References, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use book::Book;

const FRAMES_MAX: usize = 4000;
const STREAMS_MAX: usize = 12;
const MTU: Bytes = Bytes(1500);

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let params = params(&mut choices);
    let mut run = Run {
        link: Link::new(params),
        book: Book::new(params.selection),
        now: Instant(1_000_000),
        streams: Vec::new(),
        next_seq: Vec::new(),
    };
    for _ in 0..1 + choices.byte() % 4 {
        run.add_stream(&mut choices);
    }
    while !choices.is_empty() && run.book.offered() < FRAMES_MAX {
        run.operate(&mut choices);
        run.book.check(&mut run.link, &run.streams, run.now);
    }
    run.drain();
    run.book.close(&run.link, &run.streams);
}

fn params(choices: &mut Choices<'_>) -> LinkParams {
    // `vds` never sends a stream that it owes nothing and that waits for its period: such a link need
    // not run dry, which this target checks.
    let runs_dry = || Discipline::ALL.into_iter().filter(|&d| d != Discipline::Vds).cycle();
    let discipline = runs_dry().nth(choices.byte().into()).unwrap_or_default();
    let flags = choices.byte();
    let queue = (flags & 2 != 0).then(|| Bytes(u64::from(choices.word()) * 16));
    LinkParams {
        discipline,
        selection: flags & 1 == 0,
        rate: rate(choices),
        burst: if flags & 4 != 0 { Bytes(choices.word().into()) } else { MTU },
        catch_up: (flags & 8 != 0).then(|| Bytes(choices.word().into())),
        mtu: MTU,
        queue,
    }
}

/// 1 kbit/s to 65 Gbit/s.
fn rate(choices: &mut Choices<'_>) -> Bitrate {
    let factor = [1, 1_000, 1_000, 1_000_000][usize::from(choices.byte() % 4)];
    Bitrate::from_kbps(u64::from(choices.word().max(1)) * factor)
}

fn windows(choices: &mut Choices<'_>) -> Windows {
    let mut window = || {
        let (a, b) = (choices.byte(), choices.byte());
        Window { lose: a.min(b).into(), of: b.into() }
    };
    let first = window();
    if first.lose != 7 {
        return Windows::Whole(first);
    }
    Windows::PerKind([(); Kind::COUNT].map(|()| window()))
}

fn contract(choices: &mut Choices<'_>) -> Contract {
    let flags = choices.byte();
    let period = Duration(choices.magnitude().clamp(100_000, 3_600_000_000_000));
    let windows = windows(choices);
    Contract {
        windows,
        late: if flags & 1 == 0 { Late::Drop } else { Late::Send },
        work_conserving: flags & 2 == 0,
        weight: if flags & 4 == 0 { 1 } else { u32::from(choices.word() % 1000) + 1 },
        priority: if flags & 8 == 0 { 0 } else { i32::from(choices.byte().cast_signed()) },
        delay: (flags & 16 == 0).then(|| Duration::from_millis(1 + u64::from(choices.word()))),
        ..Contract::new(period, Window::NONE)
    }
}

struct Run {
    link: Link,
    book: Book,
    now: Instant,
    /// Every place that ever belonged to a stream; some streams may be removed.
    streams: Vec<StreamIndex>,
    /// The next frame number, by place.
    next_seq: Vec<u32>,
}

impl Run {
    fn add_stream(&mut self, choices: &mut Choices<'_>) {
        let contract = contract(choices);
        let stream = self.link.add_stream(contract);
        let place = stream.0 as usize;
        if place == self.streams.len() {
            self.streams.push(stream);
            self.next_seq.push(0);
        }
        self.next_seq[place] = choices.long();
        self.book.add_stream(stream, contract.late);
    }

    fn pick(&self, choices: &mut Choices<'_>) -> StreamIndex {
        self.streams[usize::from(choices.byte()) % self.streams.len()]
    }

    fn operate(&mut self, choices: &mut Choices<'_>) {
        let op = choices.byte();
        match op % 24 {
            0..=5 => {
                let stream = self.pick(choices);
                self.frame(choices, stream);
            }
            6 | 7 => {
                let stream = self.pick(choices);
                let (count, gap) = (choices.byte(), choices.magnitude().min(1_000_000_000));
                let size = choices.word();
                for n in 0..count {
                    self.now += Duration(gap);
                    self.group_frame(stream, n, size);
                }
            }
            8..=10 => self.now += Duration(choices.magnitude().min(1 << 50)),
            11..=15 => {
                self.transmit(choices.byte(), None);
            }
            16 | 17 => {
                for _ in 0..choices.byte() {
                    self.transmit(0, None);
                }
            }
            18 => {
                let reason = usize::from(choices.byte()) % 2;
                self.transmit(0, Some([DropReason::Unusable, DropReason::SendFailed][reason]));
            }
            19 => self.link.set_rate(self.now, rate(choices)),
            20 => {
                let stream = self.pick(choices);
                self.link.set_windows(stream, windows(choices));
                self.link.set_priority(stream, i32::from(choices.byte().cast_signed()));
            }
            21 => self.link.clear_stream(self.now, self.pick(choices)),
            22 if choices.byte().is_multiple_of(4) => {
                let stream = self.pick(choices);
                self.link.remove_stream(self.now, stream);
                self.book.remove_stream(stream);
            }
            23 if self.streams.len() < STREAMS_MAX => self.add_stream(choices),
            _ => {}
        }
    }

    /// A frame with unusual values in every field.
    fn frame(&mut self, choices: &mut Choices<'_>, stream: StreamIndex) {
        let what = choices.byte();
        let kind = Kind::ALL[usize::from(what & 7) % Kind::COUNT];
        let refs = match what >> 3 & 7 {
            0..=2 => References::NONE,
            3 => References::to([1]),
            4 => References::to([1, 2]),
            5 => References::to([choices.byte().into(), choices.byte().into()]),
            6 => References::to([choices.word() % 2048, choices.word() % 2048].map(u32::from)),
            _ => References::UNKNOWN,
        };
        let how = choices.byte();
        let skipped = match how & 7 {
            0 => i32::from(choices.byte()),
            1 => i32::from(choices.word().cast_signed()),
            _ => 0,
        };
        let size = Bytes(match how >> 3 & 3 {
            0 => choices.magnitude().min(1 << 24),
            1 => u64::from(choices.byte()) * 1000,
            _ => choices.word().into(),
        });
        let arrival = match how >> 5 & 1 {
            0 => self.now,
            _ => self.now - Duration::from_millis(choices.word().into()),
        };
        let delay = |choices: &mut Choices<'_>| Duration::from_millis(choices.word().into());
        let deadline = (how >> 6 == 0).then(|| arrival + delay(choices));
        let place = stream.0 as usize;
        let frame = Frame {
            seq: self.next_seq[place].wrapping_add_signed(skipped),
            kind,
            referenced: what & 64 != 0,
            refs,
            packets: u16::from(what >> 7) * 7 + 1,
            size,
            arrival,
            deadline,
            payload: PayloadSpan::default(),
        };
        self.enqueue(stream, frame);
    }

    /// A frame of a group of nine pictures: I B B P B B P B B.
    fn group_frame(&mut self, stream: StreamIndex, n: u8, size: u16) {
        let (kind, refs, share) = match n % 9 {
            0 => (Kind::Intra, References::NONE, 8),
            n if n % 3 == 0 => (Kind::Predicted, References::to([3]), 3),
            n => (Kind::Bidirectional, References::to([(n % 3).into()]), 1),
        };
        let size = Bytes(u64::from(size) * share);
        let frame = Frame {
            seq: self.next_seq[stream.0 as usize],
            kind,
            referenced: kind != Kind::Bidirectional,
            refs,
            packets: size.0.div_ceil(1400).clamp(1, 40) as u16,
            size,
            arrival: self.now,
            deadline: None,
            payload: PayloadSpan::default(),
        };
        self.enqueue(stream, frame);
    }

    fn enqueue(&mut self, stream: StreamIndex, mut frame: Frame) {
        if self.book.offered() >= FRAMES_MAX {
            return;
        }
        self.book.enqueue(stream, &mut frame);
        self.next_seq[stream.0 as usize] = frame.seq.wrapping_add(1);
        self.link.handle_frame(self.now, stream, frame);
        self.book.settle(&mut self.link);
    }

    /// Sends the next packet as soon as it may leave, or reports that it can't be sent. False if there
    /// is none.
    fn transmit(&mut self, odd: u8, failure: Option<DropReason>) -> bool {
        let Some(first) = self.link.poll_transmit(self.now) else { return false };
        let size = self.book.packet_size(&first, odd);
        self.now = self.now.max(self.link.departure(size));
        // Waiting may have changed the choice.
        let polled = self.link.poll_transmit(self.now);
        self.book.settle(&mut self.link);
        let Some(next) = polled else { return true };
        self.book.polled(&next, self.now);
        let size = self.book.packet_size(&next, odd);
        match failure {
            Some(reason) => self.link.failed(self.now, reason),
            None if self.link.departure(size) <= self.now => {
                self.book.sent(&next, size);
                self.link.sent(self.now, size);
                // Without another poll these change nothing.
                self.link.sent(self.now, size);
                self.link.failed(self.now, DropReason::SendFailed);
            }
            None => {}
        }
        self.book.settle(&mut self.link);
        true
    }

    /// Sends until nothing waits.
    fn drain(&mut self) {
        let mut steps = 10_000 + 8 * self.book.packets();
        loop {
            steps -= 1;
            assert!(steps > 0, "the link never runs dry");
            if self.transmit(0, None) {
                continue;
            }
            let Some(next) = self.link.next_event(self.now) else { break };
            assert!(next > self.now, "the next event is to come");
            self.now = next;
        }
        self.book.check(&mut self.link, &self.streams, self.now);
    }
}
