# make help lists the targets. Every one works on a fresh machine with Go; those
# that use the race detector also need a C compiler.

GO ?= go

# How many packages are tested at once: one more than processors, because each waits for its
# servers a third of the time. The crash harness, whose processes have deadlines, runs apart.
PARALLEL ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n + 1)))
TEST_TIMEOUT ?= 20m

# The packages whose tests take longest come first, so that none of them is tested alone in the end.
LONGEST = ./stores/mysql ./stores/dynamodb ./brokers/kafka ./stores/postgres/... ./middleware/retention ./brokers/amqp/... ./cmd/... \
	./internal/testenv ./internal/install ./router

# The race detector watches all but SQLite itself, which is C translated to Go, and ten times as slow
# under it, and what parses regular expressions and Go, five times as slow. Linked without debug
# information: traces of stacks need none.
UNWATCHED = modernc.org/sqlite/lib modernc.org/libc/... regexp/... go/...
RACE = -race -ldflags="-s -w" $(UNWATCHED:%=-gcflags=%=-race=false)

# By default the detector keeps each process for a second at its end.
export GORACE ?= atexit_sleep_ms=10

# Test processes are short and small: they need not collect garbage so often.
test soak failover: export GOGC ?= 400

# Tests of which there are too many for each run take turns by the day.
export MILLPOND_TEST_DAY ?= $(shell date -u +%Y-%m-%d)

# SOAK is handed to the crash harness as MILLPOND_SOAK: kills on each store.
SOAK ?= 500
SOAK_TIMEOUT ?= 6h

# TIDB=1 also builds a TiDB server, which takes a quarter of an hour, for the soak.
TIDB ?=

# ARGS is handed to the program of run, failures, payments, swap, pipeline, bench and scale: make run ARGS=--without-inbox
ARGS ?=

# BROKER is the file of examples/swap that make swap uses: memory, kafka, rabbitmq, sqs, nats,
# or one of them through Watermill's own adapter, such as kafka-watermill; and sqs-dynamodb, which
# has no server of SQL.
BROKER ?= memory

# Modules of their own, because of what they need beside millpond.
MODULES = $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod internal/bench/*/go.mod))

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint v2.15.0

.PHONY: build
build: ## Compile everything.
	$(GO) build ./...

.PHONY: run
run: ## Run the quickstart: kills and duplicates, and nothing lost or doubled. No server needed.
	$(GO) run ./examples/quickstart $(ARGS)

.PHONY: failures
failures: ## Run the failures: a handler that fails in five ways, and the repair. No server needed.
	$(GO) run ./examples/failures $(ARGS)

.PHONY: payments
payments: ## Run the payments: calls that no transaction can hold, with kills in every place. No server needed.
	$(GO) run ./examples/payments $(ARGS)

.PHONY: swap
swap: ## Run one service on BROKER=memory, kafka, rabbitmq, sqs, nats, sqs-dynamodb: the same table on each.
	$(GO) run ./examples/swap --config examples/swap/$(BROKER).yaml $(ARGS)

.PHONY: pipeline
pipeline: ## Run a shop, a stock and a shipping with an outbox between each, and kill them. No server needed.
	$(GO) run ./examples/pipeline $(ARGS)

.PHONY: tracing
tracing: ## Run two services over a real broker, and show the trace from one to the other.
	$(GO) -C examples/tracing run . $(ARGS)

.PHONY: test
test: servers race ## Run all tests under the race detector; starts the servers it needs.
	@echo "testing $$($(GO) list ./... | wc -l) packages, $(PARALLEL) at a time, with the variations of $(MILLPOND_TEST_DAY)"
	$(GO) test $(RACE) -shuffle=on -timeout $(TEST_TIMEOUT) ./internal/crash/...
	@echo "the other packages' servers have their data in $$(.ci/tempdir)"
	TMPDIR=$$(.ci/tempdir) $(GO) test $(RACE) -shuffle=on -timeout $(TEST_TIMEOUT) -p $(PARALLEL) $$($(GO) list $(LONGEST) ./... | grep -v /internal/crash)
	@export TMPDIR=$$(.ci/tempdir); for module in $(MODULES); do \
		echo "testing the module $$module"; \
		$(GO) -C $$module test $(RACE) -shuffle=on -timeout $(TEST_TIMEOUT) ./... || exit 1; \
	done

.PHONY: bench
bench: ## Compare millpond with the same handlers without it; prints a table.
	$(GO) run ./internal/bench $(ARGS)

.PHONY: scale
scale: ## Run one service with 1 to 8 processes on one database, on two and on DynamoDB Local; prints a table, draws bin/scale.svg.
	@mkdir -p bin
	$(GO) run ./internal/scale -svg bin/scale.svg $(ARGS)

.PHONY: lint
lint: ## Run go vet and golangci-lint, which is built into ./bin when it is missing.
	$(GO) vet ./...
	@for module in $(MODULES); do $(GO) -C $$module vet ./... || exit 1; done
	@tool=$$(.ci/tool $(GOLANGCI_LINT)) && echo "$$tool run ./..." && $$tool run ./...

.PHONY: soak
soak: race ## Run all variations of all tests, and the crash harness until SOAK=500 workers were killed on each store, as many under leases, and 100 on each broker and store: an hour or so.
	MILLPOND_TEST_TIDB=$(TIDB) MILLPOND_SOAK=$(SOAK) $(GO) test $(RACE) -count=1 -timeout $(SOAK_TIMEOUT) ./stores/... ./brokers/...
	MILLPOND_TEST_TIDB=$(TIDB) MILLPOND_SOAK=$(SOAK) $(GO) test $(RACE) -count=1 -v -timeout $(SOAK_TIMEOUT) ./internal/crash/...

.PHONY: failover
failover: race ## Fail over to a standby that lacks up to a second of commits, under load, 20 times on PostgreSQL, through PgBouncer and on MariaDB: a quarter of an hour.
	MILLPOND_SOAK=1 $(GO) test $(RACE) -count=1 -v -timeout $(SOAK_TIMEOUT) -run '^TestFailoverThatLosesCommits$$/standby' ./internal/crash

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what is linked.
	@.ci/vuln

.PHONY: cover
cover: ## Write coverage.html and print the total.
	$(GO) test -timeout $(TEST_TIMEOUT) -p $(PARALLEL) -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: smoke
smoke: ## Follow README and the first tutorial in a blank module that gets this tree as a released version.
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./internal/install

# Its Markdown is read without it; links and anchors are checked by internal/doccheck as well.
MKDOCS_MATERIAL ?= mkdocs-material==9.8.1

.PHONY: site
site: ## Build the site of docs/ into bin/site; needs Python 3.9 or later.
	@test -x bin/mkdocs/bin/mkdocs || { python3 -m venv bin/mkdocs && bin/mkdocs/bin/pip install --quiet $(MKDOCS_MATERIAL); }
	NO_MKDOCS_2_WARNING=1 bin/mkdocs/bin/mkdocs build --strict

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The first line: what will be installed where the tests may, and how to refuse.
.PHONY: servers
servers:
	@.ci/servers

# The race detector is the one thing here that needs cgo.
.PHONY: race
race:
	@if [ "$$($(GO) env CGO_ENABLED)" != 1 ] || ! command -v "$$($(GO) env CC | cut -d' ' -f1)" >/dev/null; then \
		echo "the race detector needs cgo and a C compiler: install gcc (or set CC) and CGO_ENABLED=1, or test without it: go test ./..." >&2; \
		exit 1; \
	fi
