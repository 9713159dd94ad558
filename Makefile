# Everything that a person runs here. `make` alone lists it; each target sets up .venv first when that is needed.
PYTHON := .venv/bin/python
READY := .venv/.ready
DEMO := .venv/.demo
TOOLS := .venv/.tools
# The compiled hot path is made of these; where nothing else is newer, it alone is made anew.
HOTPATH := $(wildcard remoting/compiled/*.p[yx][xi]) setup/compile.py
PYTEST := $(PYTHON) -m pytest
LINT := lint-format lint-rules lint-types lint-floors lint-setup
SOURCES := runtime remoting auth raft store namesrv broker client pipeline chaos raftmq tests examples setup

# Images of build machines set this. Each of the hundreds of processes that tests start would compile all of RaftMQ anew: a
# broker's start took three quarters as long again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-spark test-pure test-all check fmt bench bench-guard bench-pipeline kill-test fuzz soak soak-delay soak-pending simulate torture app-torture pop-torture chaos-self interop-java clean lint-format lint-rules lint-types lint-floors lint-setup unit

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

venv: $(READY) ## .venv with RaftMQ and everything that it needs, at the versions of requirements.lock

$(READY): requirements.lock pyproject.toml setup/pip.lock setup/venv.sh $(HOTPATH)
	@$(if $(filter-out $(HOTPATH),$?),bash setup/venv.sh,$(PYTHON) -m setup.compile && touch $@ || :)

# Less than the rest; where that is there, this is.
$(DEMO): requirements.lock pyproject.toml setup/pip.lock setup/venv.sh setup/demo.txt $(HOTPATH)
	@$(if $(filter-out $(HOTPATH),$?),bash setup/venv.sh $$(test -e $(READY) || echo demo),$(PYTHON) -m setup.compile && touch $@ || :)

$(TOOLS): setup/tools.sh $(READY)
	@bash setup/tools.sh

demo: $(DEMO) ## real records through a group of three whose leader is killed half way: nothing may be lost
	@$(PYTHON) -m raftmq.cli.main demo

check: $(READY) ## format, lint, types, floors and unit tests: under a minute
	@$(MAKE) --no-print-directory -k -j2 -Otarget $(LINT) unit

# Of eight at a time some always wait for a cluster: with six workers a twelfth of two cores had nothing to do. The linters
# work beside the first tests and say their words when they are done. A fresh checkout's tests are compiled by one, not by
# each of the workers.
WORKERS := 8
test: $(READY) $(TOOLS) ## everything that must hold, the official C++ client included: 15 to 45 minutes on two cores; WORKERS=8
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	( $(MAKE) --no-print-directory -k $(LINT) >"$$said" 2>&1; lint=$$?; echo; cat "$$said"; exit $$lint ) & lint=$$!; \
	test -e tests/unit/__pycache__ || $(PYTEST) -q --collect-only tests >/dev/null 2>&1; \
	$(PYTEST) -q -n $(WORKERS) --no-loadscope-reorder -m "not long" tests; tests=$$?; \
	wait $$lint || { echo "the linters found something: see above"; exit 1; }; \
	exit $$tests

test-spark: $(READY) $(TOOLS) ## slow: every check in Spark against its plain twin, over many histories and damaged clusters; longer runs
	@$(PYTEST) -q -n 2 --no-loadscope-reorder -m long tests/spark tests/chaos tests/docs tests/cluster/test_broker_transactions_crash.py tests/cluster/test_raftmq_absurd.py tests/cluster/test_raftmq_bench_rebalance.py

test-pure: $(READY) $(TOOLS) ## slow: the tests of `make test` with the hot path in Python, as where nothing could be compiled
	@RAFTMQ_PURE=1 $(PYTEST) -q -n $(WORKERS) --no-loadscope-reorder -m "not long" tests

# In this order: what fails soonest comes first.
ALL := test test-pure test-spark kill-test fuzz soak soak-delay soak-pending chaos-self simulate app-torture pop-torture torture interop-java
test-all: ## hours: everything there is, each slow kind too; goes on after a failure and names all that failed
	@failed=; for kind in $(ALL); do echo "== make $$kind"; $(MAKE) --no-print-directory $$kind || failed="$$failed $$kind"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi; echo "all passed: $(ALL)"

fmt: $(READY) ## format the code and mend what ruff can mend
	@$(PYTHON) -m ruff format $(SOURCES)
	@$(PYTHON) -m ruff check --fix $(SOURCES)

bench: $(READY) ## the figures of docs/performance.md on this machine
	@$(PYTHON) -m raftmq.cli.main bench suite

WHEEL :=
BASE :=
STARTS := 3
bench-guard: $(READY) ## slow: slower than the last release? Both side by side; WHEEL=FILE or BASE=FOLDER, else the newest tag's; STARTS=3
	@$(PYTHON) -m raftmq.cli.main bench guard --starts $(STARTS) $(if $(WHEEL),--wheel "$(WHEEL)") $(if $(BASE),--base "$(BASE)")

MESSAGES := 10000000
bench-pipeline: $(READY) $(TOOLS) ## slow: Spark over logs, runs and topics; MESSAGES=10000000
	@$(PYTHON) -m raftmq.cli.main bench pipeline --messages $(MESSAGES)

kill-test: $(READY) ## slow: the store's writer is killed 300 times, nothing flushed may be lost
	@RAFTMQ_KILLS=300 $(PYTEST) -q -rP tests/cluster/test_store_kill.py

INPUTS := 100000
fuzz: $(READY) ## slow: every decoder of others' bytes, each input bounded in time and memory; INPUTS=100000 SEED=1
	@HYPOTHESIS_PROFILE=fuzz $(PYTEST) -q --timeout 1800 tests/properties -k fuzz
	@$(PYTHON) -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED) --jobs 2

TIMERS := 1000000
TRANSACTIONS := 100000
KILLS := 3
soak-delay: $(READY) ## slow: timers and transactions by the million, leaders killed: lost, early, twice are counted; TIMERS=1000000
	@$(PYTHON) -m tests.soak.delay --timers $(TIMERS) --transactions $(TRANSACTIONS) --kills $(KILLS) --seed $(SEED)

PENDING := 10000000
soak-pending: $(READY) ## slow: timers by the ten million wait in one broker: memory flat, restart in seconds; PENDING=10000000
	@$(PYTHON) -m tests.soak.pending --timers $(PENDING) --seed $(SEED)

soak: $(READY) ## slow: every property test with 1,000 and more examples
	@HYPOTHESIS_PROFILE=slow $(PYTEST) -q -n 2 --timeout 1800 tests/properties

SEEDS := 10000
simulate: $(READY) ## slow: whole Raft groups in one process from seeds, every invariant after every event; SEEDS=10000
	@$(PYTHON) -m tests.simulation.run --seeds $(SEEDS) --jobs 2

MINUTES := 15
SEED := 1
torture: $(READY) ## slow: three real processes under load, kill -9, pauses, cut links, power loss; MINUTES=15 SEED=1; SECURE=1: users and TLS
	@$(PYTHON) -m raftmq.cli.main chaos run torture --seconds $$(awk 'BEGIN {print $(MINUTES) * 60}') --seed $(SEED) $(if $(SECURE),--secure)

app-torture: MINUTES := 10
app-torture: $(READY) ## slow: applications of all kinds come, go and die while the cluster does; MINUTES=10 SEED=1
	@$(PYTHON) -m raftmq.cli.main chaos apps --minutes $(MINUTES) --seed $(SEED)

pop-torture: MESSAGES := 100000
pop-torture: $(READY) ## slow: consumers that hold popped messages are killed, and their leader is; MESSAGES=100000 SEED=1
	@$(PYTHON) -m raftmq.cli.main chaos pop --messages $(MESSAGES) --seed $(SEED)

chaos-self: $(READY) ## slow: planted bugs in real clusters and forged anomalies: each must be found; SEED=1
	@$(PYTHON) -m tests.chaos.selftest --seed $(SEED)

interop-java: $(READY) ## slow: the real RocketMQ as slave, master and heir of RaftMQ; needs Java and Maven, brings RocketMQ itself
	@RAFTMQ_INTEROP_MESSAGES=100000 RAFTMQ_INTEROP_FILTERS=30000 $(PYTEST) -q -rPs --timeout 600 tests/interop/test_broker_rocketmq_pair.py \
		tests/interop/test_raft_rocketmq.py tests/interop/test_broker_leftovers.py tests/interop/test_broker_sql_rocketmq.py \
		tests/interop/test_client_java_sql.py tests/interop/test_broker_sql_answers.py tests/interop/test_client_pop_rocketmq.py tests/interop/test_client_java_trace.py

clean: ## remove .venv and all caches
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage dist build
	@rm -f remoting/compiled/*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lint-format:
	@$(PYTHON) -m ruff format --check $(SOURCES)

lint-rules:
	@$(PYTHON) -m ruff check $(SOURCES)

lint-types:
	@$(PYTHON) -m mypy

lint-floors:
	@.venv/bin/lint-imports

lint-setup:
	@bash -n setup/venv.sh && bash -n setup/tools.sh && bash -n .ci/run && echo "shell scripts: well formed"

unit:
	@$(PYTEST) -q -n 6 --no-loadscope-reorder tests/unit
