"""Fails when notes.py loses a note in a power cut.

  pytest examples/pytest

`strandline` is on the PATH, or STRANDLINE names it. A checker can be the test itself: here it is this
file, run in a directory with what a cut left.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve()
NOTES = f"'{sys.executable}' -B '{HERE.parent / 'notes.py'}'"


def survives_power_cuts(*options, **steps):
    """Asserts that the checker accepts everything that a power cut may leave of a run."""
    strandline = os.environ.get("STRANDLINE", "strandline")
    steps = [f"--{name}={command}" for name, command in steps.items()]
    ran = subprocess.run([strandline, "check-program", *steps, *options],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_note_is_lost():
    survives_power_cuts(
        "--on=least,ext4:ordered", "--max-states=50",
        setup=f"{NOTES} add one",
        run=f"{NOTES} add two && {NOTES} add three",
        acknowledged=r"added (\d+)",
        check=f"'{sys.executable}' -B '{HERE}'",
    )


if __name__ == "__main__":
    there = subprocess.run(f"{NOTES} list", shell=True, check=True, capture_output=True, text=True)
    there = there.stdout.splitlines()
    assert there == ["one", "two", "three"][:len(there)], there
    assert len(there) >= int(os.environ.get("STRANDLINE_ACKNOWLEDGED", 1)), there
