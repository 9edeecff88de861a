//! Prints what plain sending costs on this machine, over loopback.
//!
//! `cargo run --release -p selvedge-lab-measure --example send_floor`

use std::error::Error;

use selvedge_lab_measure::send::send;
use selvedge_os::transmit::Method;
use selvedge_units::{Bytes, Duration};

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:>9} {:>8} {:>8} {:>10} {:>8}", "method", "bytes", "streams", "ns/packet", "Mpps");
    for method in [Method::SendMsg, Method::SendMmsg, Method::Gso] {
        for (packet, streams) in [(64, 32), (1200, 32), (1200, 1024)] {
            let seen = send(Duration::from_millis(300), method, Bytes(packet), streams)?;
            println!(
                "{:>9} {:>8} {:>8} {:>10.0} {:>8.3}",
                seen.method,
                seen.packet_bytes,
                seen.streams,
                seen.nanos_per_packet,
                seen.packets_per_second / 1e6
            );
        }
    }
    Ok(())
}
