//! What the kernel shows of a volume in sysfs, just mounted, is what we show of it: the same names,
//! and the same values, except where a table here says why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use f2fs::attributes::NOT_HERE;
use serde_json::Value;
use vfs::FileSystem as _;
use vfs::kind::{Format as _, Volume};

use crate::AGENT;
use crate::verdict::copy;
use crate::volumes::{CONVENTIONAL_ZONES, Kind, ZONE_MIB, create, mount, populate, report};
use linux::Guest;

/// The volumes asked about: name, kind, size in MiB, whether it has been used.
const VOLUMES: [(&str, Kind, u64, bool); 3] = [
    ("large", Kind::Conventional, 20 << 10, false),
    ("used", Kind::Conventional, 320, true),
    ("zoned", Kind::Zoned, 320, false),
];

/// Names of Linux 6.1 or older that its sysfs does not have, and why we show them.
const OURS_ALONE: [(&str, &str); 3] = [
    ("inject_rate", "only a kernel with CONFIG_F2FS_FAULT_INJECTION has it"),
    ("inject_type", "only a kernel with CONFIG_F2FS_FAULT_INJECTION has it"),
    ("iostat", "the kernel shows it in procfs (iostat_info)"),
];

/// Values that differ: the volume, or all of them, the attribute, and why.
const DIFFERENT: [(&str, &str, &str); 9] = [
    ("all", "cp_foreground_calls", "our mounts write a checkpoint, so that no chain can tear"),
    ("all", "lifetime_write_kbytes", "that checkpoint"),
    ("all", "stat/cp_status", "that checkpoint, which is none of an unmount"),
    ("all", "mounted_time_sec", "in Linux since the machine was started"),
    ("zoned", "gc_min_sleep_time", "Linux has cleaned zones more often since 6.12, as we do"),
    ("zoned", "gc_max_sleep_time", "the same"),
    ("zoned", "gc_no_gc_sleep_time", "the same"),
    ("zoned", "discard_granularity", "zones are reset; this is for the conventional ones"),
    ("zoned", "ipu_policy", "Linux shows that of small volumes, though mode=lfs never goes by it"),
];

/// Attributes by name, as text.
type Values = BTreeMap<String, String>;

