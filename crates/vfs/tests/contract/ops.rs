//! The operation language: what is printed is parsed, what is generated is worth running, and two
//! file systems that differ are told apart.

use std::collections::BTreeMap;

use proptest::prelude::*;
use vfs::ops::{Generator, Op, Outcome, Session, apply, fill, parse, print, shrink, snapshot};
use vfs::{Errno, MemFs};

fn run(fs: &MemFs, ops: &[Op]) -> Vec<Result<Outcome, Errno>> {
    let mut session = Session::new(fs);
    ops.iter().map(|op| session.apply(op)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn text_round_trips(seed: u64) {
        let ops = Generator::new(seed).take_ops(300);
        prop_assert_eq!(parse(&print(&ops)), Ok(ops));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[a-z0-9 %+=|\n#]{0,80}") {
        if let Ok(ops) = parse(&text) {
            prop_assert_eq!(parse(&print(&ops)), Ok(ops));
        }
    }

    #[test]
    fn the_reference_agrees_with_itself(seed: u64) {
        let ops = Generator::new(seed).take_ops(300);
        let (a, b) = (MemFs::new(), MemFs::new());
        prop_assert_eq!(run(&a, &ops), run(&b, &ops));
        let (a, b) = (snapshot(&a).expect("a"), snapshot(&b).expect("b"));
        prop_assert_eq!(a.diff(&b), Vec::<String>::new());
        prop_assert_eq!(a, b);
    }
}

/// A sequence in which nearly everything fails would test little.
#[test]
fn generated_operations_reach_their_aim() {
    let mut outcomes: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for seed in 0..50 {
        let ops = Generator::new(seed).take_ops(400);
        for (op, outcome) in ops.iter().zip(run(&MemFs::new(), &ops)) {
            let verb = op.to_string().split(' ').next().unwrap_or_default().to_string();
            let count = outcomes.entry(verb).or_default();
            count.0 += u32::from(outcome.is_ok());
            count.1 += 1;
        }
    }
    assert_eq!(outcomes.len(), 26, "every verb occurs: {outcomes:?}");
    for (verb, (good, all)) in &outcomes {
        assert!(good * 20 > *all, "{verb}: only {good} of {all} succeed");
    }
    let good: u32 = outcomes.values().map(|c| c.0).sum();
    let all: u32 = outcomes.values().map(|c| c.1).sum();
    assert!(good * 10 > all * 3, "{good} of {all} succeed");
}

#[test]
fn each_line_says_what_is_wrong_with_it() {
    let bad = [
        "sink f",
        "create",
        "create f 9",
        "write f 12 seed=1",
        "write f 1+2 7",
        "sync now",
        "rename a b replace",
        "stat %4",
        "truncate f -1",
    ];
    for line in bad {
        let error = parse(&format!("# a comment\n\nsync\n{line}\n")).expect_err(line);
        assert_eq!((error.line, error.text.as_str()), (4, line));
    }
}

#[test]
fn what_is_left_out_has_a_usual_meaning() {
    let short = parse("create f\nmkdir d\nrename f d/g\n; later\nwrite d/g 0+9\nappend d/g 5");
    let full = "create f 644\nmkdir d 755\nrename f d/g none\n\nwrite d/g 0+9 seed=5\n\
                append d/g 5 seed=6";
    assert_eq!(short, parse(full));
    assert_eq!(parse("setxattr f user.a 3"), parse("setxattr f user.a 3 seed=1 set"));
}

#[test]
fn names_with_blanks_survive_the_text() {
    let op = Op::Unlink { path: "a b%/\tc".into() };
    assert_eq!(op.to_string(), "unlink a%20b%25/%09c");
    assert_eq!(op.to_string().parse(), Ok(op));
}

#[test]
fn differences_are_told_in_words() {
    let base = "mkdir d 755\ncreate d/f 644\nwrite d/f 0+9000 seed=3\n\
                setxattr d user.a 4 seed=0 set\nsymlink d/f s\nlink d/f g";
    let changes = [
        ("write g 4096+1 seed=9", "d/f: 1 pages have wrong contents: 1"),
        ("fallocate g punch_hole|keep_size 4096+4096", "contents: 1 (zeroes)"),
        ("truncate g 8192", "d/f: size is 8192, should be 9000"),
        ("chmod d 700", "d: mode is 700, should be 755"),
        ("chown d 5 6", "d: group is 6, should be 0"),
        ("removexattr d user.a", "attribute user.a is none, should be 4 bytes"),
        ("unlink g", "g is missing"),
        ("unlink s", "s is missing"),
        ("create new 644", "new should not be there"),
        ("mkdir d/e 755", "d: link count is 3, should be 2"),
        ("rename g s none", "s: kind is Regular, should be Symlink"),
        ("unlink g\ncreate g 644\nwrite g 0+9000 seed=3", "g: first name of the inode is none"),
    ];
    let tree = |text: &str| {
        let fs = MemFs::new();
        for op in parse(text).expect("text") {
            apply(&fs, &op).unwrap_or_else(|errno| panic!("{op}: {errno}"));
        }
        snapshot(&fs).expect("snapshot")
    };
    let expected = tree(base);
    assert_eq!(expected.diff(&expected), [""; 0]);
    for (change, words) in changes {
        let found = expected.diff(&tree(&format!("{base}\n{change}")));
        assert!(found.iter().any(|line| line.contains(words)), "{change}: {found:?}");
    }
}

#[test]
fn a_handle_outlives_the_name() {
    let fs = MemFs::new();
    let ops =
        "create f 644\nopen f h\nunlink f\nwrite #h 0+5 seed=1\nread #h 0+9\nclose h\nstat #h";
    let outcomes = run(&fs, &parse(ops).expect("text"));
    let mut data = [0; 5];
    fill(1, 0, &mut data);
    assert_eq!(outcomes[4], Ok(Outcome::Bytes(data.to_vec())));
    assert_eq!(outcomes[6], Err(Errno::BADF));
    assert_eq!(outcomes.iter().filter(|o| o.is_err()).count(), 1);
}

#[test]
fn data_tells_where_it_belongs() {
    let mut whole = [0; 100];
    fill(5, 1000, &mut whole);
    let mut part = [0; 60];
    fill(5, 1037, &mut part);
    assert_eq!(whole[37..97], part);
    let mut elsewhere = [0; 60];
    fill(5, 1037 + 4096, &mut elsewhere);
    assert_ne!(part, elsewhere);
}

#[test]
fn shrinking_finds_the_two_that_matter() {
    let ops = Generator::new(3).take_ops(200);
    let needed = [ops[50].clone(), ops[150].clone()];
    let short = shrink(&ops, |ops| needed.iter().all(|op| ops.contains(op)));
    assert_eq!(short, needed);
}
