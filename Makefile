# `make help` lists the targets.  Each makes the environment that it needs in .venvs/ (scripts/make_env.sh).

CONFIG  ?= serve_configs/vllm/byte.yaml
VENV    ?= .venvs/vllm
TARGET  ?= $(shell sed -n 's/^model: *//p' $(CONFIG))
DRAFTER ?= $(shell sed -n 's/^  model: *//p' $(CONFIG))
BENCH   ?= --batch-sizes 1,2,4,8,16 --temperatures 0,1

BIN     := $(abspath $(VENV))/bin
export VENV
export HF_HUB_OFFLINE = 1
export VLLM_NO_USAGE_STATS = 1
export VLLM_CPU_KVCACHE_SPACE ?= 1

.DEFAULT_GOAL := help
.PHONY: help env test-env demo serve test lint bench

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env:
	@scripts/make_env.sh

test-env:
	@scripts/make_env.sh --test

demo: env  ## serve the byte-level target without and with its drafter, stream completions, print the speed-up
	@$(BIN)/python scripts/demo.py --target $(TARGET) --drafter $(DRAFTER)

serve: env  ## leave a server with the drafter running (CONFIG=serve_configs/vllm/...)
	PATH=$(BIN):$$PATH LD_PRELOAD=$(wildcard $(abspath $(VENV))/lib/libiomp5.so) $(BIN)/vllm serve --config $(CONFIG)

lint: test-env  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, then all tests, those that start an engine included (PYTEST=... passes arguments)
	PATH=$(BIN):$$PATH $(BIN)/pytest $(PYTEST)

bench: env  ## measure the engine with and without the drafter into runs/bench (BENCH=... passes arguments)
	$(BIN)/mtpc bench --target $(TARGET) --drafter $(DRAFTER) --out runs/bench $(BENCH)
