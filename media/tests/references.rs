//! What the slice headers say that a picture needs, against what really breaks: a stream is decoded
//! once whole and once without one of its pictures, by FFmpeg, and what comes out different is damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use selvedge_data_stream::References;
use selvedge_media::picture::h264::ReferenceReader;

/// Pictures of each stream: two groups.
const PICTURES: usize = 60;

fn output(program: &str, args: &[&str]) -> String {
    let run = Command::new(program).args(["-v", "error"]).args(args).output();
    let run = run.unwrap_or_else(|why| panic!("{program}: {why}"));
    assert!(run.status.success(), "{program}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// A stream made with these options of x264: its access units, and for each the place in which it is
/// shown.
fn encoded(folder: &Path, options: &str) -> (Vec<Vec<u8>>, Vec<usize>) {
    let (whole, bare) = (folder.join("whole.mp4"), folder.join("bare.h264"));
    let (whole, bare) = (whole.to_str().unwrap(), bare.to_str().unwrap());
    let source = format!("testsrc2=s=128x96:r=25,noise=alls=20:allf=t,trim=end_frame={PICTURES}");
    let options = format!("scenecut=0:keyint=50:{options}");
    let encode =
        ["-f", "lavfi", "-i", &source, "-c:v", "libx264", "-preset", "fast", "-threads", "1"];
    output("ffmpeg", &[&encode[..], &["-x264-params", &options, "-y", whole]].concat());
    // Delimiters say where each access unit begins.
    let bare_of = ["-c", "copy", "-bsf:v", "h264_mp4toannexb,h264_metadata=aud=insert"];
    output("ffmpeg", &[&["-i", whole], &bare_of[..], &["-f", "h264", "-y", bare]].concat());
    let times = output("ffprobe", &["-show_entries", "packet=pts", "-of", "csv=p=0", whole]);
    let number = |line: &str| line.trim_end_matches(',').parse::<i64>().unwrap();
    let times = times.lines().filter(|line| !line.is_empty()).map(number).collect::<Vec<_>>();
    let place = |time: &i64| times.iter().filter(|other| *other < time).count();
    let shown = times.iter().map(place).collect();
    let bytes = fs::read(bare).unwrap();
    let begins = |at: &usize| bytes[*at..].starts_with(&[0, 0, 0, 1, 9]);
    let mut starts = (0..bytes.len()).filter(begins).collect::<Vec<_>>();
    starts.push(bytes.len());
    let units = starts.windows(2).map(|range| bytes[range[0]..range[1]].to_vec()).collect();
    (units, shown)
}

/// A sum of each picture that comes out.
fn decoded(folder: &Path, units: &[Vec<u8>]) -> Vec<String> {
    let path = folder.join("part.h264");
    fs::write(&path, units.concat()).unwrap();
    let sums = output(
        "ffmpeg",
        &[
            "-threads",
            "1",
            "-err_detect",
            "ignore_err",
            "-flags",
            "+output_corrupt",
            "-f",
            "h264",
            "-i",
            path.to_str().unwrap(),
            "-fps_mode",
            "passthrough",
            "-f",
            "framemd5",
            "-",
        ],
    );
    let sum = |line: &str| line.rsplit(',').next().unwrap().trim().to_owned();
    sums.lines().filter(|line| !line.starts_with('#')).map(sum).collect()
}

fn references(units: &[Vec<u8>]) -> Vec<References> {
    let mut reader = ReferenceReader::default();
    units.iter().map(|unit| reader.push(unit).expect("headers that can be read")).collect()
}

/// All that can't be decoded without the picture `cut`, itself not counted, by the rule.
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

/// How many pictures were damaged, and how many the rule gives up, over several cuts.
fn compared(options: &str) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let (units, shown) = encoded(folder.path(), options);
    assert_eq!((units.len(), shown.len()), (PICTURES, PICTURES), "{options}");
    let refs = references(&units);
    let whole = decoded(folder.path(), &units);
    assert_eq!(whole.len(), PICTURES, "{options}");
    let (mut damaged_in_all, mut given_up) = (0, 0);
    for cut in [4, 10, 22, 35] {
        let without = [&units[..cut], &units[cut + 1..]].concat();
        let sums = decoded(folder.path(), &without).into_iter().collect::<BTreeSet<_>>();
        let comes = |at: &usize| sums.contains(&whole[shown[*at]]);
        let damaged: BTreeSet<_> = (0..PICTURES).filter(|at| *at != cut && !comes(at)).collect();
        let expected = undecodable(&refs, cut);
        let unforeseen = damaged.difference(&expected).collect::<Vec<_>>();
        assert!(unforeseen.is_empty(), "{options}, without {cut}: also {unforeseen:?} broke");
        damaged_in_all += damaged.len();
        given_up += expected.len();
    }
    (damaged_in_all, given_up)
}

#[test]
fn what_breaks_is_what_the_headers_say() {
    let (mut damaged, mut given_up) = (0, 0);
    for options in [
        "bframes=1:ref=1:b-adapt=0",
        "bframes=0:ref=4:slices=3",
        "bframes=2:ref=3:b-pyramid=none:b-adapt=0",
        "bframes=3:ref=3:b-pyramid=normal:b-adapt=0",
        "bframes=3:ref=4:b-pyramid=strict:b-adapt=0",
        "bframes=3:ref=4:b-pyramid=normal:b-adapt=0:open-gop=1:keyint=25",
    ] {
        let (broke, lost) = compared(options);
        println!("{options}: {broke} of {lost}");
        damaged += broke;
        given_up += lost;
    }
    // A list may name a picture that no block refers to.
    assert!(damaged * 100 >= given_up * 95, "of {given_up} given up only {damaged} are damaged");
}
