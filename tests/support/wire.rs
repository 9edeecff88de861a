//! A proxy between the sender and the receiver of a stack: what passes goes through a function, which may
//! record, change, repeat or make up datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sends a datagram: `true` for one to the receiver.
pub(crate) type Send<'a> = &'a dyn Fn(bool, &[u8]);

/// The proxy; it ends when it is dropped.
pub(crate) struct Wire {
    /// Where senders send to.
    pub(crate) at: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Wire {
    /// A wire to this receiver. `pass` gets each datagram, whether it goes to the receiver, and how to send.
    pub(crate) fn to(
        receiver: SocketAddr,
        pass: impl FnMut(&[u8], bool, Send<'_>) + std::marker::Send + 'static,
    ) -> Self {
        let [front, back] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback has a free port");
            let wait = Some(Duration::from_millis(20));
            socket.set_read_timeout(wait).expect("sockets can");
            Arc::new(socket)
        });
        back.connect(receiver).expect("it is on the loopback");
        let at = front.local_addr().expect("it is bound");
        let stop = Arc::new(AtomicBool::new(false));
        let (pass, sender) =
            (Arc::new(Mutex::new(pass)), Arc::<Mutex<Option<SocketAddr>>>::default());
        let threads = [true, false].map(|to_receiver| {
            let (front, back, stop) = (Arc::clone(&front), Arc::clone(&back), Arc::clone(&stop));
            let (pass, sender) = (Arc::clone(&pass), Arc::clone(&sender));
            std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                let socket = if to_receiver { &front } else { &back };
                while !stop.load(Ordering::SeqCst) {
                    let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                    if to_receiver {
                        *sender.lock().unwrap() = Some(from);
                    }
                    pass.lock().unwrap()(&bytes[..len], to_receiver, &|to_receiver, bytes| {
                        let sender = *sender.lock().unwrap();
                        // One that is not there gets nothing.
                        let _ = match (to_receiver, sender) {
                            (true, _) => back.send(bytes),
                            (false, Some(sender)) => front.send_to(bytes, sender),
                            (false, None) => Ok(0),
                        };
                    });
                }
            })
        });
        Self { at, stop, threads: threads.into() }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
