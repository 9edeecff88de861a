//! Takes from threads what they requested of the kernel's scheduler: a real-time class, a nice value, a short slice.
//! What they were granted is then what a kernel without these, or a user without the rights, would grant.

use std::{fs, io};

use selvedge_os::sched::set_attributes;

/// Puts the threads of a process into the ordinary class with its defaults: all, or only those of this name.
///
/// # Errors
/// If the process is gone, or another user's.
pub(crate) fn make_ordinary(process: u32, only: Option<&str>) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        let name = fs::read_to_string(thread.join("comm"))?;
        let number = thread.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let (true, Some(number)) = (only.is_none_or(|only| only == name.trim_end()), number) {
            set_attributes(number, libc::SCHED_OTHER, |_| {})?;
        }
    }
    Ok(())
}
