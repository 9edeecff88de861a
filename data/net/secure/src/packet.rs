//! Sealed packets of a connection.
//!
//! | offset | what, big-endian |
//! |---|---|
//! | 0 | the connection, `u32` |
//! | 4 | the packet's number, `u64`: counted, never used twice with a key |
//! | 12 | the text, encrypted; none in a keepalive |
//! | end | the tag, 16 bytes, over all before it |
//!
//! The number's upper 42 bits are the *epoch*. Each epoch has a key of its own, derived from the previous one
//! (as TLS 1.3 and QUIC update keys), so a leaked key opens no older packet. An epoch ends after 2^22
//! packets, half of what RFC 9001 allows AES-GCM, or 120 s; then the numbers continue with the next epoch's
//! first.

use selvedge_units::{Duration, Instant};
use zeroize::Zeroize;

use crate::aead::{AeadKey, Cipher, TAG};
use crate::key::Key;
use crate::window::{SequenceStatus, Window};

/// Bytes before the text.
pub const HEADER: usize = 12;
/// Bytes that sealing adds.
pub const OVERHEAD: usize = HEADER + TAG;
/// Packets of an epoch, and its longest time.
const PACKETS: u64 = 1 << 22;
const LASTS: Duration = Duration::from_secs(120);
/// The most epochs that may begin without an arriving packet of theirs.
const SKIPPED_MAX: u64 = 4;
/// The most packets that may fail to authenticate: RFC 9001, 6.6, for AES-GCM.
const FORGED_MAX: u64 = 1 << 52;

/// The key after this one, and the key derived from it for its epoch's packets.
fn step(secret: &Key) -> Key {
    secret.derived("selvedge next secret")
}

fn packet_key(secret: &Key) -> AeadKey {
    AeadKey::new(Cipher::Aes256, &secret.derived("selvedge packet key"))
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// Why a packet can't be sealed. It is not sent then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The cipher fails.
    #[error("packet {0} can't be encrypted")]
    Cipher(u64),
    /// There are no more numbers.
    #[error("the connection has no more packet numbers; connect again")]
    Exhausted,
}

/// Why a packet is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is too short, or belongs to another connection.
    #[error("no packet of connection {0:08x}")]
    Malformed(u32),
    /// It was not sealed with this connection's key, or was changed.
    #[error("packet {0} is forged or damaged")]
    Forged(u64),
    /// It arrived before.
    #[error("packet {0} came before")]
    Replayed(u64),
    /// It is so old that a replay could not be detected.
    #[error("packet {0} is too old")]
    Late(u64),
    /// The limit of forged packets is reached: the connection must end.
    #[error("{FORGED_MAX} packets were forged; the connection ends")]
    Limit,
}

/// Seals the packets that one end of a connection sends.
#[derive(Debug)]
pub struct Sealer {
    connection: u32,
    secret: Key,
    key: AeadKey,
    epoch: u64,
    next: u64,
    since: Instant,
}

impl Sealer {
    pub(crate) fn new(connection: u32, secret: Key, now: Instant) -> Self {
        let key = packet_key(&secret);
        Self { connection, secret, key, epoch: 0, next: 0, since: now }
    }

    /// Encrypts a text in place; returns the header before it and the tag behind it.
    ///
    /// # Errors
    /// [`SealError`]; nothing of the text is left then.
    pub fn seal(
        &mut self,
        text: &mut [u8],
        now: Instant,
    ) -> Result<([u8; HEADER], [u8; TAG]), SealError> {
        let sealed = self.sealed(text, now);
        if sealed.is_err() {
            text.zeroize();
        }
        sealed
    }

    fn sealed(
        &mut self,
        text: &mut [u8],
        now: Instant,
    ) -> Result<([u8; HEADER], [u8; TAG]), SealError> {
        let is_over = now.since(self.since) >= LASTS && self.next > self.epoch * PACKETS;
        let number = if is_over { (self.epoch + 1) * PACKETS } else { self.next };
        if number > u64::MAX - 2 * PACKETS {
            return Err(SealError::Exhausted);
        }
        if number / PACKETS != self.epoch {
            self.secret = step(&self.secret);
            self.key = packet_key(&self.secret);
            (self.epoch, self.since) = (number / PACKETS, now);
        }
        self.next = number + 1;
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&self.connection.to_be_bytes());
        header[4..].copy_from_slice(&number.to_be_bytes());
        let tag = self.key.seal(nonce(number), &header, text).ok_or(SealError::Cipher(number))?;
        Ok((header, tag))
    }

    /// A whole packet with this text.
    pub fn packet(&mut self, text: &[u8], now: Instant) -> Result<Vec<u8>, SealError> {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(text);
        let (header, tag) = self.seal(&mut bytes[HEADER..], now)?;
        bytes[..HEADER].copy_from_slice(&header);
        bytes.extend_from_slice(&tag);
        Ok(bytes)
    }
}

