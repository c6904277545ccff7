# `make help` lists the targets.  Each makes the environment that it needs in .venvs/ (scripts/make_env.sh).

CONFIG        ?= serve_configs/vllm/byte.yaml
SGLANG_CONFIG ?= serve_configs/sglang/byte.yaml
CHAT_CONFIG   ?= serve_configs/vllm/chat.yaml
VENV          ?= .venvs/vllm
SGLANG_VENV   ?= .venvs/sglang
DOCS_VENV     ?= .venvs/docs
TARGET        ?= $(shell sed -n 's/^model: *//p' $(CONFIG))
DRAFTER       ?= $(shell sed -n 's/^  model: *//p' $(CONFIG))
CHAT_TARGET   ?= $(shell sed -n 's/^model: *//p' $(CHAT_CONFIG))
CHAT_DRAFTER  ?= $(shell sed -n 's/^  model: *//p' $(CHAT_CONFIG))
ENGINE        ?= vllm
RAY_CONFIG    ?= serve_configs/ray/$(if $(filter sglang,$(ENGINE)),sglang/)byte.yaml
DEMO_RAY      ?= --clients 32 --seconds 15
BENCH         ?= --batch-sizes 1,2,4,8,16 --temperatures 0,1

BIN           := $(abspath $(VENV))/bin
SGLANG_BIN    := $(abspath $(SGLANG_VENV))/bin
RAY_VENV      := $(abspath $(if $(filter sglang,$(ENGINE)),$(SGLANG_VENV),$(VENV)))
MAKE_CHAT      = test -f $(CHAT_TARGET)/config.json || $(1)/mtpc target smollm2 $(CHAT_TARGET)
PAIRS         := --pair $(TARGET) $(DRAFTER) --pair $(CHAT_TARGET) $(CHAT_DRAFTER)
SGLANG_TESTS  := tests/sglang_cpu tests/sglang_mtpc tests/engine_sglang
export VENV
export HF_HUB_OFFLINE = 1
export VLLM_NO_USAGE_STATS = 1
export VLLM_CPU_KVCACHE_SPACE ?= 1

.DEFAULT_GOAL := help
.PHONY: help env env-ray env-sglang test-env test-env-sglang chat-target demo demo-ray demo-sglang serve serve-sglang lint test test-all test-vllm \
    test-sglang test-gpu reference docs bench bench-sglang

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env:
	@scripts/make_env.sh

env-ray:
	@VENV=$(RAY_VENV) scripts/make_env.sh --ray $(ENGINE)

env-sglang:
	@VENV=$(SGLANG_VENV) scripts/make_env.sh sglang

test-env:
	@scripts/make_env.sh --test

test-env-sglang:
	@VENV=$(SGLANG_VENV) scripts/make_env.sh --test sglang

chat-target: env  ## the chat model of the demo, out of a package, into runs/
	@$(call MAKE_CHAT,$(BIN))

demo: chat-target  ## serve a byte-level and a chat model without and with their drafters: completions and the speedup
	@$(BIN)/python scripts/demo.py $(PAIRS) --copying $(CHAT_TARGET) $(CHAT_DRAFTER)

demo-ray: env-ray  ## Ray Serve (ENGINE=vllm or sglang): two replicas with the drafter under load, one is killed, then the drafter is exchanged
	@PYTHONPATH=. LD_PRELOAD=$(wildcard $(RAY_VENV)/lib/libiomp5.so) $(RAY_VENV)/bin/python -m benchmarks.ray_serve --config $(RAY_CONFIG) $(DEMO_RAY)

demo-sglang: env-sglang  ## the same with SGLang
	@$(call MAKE_CHAT,$(SGLANG_BIN))
	@$(SGLANG_BIN)/python scripts/demo.py --engine sglang --out runs/demo-sglang $(PAIRS)

serve: env  ## leave a server with the drafter running (CONFIG=serve_configs/vllm/...)
	PATH=$(BIN):$$PATH LD_PRELOAD=$(wildcard $(abspath $(VENV))/lib/libiomp5.so) $(BIN)/vllm serve --config $(CONFIG)

serve-sglang: env-sglang  ## the same with SGLang (SGLANG_CONFIG=serve_configs/sglang/...)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(SGLANG_BIN)/python -m sglang.launch_server --config $(SGLANG_CONFIG)

lint: test-env docs  ## ruff, mypy, import-linter, hadolint, the words of the pages, and a strict build of the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/*.Dockerfile
	$(BIN)/python scripts/check_words.py

test:  ## lint and the tests of both engines, side by side, each engine in its own environment (PYTEST=... passes arguments)
	@PYTEST='$(PYTEST)' scripts/test_both.sh

test-all:  ## the same with every draft method, shape and executor in the real engines: hours
	@PYTEST='--thorough $(PYTEST)' scripts/test_both.sh

test-vllm: test-env  ## the tests of everything but the SGLang adapter (PYTEST=... passes arguments)
	PATH=$(BIN):$$PATH $(BIN)/pytest --durations=30 $(PYTEST)

test-sglang: test-env-sglang  ## the tests of the SGLang adapter (PYTEST=... passes arguments)
	PATH=$(SGLANG_BIN):$$PATH $(SGLANG_BIN)/pytest --durations=30 $(SGLANG_TESTS) $(PYTEST)

test-gpu:  ## what only a GPU can show, card by card; without one it says so (CARDS='load core' for some, docs/gpu-cards.md)
	@scripts/test_gpu.sh $(CARDS) $(if $(ROWS),--rows $(ROWS))

$(DOCS_VENV)/.stamp: requirements/docs.txt | test-env
	$(BIN)/python -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check -q install --no-compile --no-deps -r $<
	@touch $@

reference: test-env  ## write the pages of docs/ that describe the code: commands, settings, checkpoints, metrics
	PYTHONPATH=plugins $(BIN)/python scripts/reference_pages.py

docs: $(DOCS_VENV)/.stamp  ## build the documentation site into runs/site; a broken link ends it
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

bench: env  ## measure vLLM without a drafter, with it and with its own, into runs/bench (BENCH=... passes arguments)
	$(BIN)/mtpc bench --target $(TARGET) --drafter $(DRAFTER) --out runs/bench $(BENCH)

bench-sglang: env-sglang  ## the same with SGLang, into runs/bench-sglang
	$(SGLANG_BIN)/mtpc bench --engine sglang --target $(TARGET) --drafter $(DRAFTER) --out runs/bench-sglang $(BENCH)
