//! SDP: any text is a session or is refused with a message.

use selvedge_media::sdp::Session;

pub fn fuzz(text: &str) {
    if let Err(error) = Session::parse(text) {
        let message = error.to_string();
        assert!(!message.is_empty() && message.len() < 4096, "a message of {}", message.len());
    }
}