#[derive(Debug)]
struct Epoch {
    number: u64,
    key: AeadKey,
    window: Window,
}

impl Epoch {
    fn new(number: u64, secret: &Key) -> Self {
        Self { number, key: packet_key(secret), window: Window::new() }
    }

    /// Checked before any work: older numbers are refused.
    fn check(&self, number: u64) -> Result<(), OpenError> {
        match self.window.standing(number % PACKETS) {
            SequenceStatus::Newest | SequenceStatus::Late => Ok(()),
            SequenceStatus::Seen => Err(OpenError::Replayed(number)),
            SequenceStatus::Beyond => Err(OpenError::Late(number)),
        }
    }

    fn opens(&self, number: u64, datagram: &mut [u8]) -> bool {
        let Some((header, rest)) = datagram.split_at_mut_checked(HEADER) else { return false };
        let Some((text, &mut tag)) = rest.split_last_chunk_mut::<TAG>() else { return false };
        self.key.open(nonce(number), header, text, tag)
    }
}

/// Opens the packets that one end of a connection receives.
#[derive(Debug)]
pub struct Opener {
    connection: u32,
    /// The secret from which the present epoch's key is derived.
    secret: Key,
    present: Epoch,
    /// The previous epoch, for packets that were in flight when the sender changed keys.
    before: Option<Epoch>,
    forged: u64,
}

impl Opener {
    pub(crate) fn new(connection: u32, secret: Key) -> Self {
        let present = Epoch::new(0, &secret);
        Self { connection, secret, present, before: None, forged: 0 }
    }

