//! Faults: no right, no device, twice, killed half way, removed by others, garbage.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use selvedge_place_kernel::{Attached, Filter};

use crate::machine::{
    Loopback, contract, qdiscs, received, receiver, run, selvedge, setup, stream, tc, unprivileged,
};

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn what_cannot_be_says_why_and_changes_nothing() {
    let before = qdiscs();
    let fails = |arguments: &[&str], status: i32, words: &[&str]| {
        let (code, out, err) = selvedge(arguments);
        assert_eq!((code, out.as_str()), (status, ""), "{arguments:?}: {err}");
        for word in words {
            assert!(err.contains(word), "{arguments:?}: {err}");
        }
    };
    fails(&["attach", "nodev0"], 2, &["no device \"nodev0\"", "lo"]);
    fails(&["detach", "lo"], 2, &["does not have Selvedge's qdisc", "noqueue"]);
    fails(&["show", "lo"], 2, &["does not have Selvedge's qdisc"]);
    fails(
        &["attach", "lo", "--stream", "a,port=1", "--stream", "b,port=1"],
        2,
        &["port=1", "\"b\""],
    );
    fails(&["attach", "lo", "--discipline", "wfqs"], 2, &["\"wfqs\"", "dwcs"]);
    fails(&["attach", "lo", "--stream", "a,weight=0"], 2, &["weight: \"0\"", "from 1"]);
    fails(
        &["attach", "lo", "--stream", "a,cgroup=/sys/fs/cgroup/none"],
        2,
        &["there is no cgroup \"/sys/fs/cgroup/none\"", "mkdir"],
    );
    assert_eq!(qdiscs(), before);
    // Somebody's own qdisc is not replaced.
    tc(&["qdisc", "add", "dev", "lo", "root", "fq_codel", "limit", "77"]);
    let own = qdiscs();
    fails(&["attach", "lo"], 2, &["fq_codel", "tc qdisc del dev lo root"]);
    assert_eq!(qdiscs(), own);
    tc(&["qdisc", "del", "dev", "lo", "root"]);
    // Twice.
    assert_eq!(selvedge(&["attach", "lo", "--stream", "a,port=5004"]).0, 0);
    let once = qdiscs();
    fails(&["attach", "lo"], 2, &["already", "selvedge kernel detach lo"]);
    assert_eq!(qdiscs(), once);
    // Without the right: no reading and no change.
    for what in ["attach", "detach", "show"] {
        let refused = unprivileged(what);
        let err = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{what}: {err}");
        let says = if what == "attach" { "already" } else { "root" };
        assert!(err.contains(says), "{what}: {err}");
    }
    assert_eq!(qdiscs(), once);
    let (code, out, err) = selvedge(&["show", "lo", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\"name\":\"a\"") && out.contains("\"port=5004\""), "{out}");
    assert_eq!(selvedge(&["detach", "lo"]), (0, String::new(), String::new()));
    assert_eq!(qdiscs(), before);
    let refused = unprivileged("attach");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("run as root"), "{refused:?}");
    assert_eq!(qdiscs(), before);
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Frames that are not packets, cut short or with wrong lengths, straight to the device: they go to the rest,
/// and harm no stream.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn garbage_is_sent_on_and_harms_nobody() {
    let (socket, at) = receiver("127.0.0.1:0");
    let lo = Loopback::with(&setup(vec![stream("a", contract(100), &[Filter::Port(at.port())])]));
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(raw >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just opened, with no other owner.
    let raw = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: plain data, for which all bytes zero are a valid value; the name is a C string.
    let (mut to, lo_index): (libc::sockaddr_ll, u32) =
        unsafe { (std::mem::zeroed(), libc::if_nametoindex(c"lo".as_ptr())) };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = lo_index as i32;
    let mut random = selvedge_data_sched::trace::generate::Random::new(7);
    let mut sent = 0;
    for n in 0..3000_u64 {
        let len = random.within(14, 80) as usize;
        let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        frame[..12].fill(0);
        let kind = random.pick(&[0x0800_u16, 0x86dd, 0x0806, 0x88a8, 0x1234]);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        // Every other one claims to be UDP.
        for (place, value) in [(14, 0x45), (23, 17), (20, 17)] {
            if n % 2 == 0 && place < len {
                frame[place] = value;
            }
        }
        to.sll_protocol = kind.to_be();
        // SAFETY: the kernel reads the frame and an address of that length, which live through the call.
        let done = unsafe {
            libc::sendto(
                raw.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        sent += u64::from(done == len as isize);
    }
    assert!(sent > 2000, "{sent}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
    assert_eq!(received(&socket), b"through");
    let report = lo.report();
    assert_eq!(report.streams[0].counters.sent, 1, "{report:?}");
    assert!(report.streams[1].counters.sent >= sent, "{report:?}");
    assert_eq!((report.unknown, report.streams[1].waiting), (0, 0));
    lo.give_back();
}

/// The command is killed at any point of attaching. Then either it is attached and works, or it is not; and
/// the next command finds everything in order.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_loader_that_is_killed_leaves_a_device_that_works() {
    let before = qdiscs();
    let (socket, at) = receiver("127.0.0.1:0");
    let streams = format!("a,period=100ms,port={}", at.port());
    let works = || {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
        assert_eq!(received(&socket), b"through");
    };
    let (mut attached, mut not) = (0, 0);
    for step in 0..12 {
        let mut loader = Command::new("selvedge")
            .args(["kernel", "attach", "lo", "--stream", &streams])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Up to the time that attaching takes, and at the end beyond it.
        let until = Instant::now() + Duration::from_millis(60 * step);
        while Instant::now() < until && loader.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        if step == 11 {
            loader.wait().unwrap();
        }
        let _ = loader.kill();
        loader.wait().unwrap();
        works();
        if qdiscs() == before {
            not += 1;
        } else {
            attached += 1;
            works();
            let report = Attached::open("lo").unwrap().report().unwrap();
            assert!(report.streams[0].counters.sent >= 1, "{report:?}");
            selvedge_place_kernel::detach("lo").unwrap();
        }
        assert_eq!(qdiscs(), before);
        works();
    }
    assert!(attached > 0 && not > 0, "{attached} attached, {not} not");
    // The next one removes everything that they left.
    let lo = Loopback::with(&setup(vec![]));
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Many at once: one gets the device, the others get an error, and its pins are complete.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn of_many_that_attach_at_once_one_does() {
    let before = qdiscs();
    let attach = || {
        let mut command = Command::new("selvedge");
        command.args(["kernel", "attach", "lo", "--stream", "a,port=5004"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let commands: Vec<_> = (0..5).map(|_| attach()).collect();
    let ended: Vec<_> = commands.into_iter().map(|c| c.wait_with_output().unwrap()).collect();
    let won = ended.iter().filter(|output| output.status.success()).count();
    let told = ended.iter().filter(|output| {
        output.status.code() == Some(2)
            && String::from_utf8_lossy(&output.stderr).contains("already")
    });
    assert_eq!((won, told.count()), (1, 4), "{ended:?}");
    assert_eq!(Attached::open("lo").unwrap().report().unwrap().streams[0].name, "a");
    selvedge_place_kernel::detach("lo").unwrap();
    assert_eq!(qdiscs(), before);
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// The same qdisc on a second device would take the first one's packets; and a device may vanish.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_qdisc_is_of_one_device_which_may_vanish() {
    if !std::path::Path::new("/sys/class/net/dummy0").exists() {
        println!("SKIPPED: there is no second device: this kernel came without the module dummy");
        return;
    }
    let (socket, at) = receiver("127.0.0.1:0");
    selvedge_place_kernel::attach("lo", &setup(vec![])).unwrap();
    let second = run("tc", &["qdisc", "add", "dev", "dummy0", "root", "selvedge0"]);
    assert!(!second.status.success(), "{second:?}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
    assert_eq!(received(&socket), b"through");
    assert!(run("ip", &["link", "set", "dummy0", "up"]).status.success());
    selvedge_place_kernel::attach("dummy0", &setup(vec![])).unwrap();
    assert_eq!(Attached::open("dummy0").unwrap().report().unwrap().qdisc, "selvedge1");
    assert!(run("rmmod", &["dummy"]).status.success());
    assert!(std::path::Path::new("/sys/fs/bpf/selvedge/1").exists());
    selvedge_place_kernel::detach("lo").unwrap();
    // The next one cleans up after the device that is gone.
    let lo = Loopback::with(&setup(vec![]));
    assert_eq!(lo.report().qdisc, "selvedge0");
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Another program removes the qdisc: the next attach cleans up and works.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_qdisc_removed_by_others_is_swept_up() {
    let before = qdiscs();
    selvedge_place_kernel::attach("lo", &setup(vec![])).unwrap();
    tc(&["qdisc", "del", "dev", "lo", "root"]);
    assert_eq!(qdiscs(), before);
    assert!(std::path::Path::new("/sys/fs/bpf/selvedge/0").exists());
    let lo = Loopback::with(&setup(vec![]));
    assert_eq!(lo.report().qdisc, "selvedge0");
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn the_doctor_tries_the_qdisc_and_leaves_nothing() {
    let before = qdiscs();
    let output = run("selvedge", &["doctor", "--json"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for placement in ["kernel packets", "kernel CPU", "inline"] {
        let works = format!("\"placement\":\"{placement}\",\"works\":true}}");
        assert!(said.contains(&works), "{placement}: {said}");
    }
    // For real: a packet went through one, and programs were scheduled by the other.
    for seen in ["a packet went through selvedge", "the kernel says \\\"enabled\\\""] {
        assert!(said.contains(seen), "{seen}: {said}");
    }
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap();
    assert_ne!(state.trim(), "enabled");
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
    assert_eq!(qdiscs(), before);
    let nobody = Command::new("selvedge").arg("doctor").uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8(nobody.stdout).unwrap();
    assert!(
        nobody.status.success() && said.contains("kernel packets, BPF qdisc: run as root"),
        "{said}"
    );
}
