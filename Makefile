# Reel. `make help` says what there is.
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

PREFIX  ?= /usr/local
DESTDIR ?=
BIN     ?= bin
MANUAL  ?= .build/manual
# In the packages' fields; whoever publishes packages names their own.
HOMEPAGE   ?= https://reel.example/
MAINTAINER ?= The Reel authors <reel@reel.example>
export HOMEPAGE MAINTAINER
GO      ?= go
VERSION ?= $(shell sh systemd/version.sh)

# Two lines; the empty one ends the second.
define PROMPT ?=
ROMEO:
But, soft! what light through yonder window breaks?

endef

# As it was typed: a dollar sign in it is no variable of make.
override PROMPT := $(value PROMPT)
export PROMPT
export CGO_ENABLED = 0

TOOLS   := .build/tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0
NFPM    := $(TOOLS)/nfpm-v2.43.4
BUILD   := $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

# Go 1.26 is needed: an older one gets a sentence instead of a page of errors.
# It may fetch a newer one by itself, as go.mod asks; where it may not, it says
# its version only outside of the module.
GOVERSION := $(shell $(GO) env GOVERSION 2>/dev/null || { cd / && $(GO) env GOVERSION 2>/dev/null; })
define need-go
	@test "$$(uname -s)" = Linux || { echo "Reel runs on Linux (amd64 and arm64); this is $$(uname -s)." >&2; exit 1; }
	@case "$(GOVERSION)" in \
	go1.2[6-9]*|go1.[3-9][0-9]*|go[2-9]*|devel*) exit 0 ;; \
	"") found="'$(GO)' was not found" ;; \
	*) found="this is $(GOVERSION)" ;; \
	esac; echo "Reel needs Go 1.26 or newer; $$found. Get it from https://go.dev/dl and run make again." >&2; exit 1
endef

.PHONY: all
all: programs gateway format ## build bin/reel-generator, bin/reel, bin/reel-gateway and bin/reel-bench; with cargo also bin/reel-format
	@$(BUILD) -o '$(BIN)/reel-bench' ./bench/cmd/reel-bench

# What make run needs: what draws plots is large, and a first run should be short.
.PHONY: programs
programs:
	$(need-go)
	@$(BUILD) -o '$(BIN)/reel-generator' ./generator
	@$(BUILD) -o '$(BIN)/reel' ./client/cmd/reel

.PHONY: gateway
gateway:
	$(need-go)
	@$(BUILD) -o '$(BIN)/reel-gateway' ./client/cmd/reel-gateway

# What follows formats is Rust. The rest is built and tested without it.
.PHONY: format
format:
	@sh format/build.sh '$(BIN)'

# WITHCUDA runs a command so that Go can build the tag cuda, on any machine that
# has a C++ compiler and either a CUDA toolkit or Python's package registry.
WITHCUDA := sh kernels/cuda/with

.PHONY: kernels
kernels:
	$(need-go)
	@$(WITHCUDA) $(MAKE) -j2 -f kernels/cuda/Makefile

.PHONY: cuda
cuda: all kernels ## build bin/reel-generator-cuda, which serves on NVIDIA GPUs, beside the rest
	@$(WITHCUDA) $(BUILD) -tags cuda -o '$(BIN)/reel-generator-cuda' ./generator

# Kernels that take their time, and such that besides do not wait for the ones
# before them, or take tagged values without their tags: tests show by them that no
# kernel reads what is not there yet. Only GPUs of 9.0 and later let a kernel begin
# before the one before it has ended. Attention without one of its barriers, which
# racecheck must find, and kernels whose barriers it follows. And kernels that read rings
# in shared memory, with one that polls beside them, and such without the fence between
# reads of a ring and copies into it.
RINGS := kernels/copypage.cu kernels/fill.cu kernels/gateup.cu kernels/pack_codes.cu kernels/cudatest/poll.cu
.PHONY: late-kernels
late-kernels:
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/late \
		OUTPUT=.build/cuda/late/images DEFINES=-DREEL_LATE
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/unwaited \
		OUTPUT=.build/cuda/unwaited/images DEFINES='-DREEL_LATE -DREEL_NO_WAIT'
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/untagged \
		OUTPUT=.build/cuda/untagged/images DEFINES='-DREEL_LATE -DREEL_NO_TAGS'
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/racing \
		OUTPUT=.build/cuda/racing/images SOURCES='kernels/attend.cu kernels/fill.cu' DEFINES=-DREEL_RACE
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/lanes \
		OUTPUT=.build/cuda/lanes/images DEFINES=-DREEL_EVERY_LANE
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/polling \
		OUTPUT=.build/cuda/polling/images SOURCES='$(RINGS)'
	@$(WITHCUDA) $(MAKE) -f kernels/cuda/Makefile TARGETS='sm_90a compute_90' OBJECTS=.build/cuda/unfenced \
		OUTPUT=.build/cuda/unfenced/images SOURCES='$(RINGS)' DEFINES=-DREEL_NO_READ_FENCE

