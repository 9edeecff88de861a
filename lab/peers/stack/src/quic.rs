//! QUIC by quinn: a message after its length on one stream, each end on a thread and a runtime of
//! its own. With its usual datagrams (at most 1452 bytes), and with the largest that the loopback
//! takes.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, MtuDiscoveryConfig, TransportConfig};
use selvedge_units::Bytes;
use tokio::runtime::{Builder, Runtime};

use crate::BenchError;
use crate::load::{ROUNDS, Trips, WARM};
use crate::tls;

fn failed(error: impl Display) -> BenchError {
    BenchError { transport: "QUIC", why: error.to_string() }
}

fn runtime() -> Result<Runtime, BenchError> {
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

fn transport(large: bool) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    if large {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(65_000);
        transport.mtu_discovery_config(Some(discovery));
    }
    Arc::new(transport)
}

/// Runs `server` on a thread with its end, and `client` here with the other.
fn between<R>(
    large: bool,
    server: impl AsyncFnOnce(Connection) -> Result<(), BenchError> + Send,
    client: impl AsyncFnOnce(Connection) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let (mut ours, theirs) = tls::configs()?;
    ours.enable_early_data = false;
    let theirs = QuicServerConfig::try_from(theirs).map_err(failed)?;
    let ours = QuicClientConfig::try_from(ours).map_err(failed)?;
    let mut theirs = quinn::ServerConfig::with_crypto(Arc::new(theirs));
    theirs.transport_config(transport(large));
    let mut ours = quinn::ClientConfig::new(Arc::new(ours));
    ours.transport_config(transport(large));
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let (sender, receiver) = sync_channel(1);
    thread::scope(|scope| {
        let there = scope.spawn(move || {
            let runtime = runtime()?;
            runtime.block_on(async {
                let endpoint = Endpoint::server(theirs, any).map_err(failed)?;
                sender.send(endpoint.local_addr().map_err(failed)?).map_err(failed)?;
                let incoming = endpoint.accept().await.ok_or_else(|| failed("nobody came"))?;
                server(incoming.await.map_err(failed)?).await
            })
        });
        let at = receiver.recv().map_err(failed)?;
        let found = runtime()?.block_on(async {
            let mut endpoint = Endpoint::client(any).map_err(failed)?;
            endpoint.set_default_client_config(ours);
            let connection = endpoint.connect(at, tls::NAME).map_err(failed)?;
            let connection = connection.await.map_err(failed)?;
            let found = client(connection.clone()).await;
            // The other end is notified; else it waits for as long as a silent peer may take.
            connection.close(0_u32.into(), b"");
            endpoint.wait_idle().await;
            found
        })?;
        there.join().map_err(|_| failed("the server panicked"))??;
        Ok(found)
    })
}

fn rated(size: Bytes, long: Duration, large: bool) -> Result<f64, BenchError> {
    let stop = AtomicBool::new(false);
    let (stop, size) = (&stop, size.0 as usize);
    let send = async move |connection: Connection| {
        let mut stream = connection.open_uni().await.map_err(failed)?;
        let (message, len) = (vec![1; size], (size as u32).to_be_bytes());
        while !stop.load(Ordering::Relaxed) {
            stream.write_all(&len).await.map_err(failed)?;
            stream.write_all(&message).await.map_err(failed)?;
        }
        stream.finish().map_err(failed)?;
        // The other end may be gone before it has acknowledged the end.
        let _ = stream.stopped().await;
        Ok(())
    };
    let receive = async move |connection: Connection| {
        let mut stream = connection.accept_uni().await.map_err(failed)?;
        let (mut len, mut message) = ([0; 4], vec![0; size]);
        let (warm, mut start, mut bytes, mut found) = (Instant::now(), None, 0_u64, 0.0);
        // Until the sender ends the stream.
        while stream.read_exact(&mut len).await.is_ok() {
            stream.read_exact(&mut message).await.map_err(failed)?;
            match start {
                None => start = (warm.elapsed() >= WARM).then(Instant::now),
                Some(start) => {
                    bytes += size as u64;
                    let took = start.elapsed();
                    if took >= long && found == 0.0 {
                        found = bytes as f64 / took.as_secs_f64();
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        Ok(found)
    };
    between(large, send, receive)
}

fn tripped(large: bool) -> Result<Trips, BenchError> {
    let answer = async |connection: Connection| {
        let (mut send, mut receive) = connection.accept_bi().await.map_err(failed)?;
        let mut message = [0; 1000];
        for _ in 0..ROUNDS {
            receive.read_exact(&mut message).await.map_err(failed)?;
            send.write_all(&message).await.map_err(failed)?;
        }
        connection.closed().await;
        Ok(())
    };
    let ask = async |connection: Connection| {
        let (mut send, mut receive) = connection.open_bi().await.map_err(failed)?;
        let (message, mut buffer) = ([1; 1000], [0; 1000]);
        let mut trips = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            send.write_all(&message).await.map_err(failed)?;
            receive.read_exact(&mut buffer).await.map_err(failed)?;
            trips.push(start.elapsed());
        }
        Ok(Trips::of(trips))
    };
    between(large, answer, ask)
}

pub(crate) fn rate(size: Bytes, long: Duration) -> Result<f64, BenchError> {
    rated(size, long, false)
}

pub(crate) fn rate_large(size: Bytes, long: Duration) -> Result<f64, BenchError> {
    rated(size, long, true)
}

pub(crate) fn trips() -> Result<Trips, BenchError> {
    tripped(false)
}

pub(crate) fn trips_large() -> Result<Trips, BenchError> {
    tripped(true)
}
