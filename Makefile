# make prints the targets. All of them loop over the file "modules".

# How long each fuzz target runs in "make fuzz".
FUZZTIME ?= 10m

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test fmt fmtcheck vet staticcheck race alloc api tidy lab bench compare fuzz readme performance schema servers tools

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

test: fmtcheck vet staticcheck race alloc ## all checks and all tests, as CI runs them

fmt: ## format all Go files
	gofmt -w .

fmtcheck: ## fail if a Go file is not formatted
	@scripts/fmtcheck.sh

vet: ## go vet in every module
	@scripts/each.sh vet go vet ./...

staticcheck: tools ## staticcheck in every module
	@scripts/each.sh staticcheck "$(CURDIR)/.bin/staticcheck" ./...

race: servers ## all tests, with the race detector and in random order
	@scripts/each.sh race go test -race -shuffle=on ./...

alloc: ## the allocation tests, without the race detector, which allocates itself
	@scripts/alloc.sh

api: ## write api.txt, which the tests compare with the source
	go test . -run TestAPI -update

schema: ## write policy/schema.json and the findings in docs/policy.md, which the tests compare with the source
	cd policy && go test . -run '^(TestSchema|TestDocs)$$' -update

tidy: ## go mod tidy in every module, and go.work.sum anew
	@scripts/tidy.sh

lab: ## run the lab, which shows what the contract changes
	go run ./cmd/stint lab

bench: ## all benchmarks
	@scripts/each.sh bench go test -run '^$$' -bench . -benchmem ./...

compare: ## the same work through stint, others' libraries and by hand, in some seven minutes
	go run ./bench

fuzz: ## every fuzz target for FUZZTIME, by default 10m
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

readme: ## put what the lab prints now into README.md, and what explain prints into docs/policy.md
	@scripts/block.sh docs/policy.md explain go run ./cmd/stint explain examples/policy/orders.yaml inventory -remaining 90ms -outcome 503 -retry-after 2s -method GET
	@scripts/block.sh README.md lab go run ./cmd/stint lab -short -only multiply,depth,deadline,dead,zombie,payment,overload

performance: ## put what compare prints now into docs/performance.md; best on a quiet machine
	@scripts/block.sh docs/performance.md bench go run ./bench stack refusal hop grpc dead
	@scripts/block.sh docs/performance.md overload go run ./bench overload

servers: ## get what the tests in integration/ run against; make race does
	@scripts/setup-servers.sh
	@scripts/setup-node.sh

# The tools are built in their own module, without the workspace: so they have just the versions that its go.sum
# names, whatever the other modules require, and go build itself knows whether anything is to be done. "go tool"
# would not do: -modfile does not work in a workspace, and GOWORK=off would also reach the go list calls with which
# staticcheck looks for the sibling modules.
tools:
	@echo '==> tools: internal/tools'
	@cd internal/tools && GOWORK=off go build -o "$(CURDIR)/.bin/" honnef.co/go/tools/cmd/staticcheck