    /// Decrypts a datagram in place; returns its text.
    ///
    /// # Errors
    /// [`OpenError`]; the content of the datagram is then worthless.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        if self.forged >= FORGED_MAX {
            return Err(OpenError::Limit);
        }
        let malformed = OpenError::Malformed(self.connection);
        let number = self.number(datagram).ok_or(malformed)?;
        let epoch = number / PACKETS;
        let ahead = epoch.saturating_sub(self.present.number);
        let passed = if ahead == 0 {
            let before = self.before.as_mut().filter(|before| before.number == epoch);
            let epoch = match before {
                Some(before) => before,
                None if self.present.number == epoch => &mut self.present,
                None => return Err(OpenError::Late(number)),
            };
            epoch.check(number)?;
            let passed = epoch.opens(number, datagram);
            if passed {
                // Only authentic packets move the window.
                epoch.window.mark(number % PACKETS);
            }
            passed
        } else {
            ahead <= SKIPPED_MAX && self.begins(epoch, ahead, number, datagram)
        };
        if !passed {
            self.forged += 1;
            return Err(OpenError::Forged(number));
        }
        let end = datagram.len() - TAG;
        Ok(&mut datagram[HEADER..end])
    }

    /// Whether a datagram is the first of a later epoch, which begins then.
    fn begins(&mut self, epoch: u64, ahead: u64, number: u64, datagram: &mut [u8]) -> bool {
        let secret = (0..ahead).fold(self.secret.clone(), |secret, _| step(&secret));
        let mut next = Epoch::new(epoch, &secret);
        let passed = next.opens(number, datagram);
        if passed {
            next.window.mark(number % PACKETS);
            let before = core::mem::replace(&mut self.present, next);
            self.before = (ahead == 1).then_some(before);
            self.secret = secret;
        }
        passed
    }

    /// Whether a datagram would open; changes neither the datagram nor the state.
    #[must_use]
    pub(crate) fn would_open(&self, datagram: &[u8]) -> bool {
        self.number(datagram).is_some_and(|number| {
            number / PACKETS == self.present.number
                && self.present.check(number).is_ok()
                && self.present.opens(number, &mut datagram.to_vec())
        })
    }

    fn number(&self, datagram: &[u8]) -> Option<u64> {
        let (connection, rest) = datagram.split_first_chunk()?;
        let number = u64::from_be_bytes(*rest.first_chunk()?);
        let is_ours = u32::from_be_bytes(*connection) == self.connection;
        (is_ours && datagram.len() >= OVERHEAD).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aead::failing;

    fn pair() -> (Sealer, Opener) {
        let secret = Key([9; 32]);
        (Sealer::new(7, secret.clone(), Instant::ZERO), Opener::new(7, secret))
    }

    fn opened(opener: &mut Opener, packet: &[u8]) -> Result<Vec<u8>, OpenError> {
        opener.open(&mut packet.to_vec()).map(|text| text.to_vec())
    }

    #[test]
    fn packets_open_once_in_any_order_and_no_bit_can_be_changed() {
        let (mut sealer, mut opener) = pair();
        let texts: [&[u8]; 3] = [b"one", b"", &[5; 60_000]];
        let packets = texts.map(|text| sealer.packet(text, Instant::ZERO).expect("it is sealed"));
        let short = &packets[0];
        for bit in 0..short.len() * 8 {
            let mut wrong = short.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&mut opener, &wrong).is_err(), "bit {bit}");
        }
        for n in [2, 0, 1] {
            assert!(opener.would_open(&packets[n]));
            assert_eq!(opened(&mut opener, &packets[n]).as_deref(), Ok(texts[n]));
            assert_eq!(opened(&mut opener, &packets[n]), Err(OpenError::Replayed(n as u64)));
            assert!(!opener.would_open(&packets[n]));
        }
        assert_eq!(opened(&mut opener, &short[..27]), Err(OpenError::Malformed(7)));
    }

    #[test]
    fn a_forged_number_moves_nothing() {
        let (mut sealer, mut opener) = pair();
        for number in [1 << 62, u64::MAX, PACKETS, 3 * PACKETS, 2000] {
            let mut forged = sealer.packet(b"x", Instant::ZERO).expect("it is sealed");
            forged[4..12].copy_from_slice(&u64::to_be_bytes(number));
            assert_eq!(opened(&mut opener, &forged), Err(OpenError::Forged(number)));
        }
        let honest = sealer.packet(b"y", Instant::ZERO).expect("it is sealed");
        assert_eq!(opened(&mut opener, &honest).as_deref(), Ok(&b"y"[..]));
    }

    #[test]
    fn keys_change_by_count_and_by_time_and_what_was_on_its_way_still_opens() {
        let (mut sealer, mut opener) = pair();
        sealer.next = PACKETS - 2;
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let packets: Vec<_> = [1, 2, 3, 130, 131, 300]
            .map(|second| sealer.packet(&[second as u8], at(second)).expect("it is sealed"))
            .into();
        let number = |packet: &[u8]| u64::from_be_bytes(*packet[4..].first_chunk().expect("8"));
        let numbers: Vec<_> = packets.iter().map(|packet| number(packet)).collect();
        let expected =
            [PACKETS - 2, PACKETS - 1, PACKETS, 2 * PACKETS, 2 * PACKETS + 1, 3 * PACKETS];
        assert_eq!(numbers, expected);
        let first = opener.secret.clone();
        for n in [0, 2, 1, 4, 3, 5] {
            assert!(opened(&mut opener, &packets[n]).is_ok(), "packet {n}");
        }
        assert_ne!(opener.secret, first);
        assert_eq!(opened(&mut opener, &packets[0]), Err(OpenError::Late(PACKETS - 2)));
        assert_eq!(opened(&mut opener, &packets[3]), Err(OpenError::Replayed(2 * PACKETS)));
    }

    #[test]
    fn a_key_that_could_not_refuse_forgeries_for_long_is_not_used_on() {
        let (mut sealer, mut opener) = pair();
        opener.forged = FORGED_MAX - 1;
        let packet = sealer.packet(b"x", Instant::ZERO).expect("it is sealed");
        let mut forged = packet.clone();
        forged[20] ^= 1;
        assert_eq!(opened(&mut opener, &forged), Err(OpenError::Forged(0)));
        assert_eq!(opened(&mut opener, &packet), Err(OpenError::Limit));
    }

    #[test]
    fn sealing_fails_closed() {
        let (mut sealer, mut opener) = pair();
        let mut text = *b"not for everyone";
        let failed = failing::while_failing(|| sealer.seal(&mut text, Instant::ZERO));
        assert_eq!((failed, text), (Err(SealError::Cipher(0)), [0; 16]));
        assert!(failing::while_failing(|| sealer.packet(b"x", Instant::ZERO)).is_err());
        sealer.next = u64::MAX - PACKETS;
        sealer.epoch = sealer.next / PACKETS;
        text = *b"not for everyone";
        assert_eq!(sealer.seal(&mut text, Instant::ZERO), Err(SealError::Exhausted));
        assert_eq!(text, [0; 16]);
        sealer = pair().0;
        let next = sealer.packet(b"y", Instant::ZERO).expect("it is sealed");
        assert_eq!(opened(&mut opener, &next).as_deref(), Ok(&b"y"[..]));
    }

    proptest::proptest! {
        #[test]
        fn no_datagram_makes_an_opener_panic(bytes in proptest::collection::vec(0_u8.., 0..80)) {
            let (_, mut opener) = pair();
            assert!(opened(&mut opener, &bytes).is_err());
            let mut ours = 7_u32.to_be_bytes().to_vec();
            ours.extend(bytes);
            assert!(opened(&mut opener, &ours).is_err());
        }
    }
}
