//! The references that headers state, against real damage: FFmpeg decodes a stream once whole, once
//! without one picture, and once without all that the rule gives up with it. Pictures that the rule
//! calls decodable must equal those of the whole stream, to the bit.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use selvedge_data_stream::References;
use selvedge_media::picture::{Codec, reader};

/// Pictures of each stream: two groups.
const PICTURES: usize = 60;
/// Bytes of an IVF file's header, and of each frame's.
const IVF_HEADER: usize = 32;
const IVF_FRAME: usize = 12;

fn output(program: &str, args: &[&str]) -> String {
    let run = Command::new(program).args(["-v", "error"]).args(args).output();
    let run = run.unwrap_or_else(|why| panic!("{program}: {why}"));
    assert!(run.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// A stream that FFmpeg made.
struct Encoded {
    encoding: &'static str,
    units: Vec<Vec<u8>>,
    /// For each unit, the place in which its picture is shown; `None` for a hidden one.
    shown: Vec<Option<usize>>,
    /// The bytes in front of the units of a file.
    header: Vec<u8>,
}

impl Encoded {
    /// Whether there are pictures that are not shown, in units of their own or in superframes.
    fn has_hidden(&self) -> bool {
        match self.encoding {
            "VP8" => self.shown.contains(&None),
            _ => self.units.iter().any(|unit| unit.last().is_some_and(|end| end >> 5 == 0b110)),
        }
    }
}

/// An encoding's files: its container of bare units, and how an access unit delimiter begins in it.
const fn file_of(encoding: &str) -> (&'static str, Option<&'static [u8]>) {
    match encoding.as_bytes() {
        b"H264" => ("h264", Some(&[0, 0, 0, 1, 9])),
        b"H265" => ("hevc", Some(&[0, 0, 0, 1, 0x46, 1])),
        _ => ("ivf", None),
    }
}

/// A stream of two groups made with these options.
fn encoded(folder: &Path, encoding: &'static str, options: &[&str]) -> Encoded {
    let (ending, delimiter) = file_of(encoding);
    let whole = folder.join("whole.mp4");
    let bare = folder.join(format!("bare.{ending}"));
    let (whole, bare) = (whole.to_str().unwrap(), bare.to_str().unwrap());
    let source = format!("testsrc2=s=128x96:r=25,noise=alls=20:allf=t,trim=end_frame={PICTURES}");
    let encode = ["-f", "lavfi", "-i", &source, "-pix_fmt", "yuv420p", "-threads", "1"];
    let Some(delimiter) = delimiter else {
        let encode = [&encode[..], options].concat();
        let log = folder.join("pass");
        let pass = |number| ["-pass", number, "-passlogfile", log.to_str().unwrap()];
        // Only the second of two passes of libvpx makes hidden pictures.
        if options.contains(&"-auto-alt-ref") {
            output("ffmpeg", &[&encode[..], &pass("1"), &["-f", "null", "-"]].concat());
            output("ffmpeg", &[&encode[..], &pass("2"), &["-y", bare]].concat());
        } else {
            output("ffmpeg", &[&encode[..], &["-y", bare]].concat());
        }
        return from_ivf(encoding, &fs::read(bare).unwrap());
    };
    output("ffmpeg", &[&encode[..], options, &["-y", whole]].concat());
    // Delimiters mark where each access unit begins; x265 writes its own, the same each time.
    let bare_of: &[&[&str]] = match encoding {
        "H264" => {
            &[&["-i", whole, "-c", "copy", "-bsf:v", "h264_mp4toannexb,h264_metadata=aud=insert"]]
        }
        _ => &[&encode, options],
    };
    output("ffmpeg", &[&bare_of.concat()[..], &["-y", bare]].concat());
    let times = output("ffprobe", &["-show_entries", "packet=pts", "-of", "csv=p=0", whole]);
    let number = |line: &str| line.trim_end_matches(',').parse::<i64>().unwrap();
    let times = times.lines().filter(|line| !line.is_empty()).map(number).collect::<Vec<_>>();
    let place = |time: &i64| Some(times.iter().filter(|other| *other < time).count());
    let shown = times.iter().map(place).collect();
    let bytes = fs::read(bare).unwrap();
    let begins = |at: &usize| bytes[*at..].starts_with(delimiter);
    let mut starts = (0..bytes.len()).filter(begins).collect::<Vec<_>>();
    starts.push(bytes.len());
    let units = starts.windows(2).map(|range| bytes[range[0]..range[1]].to_vec()).collect();
    Encoded { encoding, units, shown, header: Vec::new() }
}

/// The units of an IVF file. Only VP8 has units of hidden pictures alone.
fn from_ivf(encoding: &'static str, bytes: &[u8]) -> Encoded {
    let (header, mut rest) = bytes.split_at(IVF_HEADER);
    let (mut units, mut shown, mut count) = (Vec::new(), Vec::new(), 0);
    while let Some((head, behind)) = rest.split_at_checked(IVF_FRAME) {
        let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let (unit, behind) = behind.split_at(len);
        rest = behind;
        let is_shown = encoding != "VP8" || unit[0] & 0x10 != 0;
        shown.push(is_shown.then_some(count));
        count += usize::from(is_shown);
        units.push(unit.to_vec());
    }
    Encoded { encoding, units, shown, header: header.to_vec() }
}

impl Encoded {
    /// A sum of each decoded picture of these units.
    fn decoded(&self, folder: &Path, units: &[usize]) -> Vec<String> {
        let path = folder.join(format!("part.{}", file_of(self.encoding).0));
        let mut bytes = self.header.clone();
        for (time, &at) in (0_u64..).zip(units) {
            let unit = &self.units[at];
            if !self.header.is_empty() {
                bytes.extend((unit.len() as u32).to_le_bytes());
                bytes.extend(time.to_le_bytes());
            }
            bytes.extend(unit);
        }
        fs::write(&path, bytes).unwrap();
        let damaged = ["-threads", "1", "-err_detect", "ignore_err", "-flags", "+output_corrupt"];
        let sums = ["-fps_mode", "passthrough", "-f", "framemd5", "-"];
        let input = ["-i", path.to_str().unwrap()];
        let sums = output("ffmpeg", &[&damaged[..], &input, &sums].concat());
        let sum = |line: &str| line.rsplit(',').next().unwrap().trim().to_owned();
        sums.lines().filter(|line| !line.starts_with('#')).map(sum).collect()
    }

    fn references(&self) -> Vec<References> {
        let mut reader = reader(Codec::from_encoding(self.encoding).unwrap());
        let refs = |unit: &Vec<u8>| reader.push(unit)?.refs;
        self.units.iter().map(refs).map(|refs| refs.expect("headers that can be read")).collect()
    }
}

/// All pictures that can't be decoded without the picture `cut`, itself not counted, by the rule.
fn undecodable(refs: &[References], cut: usize) -> BTreeSet<usize> {
    let mut lost = BTreeSet::from([cut]);
    for (at, refs) in refs.iter().enumerate() {
        if refs.distances().any(|back| lost.contains(&(at - usize::from(back)))) {
            lost.insert(at);
        }
    }
    lost.remove(&cut);
    lost
}

/// How many pictures were damaged, and how many the rule gives up, over several cuts; and the fewest
/// that it gives up.
fn compared(encoding: &'static str, options: &str) -> (usize, usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let stream = encoded(folder, encoding, &options.split(' ').collect::<Vec<_>>());
    let count = stream.units.len();
    assert_eq!(stream.shown.iter().flatten().count(), PICTURES, "{encoding} {options}");
    assert!(!options.contains("alt-ref") || stream.has_hidden(), "{encoding} {options}");
    let refs = stream.references();
    let all = (0..count).collect::<Vec<_>>();
    let whole = stream.decoded(folder, &all);
    assert_eq!(whole.len(), PICTURES, "{encoding} {options}");
    let (mut damaged_in_all, mut given_up, mut fewest) = (0, 0, count);
    // FFmpeg mistakes pictures of H.264 for others where half the range of their counts is missing.
    let first = if encoding == "H264" { 3 } else { 1 };
    for cut in [first, 10, 11, 22, 35] {
        let expected = undecodable(&refs, cut);
        let kept = |at: &usize| *at != cut && !expected.contains(at);
        let kept = all.iter().copied().filter(kept).collect::<Vec<_>>();
        let places = kept.iter().filter_map(|&at| stream.shown[at]).collect::<BTreeSet<_>>();
        let decodable = places.iter().map(|&place| &whole[place]).collect::<Vec<_>>();
        let sums = stream.decoded(folder, &kept);
        assert_eq!(sums.iter().collect::<Vec<_>>(), decodable, "{encoding} {options}, cut {cut}");
        let others = all.iter().copied().filter(|at| *at != cut).collect::<Vec<_>>();
        let sums = stream.decoded(folder, &others).into_iter().collect::<BTreeSet<_>>();
        let breaks =
            |at: &usize| stream.shown[*at].is_some_and(|place| !sums.contains(&whole[place]));
        let damaged = others.iter().copied().filter(breaks).collect::<BTreeSet<_>>();
        // Showing the wrong content of a slot of AV1 can overwrite all others.
        let expected = if encoding == "AV1" { &damaged | &expected } else { expected };
        let unforeseen = damaged.difference(&expected).collect::<Vec<_>>();
        assert!(unforeseen.is_empty(), "{options}, without {cut}: also {unforeseen:?} broke");
        damaged_in_all += damaged.len();
        given_up += expected.len();
        fewest = fewest.min(expected.len());
    }
    println!("{encoding} {options}: {damaged_in_all} of {given_up}, at least {fewest}");
    (damaged_in_all, given_up, fewest)
}

#[test]
fn h264_breaks_as_its_headers_say() {
    let (mut damaged, mut given_up) = (0, 0);
    for options in [
        "bframes=1:ref=1:b-adapt=0",
        "bframes=0:ref=4:slices=3",
        "bframes=2:ref=3:b-pyramid=none:b-adapt=0",
        "bframes=3:ref=3:b-pyramid=normal:b-adapt=0",
        "bframes=3:ref=4:b-pyramid=strict:b-adapt=0",
        "bframes=3:ref=4:b-pyramid=normal:b-adapt=0:open-gop=1:keyint=25",
    ] {
        let encoder = "-c:v libx264 -preset fast -x264-params scenecut=0:keyint=50";
        let (broke, lost, _) = compared("H264", &format!("{encoder}:{options}"));
        damaged += broke;
        given_up += lost;
    }
    // A list may name a picture that no block refers to.
    assert!(damaged * 100 >= given_up * 95, "of {given_up} given up only {damaged} are damaged");
}

/// In place of a missing reference FFmpeg puts a copy of the reference before it, as if it were shown
/// right after that one. B pictures that weigh their references by distance in time, or derive motion
/// from another picture, then use a wrong distance, up to the next P picture but one.
#[test]
fn distances_are_wrong_behind_a_b_picture_that_is_missing() {
    for (options, is_exact) in [
        ("weightb=0:direct=spatial", true),
        ("weightb=1:direct=spatial", false),
        ("weightb=0:direct=temporal", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let encoder = "-c:v libx264 -preset veryfast -x264-params \
            scenecut=0:keyint=60:bframes=3:b-adapt=0:b-pyramid=normal:ref=1";
        let options = format!("{encoder}:{options}");
        let stream =
            encoded(folder.path(), "H264", &options.split_whitespace().collect::<Vec<_>>());
        let all = (0..stream.units.len()).collect::<Vec<_>>();
        let (refs, whole) = (stream.references(), stream.decoded(folder.path(), &all));
        // I, then P, a B that is a reference, and two that are not, again and again.
        let cut = 10;
        let lost = undecodable(&refs, cut);
        assert_eq!(lost, BTreeSet::from([cut + 1, cut + 2]), "{options}");
        let kept = |at: &usize| *at != cut && !lost.contains(at);
        let kept = all.iter().copied().filter(kept).collect::<Vec<_>>();
        let sums = stream.decoded(folder.path(), &kept).into_iter().collect::<BTreeSet<_>>();
        let differs = |at: &usize| !sums.contains(&whole[stream.shown[*at].unwrap()]);
        let differing = kept.into_iter().filter(differs).collect::<Vec<_>>();
        let next_run = [cut + 4, cut + 5, cut + 6];
        assert_eq!(differing, if is_exact { &[][..] } else { &next_run[..] }, "{options}");
    }
}

#[test]
fn h265_breaks_as_its_headers_say() {
    let (mut damaged, mut given_up) = (0, 0);
    for options in [
        "bframes=0:ref=1",
        "bframes=0:ref=4:slices=2",
        "bframes=3:ref=3:b-pyramid=0:b-adapt=0",
        "bframes=4:ref=4:b-pyramid=1:b-adapt=0:weightb=1",
        "bframes=4:ref=3:b-adapt=0:open-gop=1:keyint=25",
        "bframes=4:ref=3:b-adapt=0:temporal-layers=1",
    ] {
        let encoder = "-c:v libx265 -preset fast -x265-params \
            log-level=error:aud=1:pools=none:frame-threads=1:scenecut=0:open-gop=0:keyint=50";
        let (broke, lost, _) = compared("H265", &format!("{encoder}:{options}"));
        damaged += broke;
        given_up += lost;
    }
    assert!(damaged * 100 >= given_up * 90, "of {given_up} given up only {damaged} are damaged");
}

/// Three temporal layers of libvpx.
const LAYERS: &str = "-deadline realtime -cpu-used 8 -lag-in-frames 0 -error-resilient default -b:v 300k \
    -ts-parameters ts_number_layers=3:ts_target_bitrate=100,200,300:ts_rate_decimator=4,2,1:\
    ts_periodicity=4:ts_layer_id=0,2,1,2:ts_layering_mode=3";

#[test]
fn vp8_breaks_as_its_headers_say() {
    let vp8 = |options: &str| compared("VP8", &format!("-c:v libvpx -g 30 {options}"));
    vp8("-deadline realtime -cpu-used 8 -lag-in-frames 0");
    vp8("-deadline good -cpu-used 5 -auto-alt-ref 1 -lag-in-frames 16");
    vp8(LAYERS);
}

#[test]
fn vp9_breaks_as_its_headers_say() {
    let vp9 = |options: &str| compared("VP9", &format!("-c:v libvpx-vp9 -g 30 {options}"));
    vp9("-deadline good -cpu-used 5 -lag-in-frames 0");
    vp9("-deadline good -cpu-used 5 -auto-alt-ref 6 -lag-in-frames 25");
    vp9("-deadline good -cpu-used 5 -error-resilient default -lag-in-frames 16");
    vp9(LAYERS);
}

#[test]
fn av1_breaks_as_its_headers_say() {
    for options in [
        "-c:v libsvtav1 -preset 10",
        "-c:v libaom-av1 -usage realtime -cpu-used 8",
        "-c:v libaom-av1 -cpu-used 8 -lag-in-frames 19",
        "-c:v libaom-av1 -cpu-used 8 -error-resilience default -lag-in-frames 19 -aom-params timing-info=model",
        "-c:v librav1e -speed 10",
    ] {
        compared("AV1", &format!("{options} -g 30"));
    }
}
