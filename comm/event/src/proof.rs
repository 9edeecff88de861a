//! Proof that a process knows a secret, without sending it: a keyed hash over a nonce and the request.

use ring::hmac;

/// Proves that this process knows the secret.
pub(crate) fn proof(token: &[u8], nonce: &[u8; 16], body: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    let tag = hmac::sign(&key, &proven(nonce, body));
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whether the sender knows the secret; takes constant time.
pub(crate) fn is_proof(token: &[u8], nonce: &[u8; 16], body: &[u8], proof: &[u8; 32]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    hmac::verify(&key, &proven(nonce, body), proof).is_ok()
}

/// The data over which a secret is proven.
fn proven(nonce: &[u8; 16], body: &[u8]) -> Vec<u8> {
    [&nonce[..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_proves_it_and_only_for_this() {
        let good = proof(b"secret", &[1; 16], b"body");
        assert!(is_proof(b"secret", &[1; 16], b"body", &good));
        assert!(!is_proof(b"secre", &[1; 16], b"body", &good));
        assert!(!is_proof(b"secret", &[2; 16], b"body", &good));
        assert!(!is_proof(b"secret", &[1; 16], b"bodies", &good));
        let mut wrong = good;
        wrong[31] ^= 1;
        assert!(!is_proof(b"secret", &[1; 16], b"body", &wrong));
    }
}
