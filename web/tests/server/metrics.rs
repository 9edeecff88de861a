//! `/metrics` read as strictly as the format is written.

use std::collections::{BTreeMap, BTreeSet};

use selvedge_data_stream::DropReason;
use selvedge_web::Limits;

use crate::http::get;
use crate::idle_node::{IdleNode, ODD};

type Labels = BTreeMap<String, String>;

/// Family name to its type and samples.
fn parse(page: &str) -> BTreeMap<String, (String, Vec<(Labels, f64)>)> {
    let mut families: BTreeMap<String, (String, Vec<(Labels, f64)>)> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = String::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("help has a text");
            assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            let kinds = ["counter", "gauge", "histogram"];
            assert!(helped.contains(name) && kinds.contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(families.insert(name.into(), (kind.into(), Vec::new())).is_none(), "{line}");
            current = name.into();
        } else {
            let end = line.find(['{', ' ']).expect("a name");
            // A histogram's samples have names of their own.
            let part = line[..end].strip_prefix(&current).expect("samples stand under their type");
            let family = families.get_mut(&current).expect("typed");
            let parts: &[&str] = match &*family.0 {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(parts.contains(&part), "{line}");
            let (mut labels, value) = parse_sample(&line[end..]);
            if !part.is_empty() {
                labels.insert("part".into(), part.into());
            }
            let samples = &mut family.1;
            assert!(samples.iter().all(|(other, _)| *other != labels), "twice: {line}");
            samples.push((labels, value));
        }
    }
    families
}

/// `{name="text",...} value`, or ` value`.
fn parse_sample(text: &str) -> (Labels, f64) {
    let mut labels = Labels::new();
    let mut rest = text;
    if let Some(inside) = text.strip_prefix('{') {
        rest = inside;
        loop {
            let (name, tail) = rest.split_once("=\"").expect("a label");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            let mut value = String::new();
            let mut characters = tail.char_indices();
            let end = loop {
                match characters.next().expect("a closing quote") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next().expect("an escape").1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} is no escape"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(name.into(), value).is_none());
            match tail[end + 1..].strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = tail[end + 1..].strip_prefix('}').expect("a closing brace");
                    break;
                }
            }
        }
    }
    (labels, rest.strip_prefix(' ').expect("a space").parse().expect("a number"))
}

#[test]
fn metrics_are_well_formed_and_complete() {
    let server = IdleNode::new().serve(Limits::default());
    let families = parse(&get(server.local_addr(), "/metrics").body);
    let value = |family: &str, labels: &[(&str, &str)]| {
        let wanted: Labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let samples = &families.get(family).unwrap_or_else(|| panic!("no {family}")).1;
        samples.iter().find(|(labels, _)| *labels == wanted).map(|(_, value)| *value)
    };
    let lecture = [("stream", "lecture"), ("link", "uplink")];
    assert_eq!(value("selvedge_stream_frames_total", &lecture), Some(1000.0));
    assert_eq!(value("selvedge_stream_decodable_total", &lecture), Some(940.0));
    assert_eq!(value("selvedge_stream_queueing_p99_seconds", &lecture), Some(0.0125));
    assert_eq!(value("selvedge_stream_period_seconds", &lecture), Some(0.04));
    assert_eq!(value("selvedge_stream_on_time_ratio", &lecture), None, "none was settled");
    assert_eq!(value("selvedge_stream_send_errors_total", &lecture), Some(3.0));
    assert_eq!(value("selvedge_stream_dropped_bytes_total", &lecture), Some(48_000.0));
    assert_eq!(value("selvedge_stream_spared_cpu_seconds", &lecture), Some(0.000_25));
    let queueing = |part, le: Option<&str>| {
        let mut labels = vec![lecture[0], lecture[1], ("part", part)];
        labels.extend(le.map(|le| ("le", le)));
        value("selvedge_stream_queueing_seconds", &labels)
    };
    assert_eq!(queueing("_bucket", Some("0.001")), Some(0.0));
    assert_eq!(queueing("_bucket", Some("0.01")), Some(900.0));
    assert_eq!(queueing("_bucket", Some("5")), Some(900.0));
    assert_eq!(queueing("_bucket", Some("+Inf")), Some(960.0));
    assert_eq!((queueing("_sum", None), queueing("_count", None)), (Some(450.0), Some(960.0)));
    let node = [("node", "studio"), ("version", env!("CARGO_PKG_VERSION"))];
    let of_link = |family| value(family, &[("link", "uplink")]);
    assert_eq!(of_link("selvedge_link_sent_bytes_total"), Some(123_456.0));
    assert_eq!(of_link("selvedge_link_could_send_bytes_total"), Some(125_000.0));
    assert_eq!(of_link("selvedge_link_missed_departures_total"), Some(3.0));
    assert_eq!(of_link("selvedge_link_rate_bytes_per_second"), Some(750_000.0));
    assert_eq!(of_link("selvedge_link_rate_bits_per_second"), Some(6_000_000.0));
    assert_eq!(of_link("selvedge_link_used_ratio"), Some(0.985));
    assert_eq!(of_link("selvedge_link_lateness_p99_seconds"), Some(0.000_7));
    assert_eq!(of_link("selvedge_link_lateness_median_seconds"), None);
    let of_step =
        |family| value(family, &[("link", "uplink"), ("step", "thin"), ("at", "arrival")]);
    assert_eq!(of_step("selvedge_step_calls_total"), Some(90.0));
    assert_eq!(of_step("selvedge_step_discarded_total"), Some(60.0));
    assert_eq!(of_step("selvedge_step_mean_seconds"), Some(0.000_001_5));
    let of_path = |family| value(family, &[("link", "uplink"), ("path", "lte")]);
    assert_eq!(of_path("selvedge_path_active"), Some(1.0));
    assert_eq!(of_path("selvedge_path_rate_bytes_per_second"), Some(250_000.0));
    assert_eq!(of_path("selvedge_path_round_trip_seconds"), Some(0.08));
    assert_eq!(of_path("selvedge_path_loss_ratio"), Some(0.03));
    assert!(!families.contains_key("selvedge_path_rate_bits_per_second"));
    let of_set = |family| value(family, &[lecture[0], lecture[1], ("set", "gold")]);
    assert_eq!(of_set("selvedge_set_sent_total"), Some(400.0));
    assert_eq!(of_set("selvedge_set_dropped_total"), Some(7.0));
    assert_eq!(of_set("selvedge_set_delay_seconds_total"), Some(1.0));
    assert_eq!(of_set("selvedge_set_bound_seconds"), Some(1.52));
    assert_eq!(of_set("selvedge_set_streamlets"), Some(100.0));
    assert_eq!(value("selvedge_node_info", &node), Some(1.0));
    let resident = value("process_resident_memory_bytes", &[]).expect("Linux tells it");
    assert!((1e6..1e11).contains(&resident), "{resident}");
    let used = || {
        let page = get(server.local_addr(), "/metrics").body;
        parse(&page)["process_cpu_seconds_total"].1[0].1
    };
    // The request itself takes processor time as well.
    let before = used();
    selvedge_tests_wait::until("processor time is counted", || used() > before);

    let odd = [("stream", ODD), ("link", "up\"link")];
    assert_eq!(value("selvedge_stream_sent_total", &odd), Some(960.0), "labels are escaped");
    for reason in DropReason::NAMES {
        let expected = match reason {
            "expired" => 30.0,
            "group-skipped" => 10.0,
            _ => 0.0,
        };
        let labels = [lecture[0], lecture[1], ("reason", reason)];
        assert_eq!(value("selvedge_stream_dropped_total", &labels), Some(expected), "{reason}");
    }
    for (kind, expected) in [("I", 2.0), ("P", 8.0), ("B", 30.0), ("audio", 0.0)] {
        let labels = [lecture[0], lecture[1], ("kind", kind)];
        assert_eq!(value("selvedge_stream_dropped_by_kind_total", &labels), Some(expected));
    }
    for (state, on) in [("running", 1.0), ("failed", 0.0)] {
        let labels = [lecture[0], lecture[1], ("state", state)];
        assert_eq!(value("selvedge_stream_state", &labels), Some(on));
    }
}

