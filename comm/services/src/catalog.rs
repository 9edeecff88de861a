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

const SOCKET: &[Kind] = &[
    Kind {
        name: "data",
        about: "a socket has data to read",
        value: "bytes that wait",
        key: PORTS,
        programs: &[("data_ready", "sk_data_ready"), ("received", "sock_recv_length")],
    },
    Kind {
        name: "space",
        about: "a socket whose writer met a full buffer has room again",
        value: "bytes set free",
        key: PORTS,
        programs: &[("space", "tcp_probe"), ("received", "sock_recv_length")],
    },
    Kind {
        name: "connection",
        about: "a connection waits to be accepted",
        value: "connections that wait",
        key: PORTS,
        programs: &[("connection", "sk_data_ready"), ("closed", "inet_sock_set_state")],
    },
    Kind {
        name: "closed",
        about: "the peer has closed, or the connection has ended",
        value: "the state before, as in tcp_states.h",
        key: PORTS,
        programs: &[("closed", "inet_sock_set_state"), ("received", "sock_recv_length")],
    },
    Kind {
        name: "error",
        about: "an error was reported to a socket",
        value: "1",
        key: PORTS,
        programs: &[("failed", "inet_sk_error_report"), ("received", "sock_recv_length")],
    },
    Kind {
        name: "load",
        about: "a server's connections have changed; only with a port",
        value: "connections that wait",
        key: "connections that are served",
        programs: &[("load_grows", "sk_data_ready"), ("load_counts", "inet_sock_set_state")],
    },
];

const SCHED: &[Kind] = &[
    Kind {
        name: "delay",
        about: "a thread that could run waited for a processor",
        value: "ns",
        key: "thread",
        programs: &[
            ("wakeup", "sched_wakeup"),
            ("wakeup_new", "sched_wakeup_new"),
            ("switched", "sched_switch"),
        ],
    },
    Kind {
        name: "placed",
        about: "a thread was put on another processor",
        value: "the processor",
        key: "thread",
        programs: &[("placed", "sched_migrate_task")],
    },
    Kind {
        name: "miss",
        about: "a thread had not done its work by its deadline",
        value: "ns late",
        key: "thread",
        programs: &[
            ("wakeup", "sched_wakeup"),
            ("wakeup_new", "sched_wakeup_new"),
            ("switched", "sched_switch"),
        ],
    },
];

const NET: &[Kind] = &[
    Kind {
        name: "drop",
        about: "a packet was dropped",
        value: "the kernel's reason",
        key: "device's number",
        programs: &[("drop", "kfree_skb")],
    },
    Kind {
        name: "queue",
        about: "a packet was put into a device's queue",
        value: "packets that wait",
        key: "device's number",
        programs: &[("queue", "qdisc_enqueue")],
    },
    Kind {
        name: "retransmit",
        about: "a segment was sent again",
        value: "the connection's so far",
        key: PORTS,
        programs: &[("retransmit", "tcp_retransmit_skb")],
    },
];

const MEMORY: &[Kind] = &[
    Kind {
        name: "reclaim",
        about: "a thread had to free memory itself, for the machine's sake or its group's",
        value: "ns",
        key: "pages set free",
        programs: &[
            ("reclaim_begin", "mm_vmscan_direct_reclaim_begin"),
            ("reclaim_end", "mm_vmscan_direct_reclaim_end"),
            ("group_reclaim_begin", "mm_vmscan_memcg_reclaim_begin"),
            ("group_reclaim_end", "mm_vmscan_memcg_reclaim_end"),
        ],
    },
    Kind {
        name: "pressure",
        about: "free pages are few, and the kernel's thread that frees some was called",
        value: "the order of what was asked for",
        key: "thread",
        programs: &[("pressure", "mm_vmscan_wakeup_kswapd")],
    },
    Kind {
        name: "fault",
        about: "a process touched a page that was not there",
        value: "the address",
        key: "thread",
        programs: &[("faulted", "page_fault_user")],
    },
    Kind {
        name: "victim",
        about: "a process is to die, since memory is out",
        value: "the process",
        key: "nothing",
        programs: &[("victim", "mark_victim")],
    },
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
