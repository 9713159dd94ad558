"""Planted bugs: brokers with one thing done wrongly, which the harness must catch, or its verdicts prove nothing.

    python -m chaos.site.member … --planted tests.chaos.planted.storing:assign_offsets_twice broker -c …

* grafts: how one part of the product is replaced; a part that is not there any more is an error, and never no bug
* replication, storing, answering, tables, popping, pairs: the bugs, by what they touch; each a function that plants it
* rollback: takes guards off that would end a broken broker before anybody sees what it did
* trials, poptrial: the clusters, loads and faults that they are put through; bugs: the table of all of them
* anomalies: the other half, where histories and store folders are forged, and the checks must find it
"""
