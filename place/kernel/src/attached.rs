//! An attached qdisc while it runs: the counts of each stream, and filters bound and unbound.

use std::io;
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Counters, Kind, Window};
use selvedge_os_bpf::io_error;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::attach::{Device, folder, now, open_pin};
use crate::error::OpenError;
use crate::filter::Filter;
use crate::object::{SLOT, STATE, TABLE, data};
use crate::replay::{counters, number, window};
use crate::setup::{CONTRACT, DISCIPLINE_AT, SETUP, SETUP_HEAD, STREAMS_MAX, number as number_of};

/// A qdisc that a device has.
#[derive(Debug)]
pub struct Attached {
    device: Device,
    number: u32,
    setup: MapHandle,
    table: MapHandle,
    filters: MapHandle,
}

/// The counts of a device's streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The device.
    pub device: String,
    /// The qdisc's name, as `tc qdisc` shows it.
    pub qdisc: String,
    /// The discipline.
    pub discipline: Discipline,
    /// When the report was read, on `CLOCK_MONOTONIC`.
    pub at: Instant,
    /// The rate, if one is set.
    pub rate: Option<Bitrate>,
    /// Packets of no stream, which were dropped.
    pub unknown: u64,
    /// How long packets waited, in all.
    pub waited: Duration,
    /// The streams, the rest last.
    pub streams: Vec<StreamReport>,
}

/// The counts of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReport {
    /// Its name; `(rest)` for packets that no filter matches.
    pub name: String,
    /// Its contract as declared, as far as the kernel holds it: period, delay, window.
    pub contract: Contract,
    /// Its current window.
    pub current: Window,
    /// Sent, late, missed, dropped, violations.
    pub counters: Counters,
    /// Packets dropped because too many were waiting.
    pub overflow: u64,
    /// The bytes sent.
    pub bytes: Bytes,
    /// The waiting packets.
    pub waiting: u32,
    /// The filters that match its packets.
    pub filters: Vec<Filter>,
}

impl StreamReport {
    /// Its window as declared: the kernel can't distinguish kinds of frames, so there is one for all.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.contract.windows.of(Kind::Data)
    }
}

impl Attached {
    /// The qdisc of a device.
    ///
    /// # Errors
    /// If the device is not there or has another qdisc, or the right is missing.
    pub fn open(device: &str) -> Result<Self, OpenError> {
        let device = Device::find(device)?;
        let number = device.ours()?;
        let open = |file: &str| open_pin(number, file).map_err(|(path, why)| refused(path, why));
        let (setup, table, filters) = (open("setup")?, open("table")?, open("filters")?);
        let as_ours = |map: &MapHandle, size: usize| map.value_size() as usize == size;
        if !as_ours(&setup, SETUP) || !as_ours(&table, TABLE) {
            return Err(OpenError::Version(device.name.clone()));
        }
        Ok(Self { device, number, setup, table, filters })
    }

