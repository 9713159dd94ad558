"""The `raftmq` command: one file per theme, each a thin face over the rooms below.

`main` puts the themes together; `options` holds what several commands take; `output` prints tables for people, JSON for
machines, and errors in one line. Commands import what they need when they run, so that `--help` is quick.
"""
