"""Applications under faults: processes that use the client library are started, closed, cancelled and killed at random.

    results = await torture(make_plan(seed=1, seconds=600.0), Path("runs/apps-1"))

* plan: which applications there are, and what befalls them and the cluster when, drawn from a seed
* driver, slots: one run: starts everything, inflicts the plan, waits until all is consumed, and closes everything
* site, faults: three brokers and two NameServers, and what befalls them
* app, producing, consuming, ending: one application in a process of its own (``python -m chaos.apps.app KIND …``);
  those without asyncio are on the top floor (``python -m raftmq.blockingapps KIND …``), where `raftmq.sync` is
* journal, history: what each process writes down as it happens, so that a kill loses nothing of it; read back
* judge, judge_…: what a history proves, in plain Python; nothing of it is known to who makes the run

What is promised: whatever a producer was told is acknowledged comes to every group and to every broadcasting consumer
whose offsets are kept, at least once, and in time where somebody lives to take it; no queue skips an offset; of one key
first deliveries never go back; no two handlers have one ordered queue; a polling consumer resumes where it has
committed; no call outlives its deadline; a closed client leaves no task and no connection. What comes twice is counted
by what happened last before it.
"""
