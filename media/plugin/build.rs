//! Version and release date of the plugin, from the package and the repository.

fn main() {
    gst_plugin_version_helper::info();
}
