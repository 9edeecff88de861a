//! The experiments, a file each, and what several of them share.

pub(crate) mod au_florb;
pub(crate) mod au_hwfq;
pub(crate) mod au_stripe;
mod belabox;
mod bonds;
pub(crate) mod ca_costs;
pub(crate) mod ca_f6;
pub(crate) mod ca_f6_real;
pub(crate) mod ca_f7;
pub(crate) mod ca_f7_real;
pub(crate) mod ca_f8;
pub(crate) mod ca_f8_real;
pub(crate) mod ca_f9;
pub(crate) mod ca_f9_real;
pub(crate) mod ca_host;
pub(crate) mod ca_real;
pub(crate) mod ca_t1;
pub(crate) mod ca_t2;
mod event_hosts;
pub(crate) mod four_queues;
mod gcc;
#[cfg(feature = "kernel")]
mod httperf;
mod ladder;
mod led;
mod load_immunity;
pub(crate) mod ni_elim;
pub(crate) mod ni_f5;
pub(crate) mod ni_f6;
pub(crate) mod ni_t1;
pub(crate) mod ni_t2;
pub(crate) mod ni_t3;
pub(crate) mod ni_t4;
pub(crate) mod placed;
mod players;
pub(crate) mod qf_f10;
pub(crate) mod qf_f10_real;
pub(crate) mod qf_f14;
pub(crate) mod qf_f15;
pub(crate) mod qf_f19;
#[cfg(feature = "kernel")]
pub(crate) mod qf_f20;
#[cfg(feature = "kernel")]
pub(crate) mod qf_f22;
pub(crate) mod qf_f29;
pub(crate) mod qf_f30;
#[cfg(feature = "kernel")]
pub(crate) mod qf_f33;
pub(crate) mod qf_t2;
pub(crate) mod ss_cyc;
pub(crate) mod ss_f10;
pub(crate) mod ss_f7;
pub(crate) mod ss_f8;
pub(crate) mod ss_f9;
pub(crate) mod ss_pps;
pub(crate) mod ss_real;
pub(crate) mod ss_t2;
pub(crate) mod ss_t3;
pub(crate) mod up_adapt;
pub(crate) mod up_bond;
pub(crate) mod up_faults;
pub(crate) mod up_media;
pub(crate) mod up_media_real;
pub(crate) mod up_rate;
mod up_rate_8867;
pub(crate) mod up_repair;
#[cfg(feature = "kernel")]
mod web_server;

/// The papers' titles.
pub(crate) const NI: &str =
    "On Network CoProcessors for Scalable, Predictable Media Services (Krishnamurthy et al.)";
pub(crate) const SS: &str = "Leveraging Block Decisions and Aggregation in the ShareStreams QoS Architecture (Krishnamurthy et al.)";
pub(crate) const QF: &str =
    "Q-Fabric: System Support for Continuous Online Quality Management (Poellabauer)";
pub(crate) const CA: &str = "Improving Protocol Performance by Dynamic Control of Communication Resources (Ivan-Rosu and Schwan)";