    /// The counts of the streams. The counters are read while they run: each is right, but they are not of
    /// the same instant.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn report(&self) -> Result<Report, OpenError> {
        let setup = self.data(&self.setup, "setup")?;
        let table = self.data(&self.table, "table")?;
        let long = |at: usize| number::<8>(&setup, at).map_or(0, u64::from_ne_bytes);
        let streams = number::<4>(&setup, 0).map_or(0, u32::from_ne_bytes) as usize;
        let mut filters = self.bound()?;
        filters.sort_by_key(|&(filter, _)| (filter.kind(), filter.key()));
        let contracts = setup[SETUP_HEAD..].chunks_exact(CONTRACT);
        let slots = table[STATE..].chunks_exact(SLOT);
        let streams = (0_u32..).zip(contracts.zip(slots)).take(streams.min(STREAMS_MAX));
        let streams = streams.map(|(index, (contract, slot))| {
            let filters = filters.iter().filter(|&&(_, stream)| stream == index);
            let filters = filters.map(|&(filter, _)| filter).collect();
            stream_report(contract, slot, filters)
        });
        let order = number::<4>(&setup, DISCIPLINE_AT).map_or(0, u32::from_ne_bytes);
        Ok(Report {
            device: self.device.name.clone(),
            qdisc: format!("{}{}", crate::attach::KIND, self.number),
            discipline: Discipline::ALL
                .into_iter()
                .find(|&known| number_of(known) == order)
                .unwrap_or_default(),
            at: now(),
            rate: Some(Bitrate(long(16).saturating_mul(8))).filter(|rate| rate.0 > 0),
            unknown: number::<8>(&table, 24).map_or(0, u64::from_ne_bytes),
            waited: Duration(number::<8>(&table, 64).map_or(0, u64::from_ne_bytes)),
            streams: streams.collect(),
        })
    }

    /// Gives a stream one more filter, at once; for a socket of the caller's own, its cookie.
    ///
    /// # Errors
    /// If there is no such stream, or another stream has the filter.
    pub fn bind(&self, stream: &str, filter: Filter) -> Result<(), OpenError> {
        let report = self.report()?;
        let index = (0_u32..).zip(&report.streams).find(|(_, known)| known.name == stream);
        let Some((index, _)) = index else {
            let names: Vec<String> = report.streams.into_iter().map(|s| s.name).collect();
            let streams = names.join(", ");
            return Err(OpenError::NoStream { name: stream.to_owned(), streams });
        };
        if let Some((_, taken)) = self.bound()?.into_iter().find(|&(known, _)| known == filter)
            && taken != index
        {
            let taken =
                report.streams.get(taken as usize).map_or_else(String::new, |s| s.name.clone());
            return Err(OpenError::Taken { filter, stream: taken });
        }
        self.filters
            .update(&filter.key(), &index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| self.pinned("filters", io_error(error)))?;
        // The programs look only at kinds that are in use.
        let mut setup = self.data(&self.setup, "setup")?;
        let kinds = number::<4>(&setup, 12).map_or(0, u32::from_ne_bytes) | 1 << filter.kind();
        setup[12..16].copy_from_slice(&kinds.to_ne_bytes());
        self.write(&setup)
    }

    /// Removes a filter.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn unbind(&self, filter: Filter) -> Result<(), OpenError> {
        self.filters.delete(&filter.key()).map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::NotFound => OpenError::NoFilter(filter),
            _ => self.pinned("filters", io_error(error)),
        })
    }

    /// Gives a stream period, delay, window and priority of a contract, from its next packet on; its window
    /// begins anew.
    pub(crate) fn renew(&self, stream: usize, contract: &Contract) -> Result<(), OpenError> {
        let mut setup = self.data(&self.setup, "setup")?;
        let at = SETUP_HEAD + CONTRACT * stream.min(STREAMS_MAX - 1);
        let Window { lose, of } = contract.windows.of(selvedge_data_stream::Kind::Data);
        let renewed = number::<4>(&setup, at + 72).map_or(0, u32::from_ne_bytes);
        let delay = contract.delay.unwrap_or(Duration::ZERO);
        setup[at + 32..at + 40].copy_from_slice(&contract.period.0.to_ne_bytes());
        setup[at + 40..at + 48].copy_from_slice(&delay.0.to_ne_bytes());
        setup[at + 60..at + 64].copy_from_slice(&contract.priority.to_ne_bytes());
        setup[at + 64..at + 66].copy_from_slice(&lose.min(of).to_ne_bytes());
        setup[at + 66..at + 68].copy_from_slice(&of.to_ne_bytes());
        setup[at + 72..at + 76].copy_from_slice(&renewed.wrapping_add(1).to_ne_bytes());
        self.write(&setup)
    }

    /// Changes the rate.
    pub(crate) fn set_rate(&self, rate: Bitrate) -> Result<(), OpenError> {
        let mut setup = self.data(&self.setup, "setup")?;
        setup[16..24].copy_from_slice(&rate.0.div_ceil(8).max(1).to_ne_bytes());
        self.write(&setup)
    }

    fn write(&self, setup: &[u8]) -> Result<(), OpenError> {
        self.setup
            .update(&0_u32.to_ne_bytes(), setup, MapFlags::ANY)
            .map_err(|error| self.pinned("setup", io_error(error)))
    }

    fn bound(&self) -> Result<Vec<(Filter, u32)>, OpenError> {
        let mut bound = Vec::new();
        for key in self.filters.keys() {
            let value = self
                .filters
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| self.pinned("filters", io_error(error)))?;
            let stream = value.and_then(|value| number::<4>(&value, 0)).map(u32::from_ne_bytes);
            bound.extend(Filter::from_key(&key).zip(stream));
        }
        Ok(bound)
    }

    fn data(&self, map: &MapHandle, file: &str) -> Result<Vec<u8>, OpenError> {
        let least = if file == "setup" { crate::setup::SETUP } else { crate::object::TABLE };
        let data = data(map).map_err(|why| self.pinned(file, why))?;
        if data.len() != least {
            let why = io::Error::other(format!("{} bytes, not {least}", data.len()));
            return Err(self.pinned(file, why));
        }
        Ok(data)
    }

    fn pinned(&self, file: &str, why: io::Error) -> OpenError {
        refused(folder(self.number).join(file), why)
    }
}

fn refused(path: PathBuf, why: io::Error) -> OpenError {
    match why.kind() {
        io::ErrorKind::PermissionDenied => OpenError::NotPermitted(path),
        _ => OpenError::Pinned { path, why },
    }
}

fn stream_report(contract: &[u8], slot: &[u8], filters: Vec<Filter>) -> StreamReport {
    let long = |bytes: &[u8], at: usize| number::<8>(bytes, at).map_or(0, u64::from_ne_bytes);
    let short = |at: usize| number::<2>(contract, at).map_or(0, u16::from_ne_bytes);
    let name = contract[..32].split(|&byte| byte == 0).next().unwrap_or_default();
    StreamReport {
        name: String::from_utf8_lossy(name).into_owned(),
        contract: Contract {
            delay: Some(Duration(long(contract, 40))).filter(|delay| delay.0 > 0),
            ..Contract::new(Duration(long(contract, 32)), Window { lose: short(64), of: short(66) })
        },
        current: window(slot),
        counters: counters(slot),
        overflow: long(slot, 64),
        bytes: Bytes(long(slot, 72)),
        waiting: number::<4>(slot, 80).map_or(0, u32::from_ne_bytes),
        filters,
    }
}
