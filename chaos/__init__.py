"""Fault scenarios against a real local cluster: start it, load it, break it, heal it, and judge what is left.

    results = await run(SCENARIOS["kill"], seed=1, folder=Path("runs/kill-1"))

* scenario, scenarios: what is run and promised, as data; all of them, and the suites
* run: one run from start to verdict, in a folder (pipeline/run); ownchecks: what a run says of itself
* session, pytest_plugin: runs with their reports, for the command and for tests
* cluster, member, powerloss: the site, whose brokers' disks fail and lose power; links: the links between them
* inside, netns, loopdisk: runs in namespaces of their own, whose partitions and power failures are the kernel's
* processes, local: servers as processes, and clusters of them, for the demo, benchmarks and tests too
* workload, workloads/: what clients do; clients: a client whose every request is recorded
* recorder, errors: the history as it happens, and which errors prove that nothing did
* closing: barrier, scans, drains, store folders
* nemesis, faults/: what can be broken; schedule: when, drawn from the seed; tiers: what this machine permits
* proxy/, toxiproxy: fault proxies that speak Toxiproxy's API, and what drives them or Shopify's
* report…, html, junit: what people and CI servers read

Nothing here imports the broker: what is judged shares no code with its judge.
"""
