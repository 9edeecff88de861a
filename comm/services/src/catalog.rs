//! The list of services, their kinds of events, and the programs behind each.

use std::str::FromStr;

selvedge_units::named! {
    /// A ready-made service.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Service {
        /// Readiness of sockets.
        Socket = "socket",
        /// Run-queue delay, placement, deadlines missed.
        Sched = "sched",
        /// Drops, queues, retransmissions.
        Net = "net",
        /// Reclaim, pressure, page faults.
        Memory = "memory",
    }
}

/// A kind of event of a service.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name.
    pub name: &'static str,
    /// The occurrence that it reports.
    pub about: &'static str,
    /// The value of an event, with its unit.
    pub value: &'static str,
    /// The key of an event.
    pub key: &'static str,
    /// The programs, with the kernel's tracepoints that they attach to.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

const PORTS: &str = "local port and peer's, 16 bits each";

const fn kind(name: &'static str, about: &'static str) -> Kind {
    Kind { name, about, value: "", key: "", programs: &[] }
}

impl Kind {
    /// What its events' value and key are.
    const fn of(self, value: &'static str, key: &'static str) -> Self {
        Self { value, key, ..self }
    }

    /// The programs that raise them.
    const fn by(self, programs: &'static [(&'static str, &'static str)]) -> Self {
        Self { programs, ..self }
    }
}

const SOCKET: &[Kind] = &[
    kind("data", "a socket has data to read")
        .of("bytes that wait", PORTS)
        .by(&[("data_ready", "sk_data_ready"), ("received", "sock_recv_length")]),
    kind("space", "a socket whose writer met a full buffer has room again")
        .of("bytes set free", PORTS)
        .by(&[("space", "tcp_probe"), ("received", "sock_recv_length")]),
    kind("connection", "a connection waits to be accepted")
        .of("connections that wait", PORTS)
        .by(&[("connection", "sk_data_ready"), ("closed", "inet_sock_set_state")]),
    kind("closed", "the peer has closed, or the connection has ended")
        .of("the state before, as in tcp_states.h", PORTS)
        .by(&[("closed", "inet_sock_set_state"), ("received", "sock_recv_length")]),
    kind("error", "an error was reported to a socket")
        .of("1", PORTS)
        .by(&[("failed", "inet_sk_error_report"), ("received", "sock_recv_length")]),
    kind("load", "a server's connections have changed; only with a port")
        .of("connections that wait", "connections that are served")
        .by(&[("load_grows", "sk_data_ready"), ("load_counts", "inet_sock_set_state")]),
];

/// A thread becomes able to run, and then runs.
const WAITS: &[(&str, &str)] =
    &[("wakeup", "sched_wakeup"), ("wakeup_new", "sched_wakeup_new"), ("switched", "sched_switch")];

const SCHED: &[Kind] = &[
    kind("delay", "a thread that could run waited for a processor").of("ns", "thread").by(WAITS),
    kind("placed", "a thread was put on another processor")
        .of("the processor", "thread")
        .by(&[("placed", "sched_migrate_task")]),
    kind("miss", "a thread had not done its work by its deadline")
        .of("ns late", "thread")
        .by(WAITS),
];

const NET: &[Kind] = &[
    kind("drop", "a packet was dropped")
        .of("the kernel's reason", "device's number")
        .by(&[("drop", "kfree_skb")]),
    kind("queue", "a packet was put into a device's queue")
        .of("packets that wait", "device's number")
        .by(&[("queue", "qdisc_enqueue")]),
    kind("retransmit", "a segment was sent again")
        .of("the connection's so far", PORTS)
        .by(&[("retransmit", "tcp_retransmit_skb")]),
];

const MEMORY: &[Kind] = &[
    kind("reclaim", "a thread had to free memory itself, for the machine's sake or its group's")
        .of("ns", "pages set free")
        .by(&[
            ("reclaim_begin", "mm_vmscan_direct_reclaim_begin"),
            ("reclaim_end", "mm_vmscan_direct_reclaim_end"),
            ("group_reclaim_begin", "mm_vmscan_memcg_reclaim_begin"),
            ("group_reclaim_end", "mm_vmscan_memcg_reclaim_end"),
        ]),
    kind("pressure", "free pages are few, and the kernel's thread that frees some was called")
        .of("the order of what was asked for", "thread")
        .by(&[("pressure", "mm_vmscan_wakeup_kswapd")]),
    kind("fault", "a process touched a page that was not there")
        .of("the address", "thread")
        .by(&[("faulted", "page_fault_user")]),
    kind("victim", "a process is to die, since memory is out")
        .of("the process", "nothing")
        .by(&[("victim", "mark_victim")]),
];

impl Service {
    /// The kinds of the service; an event's `kind` is the index in this list.
    pub const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Socket => SOCKET,
            Self::Sched => SCHED,
            Self::Net => NET,
            Self::Memory => MEMORY,
        }
    }

    /// The number of the kind of this name.
    pub fn kind(self, name: &str) -> Option<usize> {
        self.kinds().iter().position(|kind| kind.name == name)
    }

    /// The object file with its programs.
    pub(crate) fn object(self) -> &'static [u8] {
        match self {
            Self::Socket => include_bytes!(concat!(env!("OUT_DIR"), "/socket.bpf.o")),
            Self::Sched => include_bytes!(concat!(env!("OUT_DIR"), "/sched.bpf.o")),
            Self::Net => include_bytes!(concat!(env!("OUT_DIR"), "/net.bpf.o")),
            Self::Memory => include_bytes!(concat!(env!("OUT_DIR"), "/memory.bpf.o")),
        }
    }
}

/// There is no service of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no service \"{0}\"; there are socket, sched, net and memory")]
pub struct UnknownService(pub String);

impl FromStr for Service {
    type Err = UnknownService;

    fn from_str(text: &str) -> Result<Self, UnknownService> {
        Self::from_name(text).ok_or_else(|| UnknownService(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_kinds_are_found_by_name() {
        for service in Service::ALL {
            assert_eq!(service.name().parse(), Ok(service));
            assert!(service.kinds().len() <= crate::layout::KINDS);
            for (number, kind) in service.kinds().iter().enumerate() {
                assert_eq!(service.kind(kind.name), Some(number));
            }
        }
        assert_eq!("disk".parse::<Service>(), Err(UnknownService("disk".to_owned())));
    }
}