/// Shows what there is of the volume on $2, which is called $1. What debugfs shows of it makes the
/// kernel count `avg_vblocks`.
const SHOW: &str = "
    mount -t debugfs none /sys/kernel/debug
    show() {
        mount -t f2fs $2 /mnt || exit 1
        cat /sys/kernel/debug/f2fs/status >/dev/null || exit 1
        cd /sys/fs/f2fs/${2#/dev/}
        for file in * stat/* feature_list/*; do
            [ -f $file ] || continue
            printf '\\001%s\\002' $file
            cat $file || exit 1
        done >/host/$1
        cd / && umount /mnt || exit 1
    }
";

/// What the kernel shows of each volume.
fn kernels(images: &[PathBuf]) -> Vec<Values> {
    let mut script = SHOW.to_owned();
    let mut guest = Guest::new().memory(1536).program(Path::new(AGENT));
    for (((name, kind, mib, _), image), letter) in VOLUMES.iter().zip(images).zip('a'..) {
        guest = guest.drive(image);
        let disk = format!("/dev/vd{letter}");
        match kind {
            Kind::Conventional => script += &format!("show {name} {disk}\n"),
            Kind::Zoned => {
                guest = guest.file("zones", report(image));
                script += &format!(
                    "null_blk 0 {mib} {ZONE_MIB} {CONVENTIONAL_ZONES} || exit 1
                    strandline-agent put {disk} 0 /host/zones /dev/nullb0 || exit 1
                    show {name} /dev/nullb0\n"
                );
            }
        }
    }
    let out = guest.run(&script);
    out.success();
    let text = |name: &str| String::from_utf8(out.file(name)).expect("text");
    VOLUMES.iter().map(|(name, ..)| shown(&text(name))).collect()
}

/// The values in what [`SHOW`] wrote.
fn shown(text: &str) -> Values {
    let entries = text.split('\u{1}').skip(1).map(|entry| {
        let (name, value) = entry.split_once('\u{2}').expect("a name and a value");
        (name.to_owned(), value.trim_end().to_owned())
    });
    entries.collect()
}

/// What we show of the volume in `image`, as the kernel would write it.
fn ours(image: &Path) -> Values {
    let fs = mount(image, "");
    let mut values = Values::new();
    for (name, value) in Volume::status(&fs) {
        match (&*name, &value) {
            ("feature_list", Value::Object(features)) => {
                let one =
                    |(feature, said): (&String, &Value)| (format!("{name}/{feature}"), text(said));
                values.extend(features.iter().map(one));
            }
            ("extension_list", list) => _ = values.insert(name.clone(), extensions(list)),
            ("stat/sb_status" | "stat/cp_status", number) => {
                let number = number.as_u64().expect("a number");
                values.insert(name.clone(), format!("{number:x}"));
            }
            _ => _ = values.insert(name.clone(), text(&value)),
        }
    }
    values
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

fn extensions(list: &Value) -> String {
    let of = |kind: &str| {
        let names = list[kind].as_array().expect("a list").iter().map(text);
        std::iter::once(format!("{kind} file extension:")).chain(names).collect::<Vec<_>>()
    };
    [of("cold"), of("hot")].concat().join("\n")
}

/// Attributes that came with Linux `6.1` or before, by name.
fn of_its_time() -> BTreeSet<&'static str> {
    let older = |since: &str| {
        let (major, minor) = since.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?) <= (6, 1))
    };
    let rows = f2fs::Format.attributes().into_iter();
    rows.filter(|row| older(row.since) == Some(true)).map(|row| row.name).collect()
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn attributes_are_those_of_sysfs() {
    let dir = tempfile::tempdir().unwrap();
    let images = VOLUMES.map(|(name, kind, mib, used)| {
        let image = dir.path().join(name);
        create(&image, kind, mib, "");
        if used {
            let fs = mount(&image, "");
            populate(&fs, 9).expect("a tree");
            fs.unmount().expect("an unmount");
        }
        image
    });
    let ours: Vec<Values> = VOLUMES
        .iter()
        .zip(&images)
        .map(|((name, _, mib, _), image)| {
            let other = dir.path().join(format!("{name}-ours"));
            copy(image, &other, *mib);
            ours(&other)
        })
        .collect();
    let kernels = kernels(&images);
    check_names(&kernels[0]);
    let mut different = BTreeSet::new();
    for (((volume, ..), kernels), ours) in VOLUMES.iter().zip(&kernels).zip(&ours) {
        for (name, theirs) in kernels {
            let Some(value) = ours.get(name) else { continue };
            if value != theirs {
                println!("{volume}: {name}: the kernel {theirs:?}, we {value:?}");
                different.insert((*volume, name.as_str()));
            }
        }
    }
    let expected: BTreeSet<(&str, &str)> = DIFFERENT
        .iter()
        .flat_map(|(of, name, _)| {
            let volumes =
                VOLUMES.iter().map(|row| row.0).filter(|volume| ["all", volume].contains(of));
            volumes.map(|volume| (volume, *name))
        })
        .collect();
    let words = |one: &BTreeSet<_>, other: &BTreeSet<_>| format!("{:?}", one - other);
    assert_eq!(
        different,
        expected,
        "new: {}, gone: {}",
        words(&different, &expected),
        words(&expected, &different)
    );
}

/// The kernel has what we show of its time, and we have what it shows, but for what tables say.
fn check_names(kernels: &Values) {
    let theirs: BTreeSet<&str> = kernels
        .keys()
        .map(|name| if name.starts_with("feature_list/") { "feature_list" } else { name })
        .collect();
    let ours = of_its_time();
    let not_here: BTreeSet<&str> = NOT_HERE.iter().map(|(name, _)| *name).collect();
    assert_eq!(&theirs - &ours, not_here, "attributes of the kernel that we do not have");
    let ours_alone: BTreeSet<&str> = OURS_ALONE.iter().map(|(name, _)| *name).collect();
    assert_eq!(&ours - &theirs, ours_alone, "attributes that the kernel does not have");
}
