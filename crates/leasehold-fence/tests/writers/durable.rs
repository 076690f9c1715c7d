//! What a write to a file waits for. A power cut isn't to be had in a test; what the disk is asked for is.

use std::fs;
use std::process::Command;

use leasehold_fence::Checked;

use super::{Site, mark, open, say};

/// What stands between a writer and the disk.
const SOURCE: &str = include_str!("durable.c");

/// The role of a process that writes twice with one mark, and says so in between.
pub(crate) fn twice(place: &str) {
    let mut place = open(place);
    for number in [1, 2] {
        assert_eq!(place.write(mark(7), number), Checked::Accepted);
        say("written");
        super::wait_for_a_line();
    }
}

pub(crate) fn mark_and_contents_are_waited_for(site: &Site) {
    let folder = site.folder.path();
    let (library, log) = (folder.join("durable.so"), folder.join("log"));
    let source = folder.join("durable.c");
    fs::write(&source, SOURCE).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]);
    let compiled = compiler.arg(&library).arg(&source).output();
    let compiled = compiled.expect("cc, a C compiler");
    assert!(compiled.status.success(), "{compiled:?}");

    let mut writer = site.start_with("twice", |command| {
        command.env("LD_PRELOAD", &library).env("DURABLE_LOG", &log);
    });
    let folder = folder.file_name().unwrap().to_str().unwrap();
    let asked = || {
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        text.replace(folder, "folder")
    };
    let contents = "sync stock.fence.data\nrename stock.fence.data stock\nsync folder\n";
    // The mark is on the disk, and under its name, before anything of the contents may be.
    let mark = "sync stock.fence.new\nrename stock.fence.new stock.fence\nsync folder\n";
    assert_eq!(writer.says(), "written");
    assert_eq!(asked(), format!("{mark}{contents}"));
    writer.go_on();
    // It is there for the second write.
    assert_eq!(writer.says(), "written");
    assert_eq!(asked(), contents);
}
