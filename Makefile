# One virtual environment (.venv) and one build (build/) serve every target. `make` alone lists them.
PYTHON ?= python3
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/editable
REPORTS := $(CURDIR)/build/reports
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error
# A file's tests stay in one process, since what they share is made once in each; the longest file is not the last.
# Slow ones share little, and a few take minutes: a process that is done takes half of what another has left.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
PYTEST_SLOW := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow

# cmake and ninja come from the environment; a source tree of one user may be built by another.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PYTHONDONTWRITEBYTECODE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

# Everything that the extension and the kernels are made from.
SOURCES := $(sort $(shell find csrc metal src cmake -type f -not -name '*.pyc'))
SOURCES += CMakeLists.txt pyproject.toml $(wildcard tests/cpp/*)
CMAKE_ARGS := $(if $(CI),-C cmake.define.MTLQWEN_WERROR=ON)
FORMATTED = $(shell find csrc metal src tests -name '*.[ch]pp' -o -name '*.h' -o -name '*.metal')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo docs test test-slow test-neon test-all lint format stub check-metal bench bench-peers asan tsan wheel clean FORCE

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

# --- environment and build ------------------------------------------------------------------------
$(VENV)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "mtlqwen: [python] $(PYTHON): not found; apt-get install python3 python3-venv python3-dev" >&2; exit 1; }
	@$(PYTHON) tools/check_system.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q --group dev
	@touch $@

# Changes only when a source file comes or goes.
build/sources.list: FORCE
	@mkdir -p build
	@echo '$(SOURCES) $(CMAKE_ARGS)' | cmp -s - $@ || echo '$(SOURCES) $(CMAKE_ARGS)' > $@

$(VENV)/.built: $(VENV)/.installed build/sources.list $(SOURCES)
	@$(PYTHON) tools/check_system.py
	$(BIN)/python -m pip install -q --no-build-isolation -e . \
	  -C build-dir=$(BUILD) -C cmake.define.MTLQWEN_BUILD_TESTS=ON $(CMAKE_ARGS)
	@touch $@

# --- what people run ------------------------------------------------------------------------------
demo: $(VENV)/.built  ## the bundled model: a chat, a tool call, a story, eight prompts at once
	@$(BIN)/python -m mtlqwen demo

test: $(VENV)/.built  ## the core tests, Python and C++
	@mkdir -p $(REPORTS) && rm -f $(REPORTS)/core-*.xml
	@status=0; \
	$(PYTEST) --junitxml=$(REPORTS)/core-python.xml || status=1; \
	$(CTEST) --test-dir $(BUILD) --output-junit $(REPORTS)/core-cpp.xml || status=1; \
	$(BIN)/python tools/count_tests.py $(REPORTS)/core-*.xml || status=1; exit $$status

# What executes and renders notebooks.
$(VENV)/.notebook: $(VENV)/.built
	$(BIN)/python -m pip install -q --group notebook
	@touch $@

test-slow: $(VENV)/.built $(VENV)/.notebook  ## the tests marked slow
	@mkdir -p $(REPORTS)
	$(PYTEST_SLOW) --ignore tests/neon --junitxml=$(REPORTS)/slow.xml

test-neon: $(VENV)/.built  ## the kernels cross-compiled for aarch64, by qemu; skipped where that is missing
	@mkdir -p $(REPORTS)
	$(PYTEST_SLOW) tests/neon --junitxml=$(REPORTS)/neon.xml

test-all: lint docs check-metal test-slow test-neon asan tsan  ## all that `test` leaves out; `make -k test-all` goes on after a failure
	@$(BIN)/python tools/count_tests.py $(REPORTS)/slow.xml $(REPORTS)/neon.xml $(REPORTS)/asan.xml $(REPORTS)/tsan.xml

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install -q --group docs
	@touch $@

docs: $(VENV)/.built $(VENV)/.docs  ## these pages as HTML, in build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -n -j $(JOBS) -d build/doctrees docs build/docs

lint: $(VENV)/.built  ## ruff, mypy --strict, clang-format, the committed stub
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)
	$(BIN)/python tools/make_stub.py --check

format: $(VENV)/.installed  ## rewrites the sources in the one style
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(FORMATTED)

stub: $(VENV)/.built  ## writes python/mtlqwen/_core.pyi anew
	$(BIN)/python tools/make_stub.py

check-metal: $(VENV)/.installed  ## what Apple's compiler would reject: the kernels, and the runtime against metal-cpp
	$(BIN)/python csrc/hostmetal/msl/check_metal.py

bench: $(VENV)/.built  ## speed: kernels, and the bundled model alone, in company, and around its kernels
	@for name in ceilings kernels decode rows prefill batch cache load overhead spec; do $(BIN)/python -m bench $$name || exit 1; done

# llama.cpp is compiled here, for this machine, whatever wheels a cache holds.
PEERS := build/peers
SHAPES := $(PEERS)/qwen3.5-0.8b-shape-Q8_0.gguf $(PEERS)/qwen3.5-4b-shape-Q8_0.gguf

$(PEERS)/venv/.installed:
	$(PYTHON) -m venv $(PEERS)/venv
	CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" $(PEERS)/venv/bin/python -m pip install -q --no-cache-dir \
	  --no-binary llama-cpp-python 'llama-cpp-python>=0.3.36'
	@touch $@

$(PEERS)/qwen3.5-%-shape-Q8_0.gguf: tools/make_shape_gguf.py | $(VENV)/.installed
	$(BIN)/python tools/make_shape_gguf.py $* $@

bench-peers: $(VENV)/.built $(PEERS)/venv/.installed $(SHAPES)  ## mtlqwen beside llama.cpp: builds it, makes models of real shapes
	$(BIN)/python -m bench peers --json $(PEERS)/peers-1-tiny.json
	$(BIN)/python -m bench peers --json $(PEERS)/peers-2-0.8b.json --model $(word 1,$(SHAPES))
	$(BIN)/python -m bench peers --json $(PEERS)/peers-3-4b.json --model $(word 2,$(SHAPES)) --tokens 32

asan: SANITIZE := address,undefined
asan: $(VENV)/.installed  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(SANITIZED)

tsan: SANITIZE := thread
tsan: $(VENV)/.installed  ## the C++ tests under ThreadSanitizer
	$(SANITIZED)

define SANITIZED
	@mkdir -p $(REPORTS)
	$(BIN)/cmake -S . -B build/$@ -G Ninja -DMTLQWEN_BUILD_TESTS=ON -DMTLQWEN_SANITIZE=$(SANITIZE) \
	  -DMTLQWEN_KERNEL_DIR=$(CURDIR)/$(BUILD)/kernels >build/$@.log
	$(BIN)/cmake --build build/$@ --target cpp_tests -- --quiet
	$(CTEST) --test-dir build/$@ --output-junit $(REPORTS)/$@.xml
endef

wheel: $(VENV)/.installed  ## a wheel of this machine's kind, in dist/
	$(BIN)/python -m pip wheel -q --no-build-isolation --no-deps -w dist .
	@ls -l dist/*.whl

clean:  ## removes the environment and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
