"""A TCP proxy that breaks connections on demand, in one asyncio loop, driven over Toxiproxy's HTTP API (2.x).

One proxy stands in one directed link: who dials it and where it leads are its upstream (bytes of the dialler) and its
downstream (bytes of the answerer). Toxics stand in a chain in each direction of each connection, in the order in which
they were added: latency, bandwidth, slow_close, timeout, reset_peer, slicer, limit_data as Shopify's server has them
(v2.12.0 is the judge of what they do: tests/chaos/test_chaos_toxiproxy.py), and `hold`, which keeps all bytes and the
end of the stream, too, and delivers them when it is removed: the connection stays open, and wakes up with old data.
And `loss`, which is what TCP makes of lost packets: pieces come later, and hold up what stands behind them.

What is random (toxicity, jitter, losses, slices) comes from a seed, the proxy's name, the connection's number
and the toxic's name: the n-th connection of a proxy meets the same fate in each run.

As Shopify's: an end of stream closes the connection towards the other side in both directions (there is no half-close
through it); connecting succeeds while a toxic holds the bytes back; any change of a proxy's addresses drops its
connections. Stricter: unknown or wrong attributes are refused.

`python -m chaos.proxy --port 8474 --seed 1` serves alone; chaos/site/toxiproxy.py starts it and drives it.

* toxics: what a toxic may be, as values
* stages: what each toxic does to the bytes of one direction, without any I/O
* connection: two sockets and the chains of stages between them
* listener: one proxy: its port, connections, toxics, counters
* errors: what the adapter and the launchers raise
* journal: what happened when; counters
* server: all proxies and the HTTP routes
* launch: our server in a thread or process, Shopify's as a process
"""
