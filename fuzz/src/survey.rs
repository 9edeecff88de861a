//! Datagrams to both ends of a survey of a path: none gets more answered than it may, and whatever a far end
//! makes up, what is found is a network file's.

use std::net::SocketAddr;

use crate::choices::Choices;
use selvedge_data_net_line::{Prober, Reflector, Trace};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const LIMIT: Bitrate = Bitrate::from_mbps(1);
/// The nonces in the seeds.
const NEAR: u64 = 5;
const FAR: u64 = 9;

// A byte for the time that passes, one for the length, a datagram; again and again.
pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut prober = Prober::new(NEAR, Bytes(28), LIMIT);
    let mut reflector = Reflector::new(LIMIT);
    let from: SocketAddr = ([192, 0, 2, 1], 40_000).into();
    let (mut now, mut buffer, mut came, mut sent) = (Instant::ZERO, Vec::new(), 0, 0);
    while !choices.is_empty() {
        now += Duration::from_millis(choices.byte().into());
        let len = usize::from(choices.byte());
        let datagram = choices.bytes(len);
        came += datagram.len();
        reflector.handle_datagram(now, from, FAR, datagram);
        while let Some(to) = reflector.poll_transmit(now, &mut buffer) {
            assert_eq!(to, from);
            sent += buffer.len();
        }
        prober.handle_datagram(now, datagram);
        while prober.poll_transmit(now, &mut buffer) {}
    }
    // Echoes are no longer than probes; trains begin 800 ms apart or more, of a prober that has the nonce.
    let trains = now.0 / 800_000_000 + 1;
    assert!(sent <= came + trains as usize * 125_000, "{sent} bytes for {came}");
    let Some(survey) = prober.survey() else { return };
    assert!(survey.delay <= Duration::from_secs(60));
    for direction in [&survey.there, &survey.back] {
        assert!(direction.variation.iter().all(|one| *one <= Duration::from_secs(60)));
        assert!(direction.lost <= direction.probes);
        assert!(direction.trace().is_none_or(|text| Trace::from_csv(&text).is_ok()));
    }
}