#[test]
fn every_metric_is_documented() {
    let docs = include_str!("../../../docs/api.md");
    let server = IdleNode::new().serve(Limits::default());
    for name in parse(&get(server.local_addr(), "/metrics").body).keys() {
        let written = docs.contains(&format!("`{name}`")) || docs.contains(&format!("`{name}{{"));
        assert!(written, "{name} is not in docs/api.md");
    }
}

/// The names of metrics in a text: words that begin as ours do.
fn named(text: &str) -> BTreeSet<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part(c)).filter(|word| word.starts_with("selvedge_")).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let server = IdleNode::new().serve(Limits::default());
    let page = get(server.local_addr(), "/metrics").body;
    let there: BTreeSet<&str> = named(&page);
    let dashboard = include_str!("../../../docs/monitoring/grafana.json");
    let alerts = include_str!("../../../docs/monitoring/alerts.yml");
    for (file, text) in [("grafana.json", dashboard), ("alerts.yml", alerts)] {
        let wanted = named(text);
        assert!(wanted.len() > 4, "{file}: {wanted:?}");
        let absent: Vec<_> = wanted.difference(&there).collect();
        assert!(absent.is_empty(), "{file} names {absent:?}");
        assert!(!text.contains("_bits_per_second"), "{file} names what is deprecated");
    }
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()));
}

/// Enough of YAML to check that Prometheus accepts the rules: every rule has its keys, once, at the
/// indentation of a list's entry.
#[test]
fn alerts_are_rules() {
    let text = include_str!("../../../docs/monitoring/alerts.yml");
    assert!(!text.contains('\t'), "YAML has no tabs");
    assert!(text.contains("\ngroups:\n  - name: selvedge\n    rules:\n"));
    let rules: Vec<&str> = text.split("\n      - alert: ").skip(1).collect();
    assert!(rules.len() >= 5);
    for rule in rules {
        let keys: Vec<&str> = rule
            .lines()
            .skip(1)
            .filter(|line| line.starts_with("        ") && !line.starts_with("         "))
            .map(|line| line.trim().split(':').next().unwrap())
            .collect();
        assert_eq!(keys, ["expr", "for", "labels", "annotations"], "{rule}");
        for opened in ["(", "[", "{"].into_iter().zip([")", "]", "}"]) {
            assert_eq!(rule.matches(opened.0).count(), rule.matches(opened.1).count(), "{rule}");
        }
    }
}
