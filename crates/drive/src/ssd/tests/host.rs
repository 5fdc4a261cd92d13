//! Queues of hosts that come and go, and power that comes back in place.

use super::*;

/// Hosts with queues of their own; one of them goes while its commands are under way.
#[test]
fn a_queue_that_was_given_back_answers_nobody() {
    let drive = drive("zn540");
    let (one, other) = (drive.open_queue().expect("a queue"), drive.open_queue().expect("another"));
    let of_the_drive = drive.identify().queues;
    assert_eq!((one, other), (of_the_drive, of_the_drive + 1));
    drive.submit(one, 1, Command::Flush);
    drive.submit(other, 2, Command::Flush);
    assert_eq!(drive.due(one), Some(0));
    drive.close_queue(one);
    assert_eq!((drive.due(one), drive.poll(other).map(|done| done.cid)), (None, Some(2)));
    drive.submit(one, 3, Command::Flush);
    assert!(drive.poll(one).is_none());
    assert_eq!(drive.open_queue(), Some(one), "used again");
    assert!(drive.poll(one).is_none(), "and empty");
}

/// A cut in place: the drive goes on with what was left, or with what was held before.
#[test]
fn power_comes_back_in_place() {
    let drive = drive("zn540-noplp");
    let zone = 2 * ZONE;
    write(&drive, zone, 0..3).expect("write");
    run(&drive, Command::Flush).expect("flush");
    write(&drive, zone + 3, 3..5).expect("write");
    let held = drive.hold();
    assert_eq!(zones(&drive)[2].wp, zone + 5, "it ran on");
    drive.power_again(None, 1).expect("power");
    assert_eq!(zones(&drive)[2].wp, zone + 3, "what was not flushed is gone");
    assert_eq!(write(&drive, zone + 5, 9..10).expect_err("stale"), Status::ZoneInvalidWrite);
    drive.power_again(Some(held), 2).expect("power");
    assert_eq!((zones(&drive)[2].wp, read(&drive, zone + 3, 2)), (zone + 5, vec![3, 4]));
    drive.cut(3);
    assert!(drive.is_off() && run(&drive, Command::Flush).is_err());
    drive.power_again(None, 3).expect("power");
    assert_eq!(zones(&drive)[2].wp, zone + 5, "a state that was given is durable");
}