.PHONY: gpu-bundle
gpu-bundle: cuda late-kernels ## put all that tests a GPU into .carry/gpu, for a machine without Go: sh run there
	@$(WITHCUDA) sh kernels/cuda/bundle '$(BIN)' .carry/gpu

# stdout is the passage alone; what the build and the generator say goes to
# stderr. The socket is under /tmp: its path may have 107 bytes.
.PHONY: run
run: ## build, start a generator, stream a passage (PROMPT="…" for another), stop it
	@$(MAKE) programs >&2
	@for name in $$(env | sed -n 's/^\(REEL_[A-Z_]*\)=.*/\1/p'); do unset "$$name"; done; \
	dir=$$(mktemp -d /tmp/reel.XXXXXX) || exit 1; \
	'$(BIN)/reel-generator' --socket "$$dir/generator.sock" --device host --log-level warn & generator=$$!; \
	trap 'kill $$generator 2>/dev/null; wait $$generator 2>/dev/null; rm -rf "$$dir"' EXIT; \
	trap 'exit 130' INT TERM; \
	'$(BIN)/reel' --socket "$$dir/generator.sock" --wait 20s --timings --echo \
		--temperature 0 --repeat-penalty 1.3 --max-tokens 300 -- "$$PROMPT" </dev/null

# Where run-gateway listens.
ADDRESS ?= 127.0.0.1:8080

.PHONY: run-gateway
run-gateway: programs gateway ## build, serve the embedded model over HTTP with a page for people, until Ctrl-C
	@sh client/gateway/run.sh '$(BIN)' '$(ADDRESS)'

RAY := client/gateway/ray

# The first time it installs Ray from Python's package registry.
.PHONY: run-ray
run-ray: programs gateway ## build, start three nodes of Ray on this machine, stream a passage through them, stop them
	@python=$$(sh $(RAY)/install $(RAY)/requirements.txt) && "$$python/python3" -B $(RAY)/run.py '$(BIN)'

# With -trimpath, as BUILD has it, or the tests that run make would compile everything a second time. What go test would
# vet, make vet does, and more; here it would take a tenth of the time.
.PHONY: test
test: ## run the tests (under 5 minutes on 2 cores)
	$(need-go)
	@$(GO) test -trimpath -vet=off $(TESTFLAGS) ./...

.PHONY: check
# The linter vets and checks the format too.
check: unskipped vet-arm64 lint race fuzz examples readiness tidy bench-check units page-check cuda-check format-check sleepers clients-check ray-check sizing-check kubernetes-check package-check ## all that CI runs

.PHONY: unskipped
unskipped: ## make test, which fails here where a test skips that could run
	@sh .ci/unskipped $(MAKE) test TESTFLAGS=-v

.PHONY: vet
vet: ## go vet, and gofmt
	$(need-go)
	@$(GO) vet ./...
	@$(MAKE) vet-arm64
	@out=$$("$$($(GO) env GOROOT)/bin/gofmt" -l $$(find . -path './.*' -prune -o -name '*.go' -print)); \
		test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

.PHONY: vet-arm64
vet-arm64:
	$(need-go)
	@GOARCH=arm64 $(GO) vet ./...

$(LINT):
	$(need-go)
	@echo "building golangci-lint, once" >&2
	@GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(TOOLS)/golangci-lint $@

.PHONY: lint
lint: $(LINT) ## golangci-lint
	@$(LINT) run --config .ci/golangci.yml ./...

