//! Tests that must pass on any machine, whatever its kernel: nothing is changed, and errors name the missing
//! part. The rest needs a kernel that has BPF qdiscs (`tools/kernel.sh test`).

use selvedge_place_kernel::{
    AttachError, Attached, LoadError, OpenError, Setup, attach, detach, probe,
};

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let error = attach("no-such-dev", &Setup::default()).unwrap_err();
    assert!(matches!(error, AttachError::NoDevice { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("\"no-such-dev\"") && text.contains("lo"), "{text}");
    assert!(matches!(detach("no-such-dev"), Err(AttachError::NoDevice { .. })));
    assert!(matches!(
        Attached::open("no-such-dev"),
        Err(OpenError::Attach(AttachError::NoDevice { .. }))
    ));
}

#[test]
fn a_device_without_the_qdisc_cannot_be_detached() {
    let error = detach("lo").unwrap_err();
    assert!(matches!(error, AttachError::NotAttached { .. }), "{error}");
}

#[test]
fn a_kernel_that_lacks_it_is_refused_in_the_same_words_before_anything_is_done() {
    // Where it works nothing is refused; trying leaves nothing behind.
    let Err(tried) = probe() else { return };
    let error = attach("lo", &Setup::default()).unwrap_err();
    assert_eq!(error.to_string(), tried.to_string());
    if let AttachError::Load(LoadError::NoQdiscs { .. }) = error {
        assert!(error.to_string().contains("6.16"), "{error}");
    }
    assert!(matches!(detach("lo"), Err(AttachError::NotAttached { .. })));
}
