//! The payload pool: reserved, filled, released in any order; no payload changes while it is held,
//! and all room comes back.

use crate::choices::Choices;
use selvedge_data_memory::{PayloadSpan, PoolError, pool};
use selvedge_units::Bytes;

struct Held {
    span: PayloadSpan,
    fill: u8,
}

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (mut writer, mut reader) = pool(Bytes(u64::from(choices.word())));
    let capacity = writer.capacity();
    let mut held: Vec<Held> = Vec::new();
    let mut gone: Vec<PayloadSpan> = Vec::new();
    let mut fill = 0_u8;
    while !choices.is_empty() {
        match choices.byte() % 6 {
            0..=2 => {
                let len = usize::from(choices.word());
                fill = fill.wrapping_add(1);
                match writer.reserve(len) {
                    Ok(mut reservation) => {
                        assert_eq!(reservation.bytes_mut().len(), len);
                        let keep = choices.byte();
                        if keep == 0 {
                            continue;
                        }
                        if keep < 64 {
                            reservation.truncate(len * usize::from(keep) / 64);
                        }
                        reservation.bytes_mut().fill(fill);
                        held.push(Held { span: reservation.commit(), fill });
                    }
                    Err(PoolError::TooLarge { wanted, largest }) => assert!(wanted > largest),
                    Err(PoolError::Full { wanted, .. }) => {
                        assert!(wanted <= writer.largest() && !held.is_empty());
                    }
                }
            }
            3..=4 if !held.is_empty() => {
                let which = usize::from(choices.byte()) % held.len();
                let Held { span, .. } = held.swap_remove(which);
                reader.release(span).expect("it is held");
                assert!(reader.release(span).is_err(), "it was released");
                gone.push(span);
            }
            _ => {
                let which = usize::from(choices.byte());
                if let Some(&span) = gone.get(which % gone.len().max(1)) {
                    // Its place may be another payload's by now, never its own.
                    let again = held.iter().any(|h| h.span == span);
                    assert_eq!(reader.bytes(span).is_ok(), again);
                }
                let start = u64::from(choices.long());
                let wild = PayloadSpan { start, len: choices.word().into() };
                assert_eq!(reader.bytes(wild).is_ok(), held.iter().any(|h| h.span == wild));
            }
        }
        let mut taken = 0;
        for Held { span, fill } in &held {
            let payload = reader.bytes(*span).expect("it is held");
            assert_eq!(payload.len(), span.len as usize);
            assert!(payload.iter().all(|byte| byte == fill), "a payload changed");
            taken += payload.len() as u64;
        }
        assert!(Bytes(taken) <= reader.held() && reader.held() <= capacity);
        assert_eq!(writer.free(), capacity - reader.held());
    }
    for Held { span, .. } in held {
        reader.release(span).expect("it is held");
    }
    assert_eq!((writer.free(), reader.held()), (capacity, Bytes(0)));
    let largest = writer.largest().0 as usize;
    assert!(writer.reserve(largest).is_ok(), "an empty pool takes the largest payload");
}
