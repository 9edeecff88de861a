//! FFmpeg as a receiver that knows nothing of Selvedge: which pictures of a clip it finds as they were.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{self, Folder, Running, ffmpeg, udp_is_bound};

/// An FFmpeg that decodes one stream and writes the MD5 of each picture.
pub(crate) struct Decoder {
    at: SocketAddr,
    out: PathBuf,
    running: Running,
}

impl Decoder {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(folder: &Folder, name: &str, sdp: &Path, at: SocketAddr) -> Self {
        let out = folder.join(&format!("{name}-received.framemd5"));
        let mut command = support::program("ffmpeg");
        command
            .args(["-nostdin", "-v", "error", "-protocol_whitelist", "file,udp,rtp"])
            // Nothing overtakes on the loopback: what is missing will not come.
            .args(["-reorder_queue_size", "0", "-i"])
            .arg(sdp)
            .args(["-an", "-threads", "1", "-fps_mode", "passthrough", "-f", "framemd5"])
            .arg(&out);
        let mut running = Running::start(&mut command);
        running.until("listens", |_| udp_is_bound(at));
        Self { at, out, running }
    }

    /// Ends the stream behind all that was sent, so that FFmpeg decodes the pictures that it still holds;
    /// returns the file of their checksums.
    pub(crate) fn end(self) -> PathBuf {
        // A sender's report, as every RTCP packet begins with one, and the end (RFC 3550 section 6).
        let mut bye = [0; 28 + 8];
        bye[..8].copy_from_slice(&[0x80, 200, 0, 6, 0, 0, 0, 1]);
        bye[28..].copy_from_slice(&[0x81, 203, 0, 1, 0, 0, 0, 1]);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.send_to(&bye, self.at).expect("it listens");
        let ended = self.running.end(Duration::from_secs(15));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        self.out
    }
}

/// The pictures of the first 100 s of a clip.
pub(crate) fn reference(folder: &Folder, name: &str, clip: &Path) -> PathBuf {
    let out = folder.join(&format!("{name}.framemd5"));
    let (input, output) = (clip.as_os_str(), out.as_os_str());
    let head = ["-t", "100", "-i"].map(AsRef::as_ref);
    let tail = ["-an", "-fps_mode", "passthrough", "-f", "framemd5"].map(AsRef::as_ref);
    assert!(ffmpeg(head.into_iter().chain([input]).chain(tail).chain([output])), "it was there");
    out
}

/// The MD5 of each picture that a decoder gave, in order.
pub(crate) fn pictures(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned())).collect()
}

/// How many of `came` are pictures of `original`, each later there than the one before.
pub(crate) fn subsequence(came: &[String], original: &[String]) -> u64 {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, picture) in original.iter().enumerate() {
        places.entry(picture).or_default().push(place);
    }
    let mut next = 0;
    let mut count = 0;
    for picture in came {
        let of_it = places.get(picture.as_str()).into_iter().flatten();
        if let Some(place) = of_it.copied().find(|&place| place >= next) {
            next = place + 1;
            count += 1;
        }
    }
    count
}
