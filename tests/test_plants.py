#!/usr/bin/env python3
"""Each error that tests/differential/planted.py plants has one place in src/.

A change that moves the place must change the table too. Without this test only a run with Keras would say so."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "differential"))
import planted
import tap

SOURCES = os.path.join(HERE, "../src")


def main():
    for entry in planted.PLANTS:
        family, _, source, _, _, words = entry
        with open(os.path.join(SOURCES, source)) as file:
            fits = planted.changed(entry, file.read()) is not None
        tap.ok(fits, "%s has one place for: %s, %s" % (source, family, words))
        for user in planted.USERS.get(source, [source]):
            tap.ok(user.endswith(".c") and os.path.exists(os.path.join(SOURCES, user)), "%s is compiled" % user)
    return tap.done()


sys.exit(main())
