//! docs/tunables.md is what the table of attributes says, with the defaults of real volumes.
//! `BLESS=1 cargo test -p strandline-f2fs --test it attributes_page` writes it anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use f2fs::F2fs;
use f2fs::attributes::NOT_HERE;
use serde_json::Value;
use vfs::attributes::Attribute;
use vfs::kind::Volume;

use crate::harness::{Kind, mkfs_options};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tunables.md");
const HEAD: &str = "\
# Tunables

What can be set on a mounted F2FS, and what it shows of itself, under the names of Linux's
`/sys/fs/f2fs/<disk>/`. This page is made from the table in the code.

```sh
strandline tune /mnt                       # all that can be set, with values and defaults
strandline tune /mnt gc_urgent             # one value
strandline tune /mnt gc_urgent=1           # sets it; several are set together or not at all
strandline tune --list                     # the table, without a volume
strandline status /mnt --json              # all values, of both tables
```

Settings hold until the volume is unmounted. Times are in milliseconds where a name ends in
`sleep_time` or `issue_time`, else in seconds. \"Linux\" is the version that brought an attribute;
attributes without one are ours.
";

/// Volumes whose defaults differ, and what they are called.
fn volumes() -> [(&'static str, Arc<Ssd>); 3] {
    let large = |gib: u64| {
        let spec = Spec::named("ram").unwrap().blocks(gib << 18);
        let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
        let dynamic: Arc<dyn Drive> = drive.clone();
        f2fs::mkfs::format(&dynamic, &mkfs_options()).unwrap();
        drive
    };
    [("4 GiB", large(4)), ("20 GiB", large(20)), ("256 MiB with zones", Kind::Zoned.formatted(1))]
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

/// The default, or that of each volume if they differ.
fn default_of(name: &str, tables: &[(&str, Vec<Attribute>)]) -> String {
    let of = |(label, rows): &(&str, Vec<Attribute>)| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        (text(row.default.as_ref()), label.to_string())
    };
    let defaults: Vec<_> = tables.iter().map(of).collect();
    if defaults.iter().all(|(default, _)| *default == defaults[0].0) {
        return defaults[0].0.clone();
    }
    let each = defaults.iter().map(|(default, label)| format!("{default} ({label})"));
    each.collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let tables: Vec<(&str, Vec<Attribute>)> = volumes()
        .into_iter()
        .map(|(label, drive)| {
            let fs = F2fs::mount(drive, &"".parse().unwrap()).unwrap();
            (label, Volume::attributes(&fs))
        })
        .collect();
    let mut page = HEAD.to_owned();
    page += "\n## What can be set\n\n";
    page += "| attribute | Linux | default | values | what it changes |\n";
    page += "|---|---|---|---|---|\n";
    let rows = &tables[0].1;
    for row in rows {
        let Some(allowed) = &row.allowed else { continue };
        let why = row.without_effect.map(|why| format!(" *No effect here: {why}.*"));
        let (about, why) = (&row.about, why.unwrap_or_default());
        let (name, since, default) = (row.name, row.since, default_of(row.name, &tables));
        writeln!(page, "| `{name}` | {since} | {default} | {allowed} | {about}{why} |").unwrap();
    }
    page += "\n## What is only shown\n\n| attribute | Linux | what it says |\n|---|---|---|\n";
    for row in rows.iter().filter(|row| row.allowed.is_none()) {
        writeln!(page, "| `{}` | {} | {} |", row.name, row.since, row.about).unwrap();
    }
    page += "\n## What Linux 6.1 has and this does not\n\n| attribute | why not |\n|---|---|\n";
    for (name, why) in NOT_HERE {
        writeln!(page, "| `{name}` | {why} |").unwrap();
    }
    page
}

#[test]
fn the_page_is_what_the_table_says() {
    let (page, path) = (page(), Path::new(PAGE));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "docs/tunables.md is not current: run this with BLESS=1");
}
