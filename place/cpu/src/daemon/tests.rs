//! The daemon's requests and responses.

use super::*;

#[test]
fn a_kernel_that_refuses_the_scheduler_lacks_it() {
    let daemon = Daemon {
        dispatchers: Vec::new(),
        in_kernel: Mutex::new(None),
        kernel_tasks: Mutex::new(Vec::new()),
        loads: Some(|| Err("the kernel refused the program".into())),
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
    assert!(matches!(&why, Refusal::Lacking(why) if why == "the kernel refused the program"));
    let none = TaskRequest { service: 0, ..wanted };
    assert!(matches!(daemon.admit_in_kernel(&none, 0, 1), Err(Refusal::Task(_))));
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
