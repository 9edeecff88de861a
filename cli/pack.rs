//! `selvedge pack`: what a coprocessor needs to read a media file itself.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_node::pack::{Packed, pack};
use selvedge_units::Bytes;

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The media file
    pub(crate) file: PathBuf,
    /// Pack the first sound of the file, not its first pictures
    #[arg(long)]
    pub(crate) sound: bool,
    /// The pack's name; it lies in the folder of the file [default: the file's name and ".pack"]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The largest RTP packet. 1472 B fit IP packets of 1500 B; `check` says what fits a stack
    #[arg(long, value_name = "BYTES", default_value = "1472 B")]
    pub(crate) packet: Bytes,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn command(args: &PackArgs) -> Result<(), Failure> {
    let packed =
        pack(&args.file, args.sound, args.name.as_deref(), args.packet).map_err(Failure::input)?;
    let Packed { path, encoding, frames, plays, payload, inline } = &packed;
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::json!({
            "pack": path, "frames": frames, "plays_ms": plays.as_millis_f64(), "encoding": encoding,
            "payload_bytes": payload.0, "inline_bytes": inline.0,
        });
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let share = inline.0 as f64 * 100.0 / payload.0.max(1) as f64;
    writeln!(
        out,
        "{}: {frames} frames, {:.1} s, of {payload}; {share:.1} % of that lies in the pack itself\n\
         In the node file: source = \"record:{}?encoding={encoding}&loop\", on a link with \
         placement = \"coprocessor-reads\"",
        path.display(),
        plays.as_secs_f64(),
        path.display()
    )?;
    Ok(())
}
