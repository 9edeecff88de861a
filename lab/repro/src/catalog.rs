//! The list of experiments: a file in `experiments/` and a line here for each.

use crate::experiment::Experiment;
use crate::experiments::{
    au_florb, au_hwfq, au_stripe, ca_f6, ca_f6_real, ca_f7, ca_f7_real, ca_f8, ca_f8_real, ca_f9,
    ca_f9_real, ca_t1, ca_t2, ni_elim, ni_f5, ni_f6, ni_t1, ni_t2, ni_t3, ni_t4, qf_f10,
    qf_f10_real, qf_f14, qf_f15, qf_f19, qf_f29, qf_f30, qf_t2, ss_cyc, ss_f7, ss_f8, ss_f9,
    ss_f10, ss_pps, ss_real, ss_t2, ss_t3, up_adapt, up_bond, up_faults, up_media, up_media_real,
    up_rate, up_repair,
};

#[cfg(feature = "kernel")]
use crate::experiments::{qf_f20, qf_f22, qf_f33};

/// All experiments, in the order of the papers.
pub const EXPERIMENTS: &[Experiment] = &[
    ni_t1::EXPERIMENT,
    ni_t2::EXPERIMENT,
    ni_t3::EXPERIMENT,
    ni_t4::EXPERIMENT,
    ni_f5::EXPERIMENT,
    ni_f6::EXPERIMENT,
    ni_elim::EXPERIMENT,
    ss_t2::EXPERIMENT,
    ss_t3::EXPERIMENT,
    ss_f7::EXPERIMENT,
    ss_cyc::EXPERIMENT,
    ss_f8::EXPERIMENT,
    ss_f9::EXPERIMENT,
    ss_f10::EXPERIMENT,
    ss_pps::EXPERIMENT,
    ss_real::EXPERIMENT,
    ca_t1::EXPERIMENT,
    ca_f6::EXPERIMENT,
    ca_f6_real::EXPERIMENT,
    ca_f7::EXPERIMENT,
    ca_f7_real::EXPERIMENT,
    ca_f8::EXPERIMENT,
    ca_f8_real::EXPERIMENT,
    ca_f9::EXPERIMENT,
    ca_f9_real::EXPERIMENT,
    ca_t2::EXPERIMENT,
    qf_f10::EXPERIMENT,
    qf_f10_real::EXPERIMENT,
    qf_f14::EXPERIMENT,
    qf_f15::EXPERIMENT,
    qf_f19::EXPERIMENT,
    qf_t2::EXPERIMENT,
    #[cfg(feature = "kernel")]
    qf_f20::EXPERIMENT,
    #[cfg(feature = "kernel")]
    qf_f22::EXPERIMENT,
    qf_f29::EXPERIMENT,
    qf_f30::EXPERIMENT,
    #[cfg(feature = "kernel")]
    qf_f33::EXPERIMENT,
    au_florb::EXPERIMENT,
    au_hwfq::EXPERIMENT,
    au_stripe::EXPERIMENT,
    up_bond::EXPERIMENT,
    up_media::EXPERIMENT,
    up_media_real::EXPERIMENT,
    up_rate::EXPERIMENT,
    up_repair::EXPERIMENT,
    up_faults::EXPERIMENT,
    up_adapt::EXPERIMENT,
];

/// The experiment of this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_differ_and_are_found() {
        let ids: BTreeSet<_> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), EXPERIMENTS.len());
        assert!(ids.iter().all(|id| find(id).is_some_and(|found| found.id == *id)));
        assert!(find("ss-t33").is_none());
    }

    #[test]
    fn the_page_has_a_present_row_of_each_experiment_of_the_first_three_papers() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<&str> = page.split("\n## ").skip(1).collect();
        let is_ours = |id: &str| ["ni-", "ss-", "ca-"].iter().any(|paper| id.starts_with(paper));
        let ours: Vec<_> = EXPERIMENTS.iter().filter(|one| is_ours(one.id)).collect();
        for Experiment { id, title, edits, .. } in &ours {
            let begins = format!("{id}: {title}\n");
            let row = rows.iter().find(|row| row.starts_with(&begins));
            let row = row.unwrap_or_else(|| panic!("no row \"{begins}\""));
            for edit in *edits {
                assert!(
                    row.contains(&format!("`{}`: {}", edit.name, edit.what)),
                    "{id}, {}",
                    edit.name
                );
            }
        }
        assert_eq!(rows.len(), ours.len(), "a row of an experiment that is gone");
    }
}
