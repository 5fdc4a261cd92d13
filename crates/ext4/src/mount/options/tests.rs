use super::*;

/// Of every row.
#[test]
fn what_is_shown_sets_the_same() {
    let all_faults = all_faults().join("+");
    for (name, form) in OPTIONS.table.iter().flat_map(|row| row.forms()) {
        let given = match form {
            Some("N" | "UID" | "GID" | "USEC") => format!("{name}=7"),
            Some("BYTES") => format!("{name}=8m"),
            Some("SECONDS") => format!("{name}=0.5"),
            Some("NAME[+NAME...]") => format!("{name}={all_faults}"),
            Some(value) => format!("{name}={value}"),
            None if matches!(name, "ro" | "noload" | "norecovery") => continue,
            None => name.to_owned(),
        };
        for before in ["", "linux=4.14,", "linux=6.1,dioread_lock,"] {
            let given = format!("data=writeback,journal=zgrouped,{before}{given}");
            let options: MountOptions = given.parse().unwrap();
            let again: MountOptions = options.to_string().parse().unwrap();
            assert_eq!(format!("{again:?}"), format!("{options:?}"), "{given}: {options}");
        }
    }
}

#[test]
fn a_read_only_mount_shows_what_it_was_given() {
    for given in ["ro", "ro,noload", "ro,data=journal,cache=33554432", "ro,journal=fast,commit=1"] {
        assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), given);
    }
    assert!("noload".parse::<MountOptions>().is_err());
}

#[test]
fn options_as_mount_takes_them() {
    let o: MountOptions = "journal=none,cache=8m,commit=30,poll,inject=drop-flush".parse().unwrap();
    let other = "dioread_lock,noauto_da_alloc,discard,errors=panic";
    let shown = format!("rw,data=ordered,journal=jbd2,{other}");
    assert_eq!(other.parse::<MountOptions>().unwrap().to_string(), shown);
    assert_eq!((o.policy.unwrap().name, o.cache_bytes, o.commit), ("none", 8 << 20, 30 * SECOND));
    let shown = "rw,data=ordered,journal=none,commit=30,cache=8388608,poll,inject=drop-flush";
    assert_eq!(o.to_string(), shown);
    let given = "rw,data=ordered,journal=zgrouped,areas=3,record_csum";
    assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), given);
    for given in [
        "commit=0.002,linux=4.14,alloc=percore",
        "linux=4.14,dioread_nolock",
        "linux=6.1",
        "min_batch_time=50,max_batch_time=0",
        "linux=6.1,max_batch_time=15000",
    ] {
        let shown = format!("rw,data=ordered,journal=jbd2,{given}");
        assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), shown);
    }
    for (given, shown) in [
        ("noauto_da_alloc,auto_da_alloc=1,commit=0,user_xattr,barrier=1,stripe=8", ""),
        ("auto_da_alloc=0,bsdgroups,resuid=7", ",noauto_da_alloc,grpid,resuid=7"),
        ("grpid,sysvgroups,resgid=8,dax=never", ",nogrpid,resgid=8"),
    ] {
        let shown = format!("rw,data=ordered,journal=jbd2{shown}");
        assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), shown);
    }
    let error = "journal=x".parse::<MountOptions>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "journal=x: unknown value; expected jbd2, fast, ijournal, grouped, none, zjournal \
         or zgrouped"
    );
    let shown = "rw,data=journal,journal=jbd2,inject=drop-flush+skip-ordered";
    let given = "data=journal,inject=skip-ordered+drop-flush";
    assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), shown);
    let o: MountOptions = "journal=zjournal,areas=4".parse().unwrap();
    assert_eq!(o.to_string(), "rw,data=ordered,journal=zjournal,areas=4");
    for bad in [
        "areas=0",
        "cache=1k",
        "commit=nan",
        "max_batch_time=-1",
        "auto_da_alloc=2",
        "resuid=root",
        "dax=always",
        "usrquota",
        "min_batch_time=2147483648",
        "commit=1e300",
        "inject=x",
        "data=none",
    ] {
        assert!(bad.parse::<MountOptions>().is_err(), "{bad}");
    }
}
