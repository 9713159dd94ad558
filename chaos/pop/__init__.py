"""POP under faults: consumers in processes of their own take messages, and are killed while they hold them.

    await pop_torture(make_pop_plan(seed=1, messages=100_000), Path("runs/pop-1"))

* plan: how many messages, for how long they are invisible, and who is killed when, drawn from a seed
* driver: one run: starts everything, inflicts the plan, waits until all is acknowledged and nothing comes any more
* site, faults: three brokers of a Raft group and a NameServer's pair, and what befalls their leader
* producing, consuming: one application in a process of its own (``python -m chaos.pop KIND …``), as in chaos/apps
* history: what the processes wrote down as it happened, read back; a kill loses nothing of it
* judge, verdict: what a history proves, in plain Python; nothing of it is known to who makes the run

What is promised: what a producer was told is stored comes at least once, and is acknowledged in the end; what was
acknowledged within its invisible time does not come again; nobody is given what is invisible for somebody; and no
stored record is taken twice: what comes again was stored anew when its time was over.
"""
