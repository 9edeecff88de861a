//! The measurements measure something: frames cross, and time passes. How much is not asserted.

use selvedge_lab_measure::coprocessor::{
    Path, PathOptions, Wake, measure_hand_over, paths, throughput, wake,
};
use selvedge_units::Duration;

#[test]
fn a_frame_is_handed_over_and_wakes_the_coprocessor() {
    let measure_hand_over = measure_hand_over(500, 1000).unwrap();
    assert_eq!(measure_hand_over.samples, 450);
    assert!(
        measure_hand_over.median > Duration::ZERO
            && measure_hand_over.median <= measure_hand_over.longest
    );
    let wake = wake(20, Wake::Realtime, Duration::ZERO).unwrap();
    assert_eq!(wake.samples, 20);
    assert!(wake.median > Duration::ZERO && wake.p99 <= wake.longest);
}

#[test]
fn packets_go_out_on_both_sides() {
    let throughput = throughput(1).unwrap();
    assert!(throughput.inline_pps > 0.0 && throughput.coprocessor_pps > 0.0);
    assert!(throughput.ratio > 0.0);
}

#[test]
fn all_paths_lead_to_the_network() {
    let paths = paths(&PathOptions { frames: 10, ..PathOptions::default() }).unwrap();
    let found: Vec<Path> = paths.iter().map(|one| one.path).collect();
    assert_eq!(found, Path::ALL);
    assert!(paths.iter().all(|one| one.time.samples == 10 && one.time.median > Duration::ZERO));
}
