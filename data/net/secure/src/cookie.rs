//! Cookies: proof that an initiator receives datagrams at its address, without any state at the responder.
//!
//! A cookie is an HMAC-SHA256 over the time, the initiator's address and the connection's number, cut
//! to 16 bytes. It is valid for two to four minutes.

use std::net::{IpAddr, SocketAddr};

use ring::hmac::{HMAC_SHA256, Key as HmacKey, sign};
use selvedge_units::{Duration, Instant};

use crate::key::Key;

/// Bytes of a cookie.
pub(crate) const COOKIE: usize = 16;
/// How long new cookies stay the same; those of the previous period are valid as well.
const PERIOD: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Cookies(HmacKey);

impl Cookies {
    pub(crate) fn new(seed: &Key) -> Self {
        Self(HmacKey::new(HMAC_SHA256, &seed.derived("selvedge cookies").0))
    }

    pub(crate) fn of(&self, from: SocketAddr, connection: u32, now: Instant) -> [u8; COOKIE] {
        self.at(from, connection, now.0 / PERIOD.0)
    }

    pub(crate) fn is_ours(
        &self,
        cookie: [u8; COOKIE],
        from: SocketAddr,
        connection: u32,
        now: Instant,
    ) -> bool {
        let period = now.0 / PERIOD.0;
        let both = [period, period.wrapping_sub(1)];
        // The comparison need not take constant time: each probe gets a cookie.
        both.into_iter().any(|period| self.at(from, connection, period) == cookie)
    }

    fn at(&self, from: SocketAddr, connection: u32, period: u64) -> [u8; COOKIE] {
        let address = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut bytes = [0; 30];
        bytes[..16].copy_from_slice(&address);
        bytes[16..18].copy_from_slice(&from.port().to_be_bytes());
        bytes[18..22].copy_from_slice(&connection.to_be_bytes());
        bytes[22..].copy_from_slice(&period.to_be_bytes());
        let mut cookie = [0; COOKIE];
        cookie.copy_from_slice(&sign(&self.0, &bytes).as_ref()[..COOKIE]);
        cookie
    }
}