# The race detector needs cgo, and a C compiler with it. Packages in which nothing happens at the same time are left out.
.PHONY: race
race: ## the tests under the race detector, on a micro model
	$(need-go)
	@command -v cc >/dev/null || { echo "the race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	@packages=$$(GO='$(GO)' sh .ci/concurrent) && CGO_ENABLED=1 $(GO) test -vet=off -race -short $$packages

# The long forms of the tests in SECURITY.md: one user loads the generator in every way
# it can, and another's answers are timed. As root, with two users. Nothing else may run.
.PHONY: attack
attack: ## attack one user's bounds as another, at length (10 minutes, as root)
	$(need-go)
	@REEL_LONG=1 $(GO) test -count=1 -timeout 20m -v ./generator/e2e \
		-run 'OneUserHoldsUp|OfAUser|UsersShare|Unfinished|NobodyReadsItsLog|^TestWeights|StartsUnder'
	@REEL_TEST_ITL=1 $(GO) test -count=1 -timeout 20m -v ./generator/internal/server \
		-run 'ITLBeside|Unfinished|Undecoded|WaitingTexts|Connections|Tokenizing|Renders|SlowTemplate'
	@$(GO) test -count=1 -v ./generator/internal/metrics ./generator/internal/logging \
		-run 'Connection|Idle|Stalled|Bounds|Rate'

# The full form of TestFormatsSurviveKilledGenerators: a twentieth of it is part of format-check.
.PHONY: survive
survive: all ## kill one and two generators under 64 streams, 200 times each (half an hour)
	@test -x '$(BIN)/reel-format'
	@REEL_KILLS=200 REEL_FORMAT='$(abspath $(BIN))/reel-format' $(GO) test -tags formats -count=1 -timeout 2h -v \
		./generator/e2e -run '^TestFormatsSurviveKilledGenerators$$'

# The full form of tests of which make test has a twentieth.
.PHONY: sleepers
sleepers: ## have two models leave a device for each other under load 40 times, and one sleep 20 times (2 minutes)
	$(need-go)
	@REEL_SLEEPS=20 $(GO) test -count=1 -timeout 20m -v ./generator/e2e -run '^(TestModelsSwap|TestGatewayLosesNoRequestAtSleep)$$'

# For how long clients are mixed; clients-check does a twentieth.
MIXED ?= 10m

.PHONY: mixed
mixed: all ## mix real clients while models swap and generators die, and compare each answer (15 minutes)
	@test -x '$(BIN)/reel-format'
	@clients=$$(sh client/gateway/testdata/clients/install) && \
		REEL_MIXED='$(MIXED)' REEL_CLIENTS="$$clients" REEL_FORMAT='$(abspath $(BIN))/reel-format' \
		$(GO) test -trimpath -tags formats,clients -count=1 -timeout 2h -v ./generator/e2e -run '^TestMixedClients'

# TEMPLATES is a directory with *.jinja and the cases.jsonl that
# generator/internal/jinja/testdata/cases.py makes of them with Jinja2.
.PHONY: chat-templates
chat-templates: ## compare the chat templates in the directory TEMPLATES with Jinja2
	$(need-go)
	@test -f '$(TEMPLATES)/cases.jsonl' || \
		{ echo 'TEMPLATES=directory has no cases.jsonl: generator/internal/jinja/testdata/cases.py makes it' >&2; exit 1; }
	@REEL_TEMPLATES='$(abspath $(TEMPLATES))' $(GO) test -count=1 -timeout 30m -v ./generator/internal/jinja \
		-run '^TestPublishedTemplates$$'

.PHONY: fuzz
fuzz: ## each fuzz target for a few seconds: a minute for all of them, and one for HTTP; the tests of random models and schedules, and of many steps and requests, at length
	$(need-go)
	@REEL_LONG=1 $(GO) test -count=1 ./generator/internal/model ./generator/internal/engine ./generator/internal/server \
		-run 'Hostile|Mutated|FormatsEqual|AnySchedule|MillionSteps|ManyClients'
	@sh .ci/fuzz 60
	@sh .ci/fuzz 60 ./client/gateway

# The long forms of the random tests of the prefix cache and of drafts.
.PHONY: soak
soak: ## the random tests of KV pages and drafts, at length (10 minutes)
	$(need-go)
	@RAPID_CHECKS=20000 $(GO) test -count=1 -timeout 20m -v ./generator/internal/kv ./generator/internal/scheduler \
		-run 'EqualsModel|ReadsItsOwnValues'
	@REEL_LONG=1 $(GO) test -count=1 -timeout 20m -v ./generator/internal/engine \
		-run 'ConversationsGive|FullPool|RandomRequests'

.PHONY: examples
examples: ## the protocol's Python example, against the real generator
	$(need-go)
	@$(MAKE) all >&2
	@out=$$(python3 -B -m unittest discover -s protocol/examples -v 2>&1); code=$$?; echo "$$out"; \
		case "$$out" in *skipped*) echo "an example was skipped"; exit 1 ;; esac; exit $$code

