//! What the daemon reads, and what it answers.

use super::*;

#[test]
fn lines_are_whole_and_of_bounded_length() {
    let mut two = &b"one\ntwo"[..];
    assert_eq!(line(&mut two).unwrap(), "one");
    assert_eq!(line(&mut two).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(line(&mut &b""[..]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let long = vec![b'a'; 2 * LINE_MAX as usize];
    assert_eq!(line(&mut &long[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_kernel_that_refuses_the_scheduler_lacks_it() {
    let daemon = Daemon {
        dispatchers: Vec::new(),
        in_kernel: Mutex::new(None),
        kernel_tasks: Mutex::new(Vec::new()),
        loads: Some(|| Err("the kernel refused the program".to_owned())),
        registry: Mutex::new(ClientRegistry::default()),
        changed: Condvar::new(),
    };
    let wanted = TaskRequest {
        period: 40_000_000,
        service: 8_000_000,
        window: (1, 5),
        work_conserving: false,
        events: false,
        in_kernel: true,
        cpu: None,
    };
    let why = daemon.admit_in_kernel(&wanted, 0, 1).unwrap_err();
    assert_eq!(why, Response::Lacking("the kernel refused the program".to_owned()));
    let none = TaskRequest { service: 0, ..wanted };
    assert!(matches!(daemon.admit_in_kernel(&none, 0, 1), Err(Response::Refused(_))));
}

#[test]
fn a_wish_is_checked() {
    let good = r#"{"period":40000000,"service":8000000,"window":[1,5],
                   "work_conserving":false,"events":true,"in_kernel":false,"cpu":null}"#;
    let wanted: TaskRequest = serde_json::from_str(good).unwrap();
    assert!(wanted.task().is_ok());
    assert!(TaskRequest { service: 0, ..wanted }.task().is_err());
    assert!(TaskRequest { window: (2, 1), ..wanted }.task().is_err());
    assert!(serde_json::from_str::<TaskRequest>(&good.replace("cpu", "cup")).is_err());
}
