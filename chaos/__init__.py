"""Fault scenarios against a real local cluster: start it, load it, break it, heal it, and judge what is left.

    results = await run(SCENARIOS["kill"], seed=1, folder=Path("runs/kill-1"))

Rooms, each using those below it:

* runs: from a scenario (what is run and promised, as data) to a verdict, in a folder (pipeline/history/folder);
  nemesis and schedule, drawn from the seed; closing: barrier, scans, drains, store folders; restart: every member
  started once more; tiers: what this machine permits; session, pytest_plugin: runs with their reports, for the command
  and for tests
* apps: applications that use the client library, under faults, and what they saw
* report: what people and CI servers read
* site: the cluster, whose brokers' disks fail and lose power, and the links between its members
* workloads: what clients do. load: clients whose every request is recorded, and which errors prove that nothing
  happened
* faults: what can be broken. proxy: fault proxies that speak Toxiproxy's API
* host: servers as processes, local clusters of them, for the demo, benchmarks and tests too; runs in namespaces of
  their own, whose partitions and power failures are the kernel's

Nothing here imports the broker: what is judged shares no code with its judge.
"""
