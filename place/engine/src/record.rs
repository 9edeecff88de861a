//! Writing received packets to a file in the `rtpdump` format, which `rtpplay`, Wireshark and
//! others read: a line of text, a header, then each packet with its time in milliseconds.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use selvedge_units::Instant;

use crate::receive::PacketTap;

/// Bytes before each packet: two lengths and the time.
const PACKET_HEADER: usize = 8;

/// Writes one stream's packets.
#[derive(Debug)]
pub struct RtpDump<W> {
    out: W,
    stream: usize,
    started: Instant,
    error: Option<io::Error>,
}

impl<W: Write> RtpDump<W> {
    /// Begins a recording of the stream with this index, received at `address`; times count
    /// from `now`, which is `wall` on the wall clock. The format knows no IPv6 addresses: those
    /// are written as 0.0.0.0.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn new(
        mut out: W,
        stream: usize,
        address: SocketAddr,
        now: Instant,
        wall: SystemTime,
    ) -> io::Result<Self> {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
        };
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(out, "#!rtpplay1.0 {ip}/{}", address.port())?;
        // The format has 32 bits for the seconds.
        out.write_all(&(since.as_secs() as u32).to_be_bytes())?;
        out.write_all(&since.subsec_micros().to_be_bytes())?;
        out.write_all(&ip.octets())?;
        out.write_all(&address.port().to_be_bytes())?;
        out.write_all(&[0, 0])?;
        Ok(Self { out, stream, started: now, error: None })
    }

    /// The error after which nothing more is written, if there was one.
    #[must_use]
    pub const fn problem(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The first error; packets after it were not written.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes one packet. Datagrams that exceed the format's 16-bit length are left out.
    fn write(&mut self, now: Instant, bytes: &[u8]) -> io::Result<()> {
        let Ok(total) = u16::try_from(bytes.len() + PACKET_HEADER) else { return Ok(()) };
        // A length of zero marks control packets (RFC 5761 section 4 distinguishes them by their type).
        let control = matches!(bytes, [_, 192..=223, ..]);
        let len = if control { 0 } else { bytes.len() as u16 };
        let offset_ms = u32::try_from(now.since(self.started).0 / 1_000_000).unwrap_or(u32::MAX);
        let mut header = [0; PACKET_HEADER];
        header[..2].copy_from_slice(&total.to_be_bytes());
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..].copy_from_slice(&offset_ms.to_be_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(bytes)
    }
}

impl<W: Write + Send> PacketTap for RtpDump<W> {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        if stream == self.stream && self.error.is_none() {
            self.error = self.write(now, bytes).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: u64 = 1_700_000_000_000_007;

    fn dump<W: Write>(out: W) -> io::Result<RtpDump<W>> {
        let at = "10.0.0.7:5004".parse().unwrap();
        let wall = UNIX_EPOCH + std::time::Duration::from_micros(MICROS);
        RtpDump::new(out, 2, at, Instant(5_000_000), wall)
    }

    #[test]
    fn writes_what_rtpplay_reads() {
        let mut dump = dump(Vec::new()).unwrap();
        dump.packet(2, Instant(5_000_000), &[0x80, 96, 1]);
        dump.packet(1, Instant(6_000_000), &[0x80, 96, 2]);
        dump.packet(2, Instant(0x100_000_000), &[0x80, 200]);
        dump.packet(2, Instant(u64::MAX), &[0; 65_528]);
        let file = dump.finish().unwrap();
        let text = b"#!rtpplay1.0 10.0.0.7/5004\n";
        assert_eq!(&file[..text.len()], text);
        let secs = (MICROS / 1_000_000) as u32;
        let micros = (MICROS % 1_000_000) as u32;
        let mut expected = [secs.to_be_bytes(), micros.to_be_bytes(), [10, 0, 0, 7]].concat();
        expected.extend([0x13, 0x8c, 0, 0]);
        expected.extend([0, 11, 0, 3, 0, 0, 0, 0, 0x80, 96, 1]);
        expected.extend([0, 10, 0, 0]);
        expected.extend(4289_u32.to_be_bytes());
        expected.extend([0x80, 200]);
        assert_eq!(&file[text.len()..], expected);
    }

    #[test]
    fn the_first_error_is_kept() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut dump = dump(Full(60)).unwrap();
        for _ in 0..9 {
            dump.packet(2, Instant(5_000_000), &[0x80; 12]);
        }
        assert_eq!(dump.finish().err().map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
    }
}
