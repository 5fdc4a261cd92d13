#!/usr/bin/python3
"""The program under test: keeps notes, a line each.

  notes.py add TEXT    appends a note, and says so when it is safe
  notes.py list
"""

import os
import sys

FILE = "notes"


def notes():
    try:
        with open(FILE) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def save(lines):
    """Replaces the file: after a power cut it is the old one or the new one."""
    with open(FILE + ".new", "w") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    os.rename(FILE + ".new", FILE)
    directory = os.open(".", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


if __name__ == "__main__":
    if sys.argv[1] == "add":
        save([*notes(), sys.argv[2]])
        print("added", len(notes()), flush=True)
    else:
        print("\n".join(notes()))