.PHONY: cuda-check
cuda-check: $(LINT) cuda ## compile the kernels for every GPU, refuse spills, vet and lint what is tagged cuda, test what of it needs no GPU
	@sh kernels/cuda/spills kernels/cuda/exceptions.txt .build/cuda/objects/*.log
	@$(WITHCUDA) sh kernels/cuda/headers
	@$(WITHCUDA) $(GO) vet -tags cuda ./...
	@$(WITHCUDA) $(GO) vet -tags cuda,fault ./generator ./generator/internal/hardware
	@$(WITHCUDA) $(GO) test -tags cuda ./generator/internal/gpu
	@$(WITHCUDA) sh kernels/cuda/stubbed $(GO) test -tags cuda ./kernels -run '^TestCUDA|^TestAttendManyRing$$'
	@$(WITHCUDA) sh kernels/cuda/stubbed $(GO) test -tags cuda ./kernels/device/cuda -run '^TestEventIsAwaited$$'
	@$(WITHCUDA) sh kernels/cuda/refused '$(BIN)/reel-generator-cuda'
	@headers="$$(sh kernels/cuda/install kernels/cuda/headers-12.txt)" && \
		CUDA_INCLUDE="$$headers/include" $(WITHCUDA) $(GO) build -tags cuda ./kernels/device/cuda
	@$(WITHCUDA) $(LINT) run --config .ci/golangci.yml --build-tags cuda ./...

.PHONY: format-check
format-check: $(LINT) all ## reel-format: its own tests, and those of formats that need it
	@test -x '$(BIN)/reel-format'
	@! cargo clippy --version >/dev/null 2>&1 || sh format/cargo.sh clippy --all-targets -- -D warnings
	@! cargo fmt --version >/dev/null 2>&1 || (cd format && cargo fmt --check)
	@sh format/cargo.sh test --release
	@$(GO) vet -tags formats,clients ./generator/...
	@$(LINT) run --config .ci/golangci.yml --build-tags formats,clients ./generator/internal/format/... ./generator/e2e/...
	@suite=$$(sh format/suite.sh) && REEL_FORMAT='$(abspath $(BIN))/reel-format' REEL_SCHEMA_SUITE="$$suite" \
		$(GO) test -tags formats -count=1 ./generator/internal/format
	@REEL_FORMAT='$(abspath $(BIN))/reel-format' $(GO) test -tags formats -count=1 -run Format ./generator/e2e

.PHONY: bench-report
bench-report: ## write the README's table and plot from bench/results
	@$(MAKE) all >&2
	@'$(BIN)/reel-bench' report

# What README shows. The commands are typed into a shell, beside a generator with the embedded model.
.PHONY: recording
recording: programs ## record README's terminal with a running generator (bench/results/terminal.svg)
	@dir=$$(mktemp -d /tmp/reel.XXXXXX) && export XDG_RUNTIME_DIR="$$dir" && unset REEL_SOCKET || exit 1; \
	'$(BIN)/reel-generator' --device host --log-level warn --socket "$$dir/reel/generator.sock" & generator=$$!; \
	trap 'kill $$generator 2>/dev/null; wait $$generator 2>/dev/null; rm -rf "$$dir"' EXIT; \
	'$(BIN)/reel' --wait 20s status >/dev/null && \
	$(GO) run ./bench/tools/recording bench/results/terminal.svg \
		'bin/reel --timings --echo --seed 1 --max-tokens 78 "ROMEO:"' \
		'echo "JULIET:" | bin/reel --seed 3 --max-tokens 40' \
		'bin/reel status | head -n 8'

.PHONY: page-check
page-check: ## the gateway's page in a headless Chromium
	$(need-go)
	@command -v chromium >/dev/null || { echo "the page's test needs Chromium: apt-get install chromium" >&2; exit 1; }
	@$(GO) vet -tags browser ./client/gateway
	@$(GO) test -count=1 -tags browser ./client/gateway -run Page

# Needs Python 3.11 with venv, Node 20 with npm, curl, and their package registries.
.PHONY: clients-check
clients-check: all ## real clients of OpenAI's, Anthropic's and Ollama's APIs, and README's curl, against the gateway
	@$(BUILD) -o .build/scripted ./client/gateway/internal/scripted
	@clients=$$(sh client/gateway/testdata/clients/install) && \
		"$$clients/bin/python3" -B client/gateway/testdata/clients/check.py '$(BIN)' .build/scripted
	@$(MAKE) mixed MIXED=30s

# Needs Python 3.11 with venv and its package registry. The other version is for a node that must be refused.
.PHONY: ray-check
ray-check: programs gateway ## three nodes of Ray: 500 requests, a node killed under 32 streams, a rolling restart, bad nodes (5 minutes)
	@$(MAKE) programs gateway BIN=.build/ray-other VERSION=0.0.0-other
	@python=$$(sh $(RAY)/install $(RAY)/requirements.txt) && \
		"$$python/python3" -B -m unittest discover -s $(RAY) -t $(RAY) && \
		"$$python/python3" -B $(RAY)/check.py '$(BIN)' .build/ray-other

SIZING := client/gateway/sizing

.PHONY: sizing
sizing: ## simulate how many replicas users take: what client/gateway/SIZING.md shows (20 minutes)
	@python=$$(sh $(RAY)/install $(SIZING)/requirements.txt) && "$$python/python3" -B $(SIZING)/simulate.py

.PHONY: sizing-check
sizing-check: ## the simulation gives what SIZING.md shows, for up to 1,000 users
	@python=$$(sh $(RAY)/install $(SIZING)/requirements.txt) && "$$python/python3" -B $(SIZING)/simulate.py check

# A module of its own, so that Reel does not depend on Kubernetes. It runs no container.
.PHONY: kubernetes-check
kubernetes-check: programs gateway ## the manifests in the types of Kubernetes, and the gateway's gauges by the endpoint picker's own scraper
	@cd client/gateway/kubernetes && $(GO) vet ./... && $(GO) mod tidy -diff && \
		REEL_BIN='$(abspath $(BIN))' $(GO) test -count=1 ./...

.PHONY: page-picture
page-picture: programs gateway ## take README's picture of the page beside the embedded model
	@REEL_TEST_PICTURE=1 sh client/gateway/run.sh '$(BIN)' 127.0.0.1:0 \
		$(GO) test -count=1 -tags browser ./client/gateway -run TestPagePicture

.PHONY: bench-check
bench-check: ## the README's table and plot are those of bench/results, and goodput can be measured
	@$(MAKE) all >&2
	@'$(BIN)/reel-bench' report --check
	@$(MAKE) goodput RATES=4,8 GOODPUT='--lossless --duration 1s --warmup 200ms --slo ttft=1m,itl=1m --plot .build/goodput.svg' >&2

# A twentieth of the measurement that is worth reporting; for a GPU, give the model and longer conversations by hand:
# reel-bench goodput --model DIR.
RATES   ?= 4,8,16,24,32
GOODPUT ?= --duration 10s --warmup 3s
.PHONY: goodput
goodput: ## goodput of the embedded model on this machine's processors, by rate of requests (RATES)
	@$(MAKE) all >&2
	@mkdir -p .build
	@'$(BIN)/reel-bench' goodput --start --device host --rate '$(RATES)' --scale 0.25 --context 500 $(GOODPUT)

.PHONY: readiness
readiness: ## every op can be captured, and every replay equals the eager run
	@$(MAKE) all >&2
	@'$(BIN)/reel-generator' check --device host --max-batch 16 --max-seq-len 256

.PHONY: units
units: ## systemd understands the units, and the service may do little
	@sh systemd/check.sh 30

$(NFPM):
	$(need-go)
	@echo "building nfpm, once" >&2
	@GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
	@mv $(TOOLS)/nfpm $@

.PHONY: dist
dist: cuda $(NFPM) ## a tarball and Debian packages in dist/
	@sh systemd/package.sh '$(BIN)' dist '$(VERSION)' $(NFPM)

.PHONY: package-check
package-check: $(NFPM) ## install, upgrade and remove the package in a clean Debian (root only)
	@rm -rf .build/package
	@for version in 0.1.0 0.1.0+9.g1234567 0.1.0+10.g0123456; do \
		$(MAKE) all BIN=.build/package/bin VERSION=$$version && \
		sh systemd/package.sh .build/package/bin .build/package/$$version $$version $(NFPM) >/dev/null || exit 1; \
	done
	@sh systemd/package_test.sh .build/package 0.1.0 0.1.0+9.g1234567 0.1.0+10.g0123456

# Takes 12 minutes longer than package-check, which wakes the service without a pause.
.PHONY: systemd-check
systemd-check: ## package-check with 45 wakes of the sleeping service, 15 s apart (root only)
	@REEL_WAKES=45 REEL_WAKE_EVERY=15 $(MAKE) package-check

.PHONY: tidy
tidy: ## go.mod holds what is used, no more
	$(need-go)
	@$(GO) mod tidy -diff

.PHONY: manual
manual: ## write man pages and completions to .build/manual
	$(need-go)
	@rm -rf '$(MANUAL)'
	@GO='$(GO)' sh systemd/manual/write.sh '$(MANUAL)'

SHARE = $(DESTDIR)$(PREFIX)/share

.PHONY: install
install: all manual ## install programs, man pages and completions under $(DESTDIR)$(PREFIX)
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 0755 '$(BIN)/reel-generator' '$(BIN)/reel' '$(BIN)/reel-gateway' '$(BIN)/reel-bench' "$(DESTDIR)$(PREFIX)/bin/"
	@! test -e '$(BIN)/reel-generator-cuda' || install -m 0755 '$(BIN)/reel-generator-cuda' "$(DESTDIR)$(PREFIX)/bin/"
	@! test -e '$(BIN)/reel-format' || install -m 0755 '$(BIN)/reel-format' "$(DESTDIR)$(PREFIX)/bin/"
	install -d "$(SHARE)/man/man1"
	install -m 0644 '$(MANUAL)'/man1/*.1 "$(SHARE)/man/man1/"
	@for name in reel reel-generator reel-gateway reel-bench; do \
		install -D -m 0644 '$(MANUAL)'/$$name.bash "$(SHARE)/bash-completion/completions/$$name" && \
		install -D -m 0644 '$(MANUAL)'/_$$name "$(SHARE)/zsh/site-functions/_$$name" && \
		install -D -m 0644 '$(MANUAL)'/$$name.fish "$(SHARE)/fish/vendor_completions.d/$$name.fish" || exit 1; \
	done

.PHONY: uninstall
uninstall: manual ## remove what make install installed
	@for name in reel reel-generator reel-gateway reel-bench; do \
		rm -f "$(DESTDIR)$(PREFIX)/bin/$$name" "$(SHARE)/bash-completion/completions/$$name" \
			"$(SHARE)/zsh/site-functions/_$$name" "$(SHARE)/fish/vendor_completions.d/$$name.fish"; \
	done; rm -f "$(DESTDIR)$(PREFIX)/bin/reel-generator-cuda" "$(DESTDIR)$(PREFIX)/bin/reel-format"
	@for page in '$(MANUAL)'/man1/*.1; do rm -f "$(SHARE)/man/man1/$${page##*/}"; done

.PHONY: clean
clean: ## remove what make built
	rm -rf bin dist .build .carry

.PHONY: help
help: ## this list
	@echo "make TARGET, one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "variables: PROMPT for run; PREFIX (now $(PREFIX)) and DESTDIR for install; BIN, where to build; VERSION (now $(VERSION)); HOMEPAGE and MAINTAINER for dist"
