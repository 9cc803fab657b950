# Three commands matter: `make tour` (a minute), `make lab` (the main job, from nothing) and `make test`.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: setup packages root lab tour test story story-full story-rdma story-k3s check lint types layers unit model docs site pages bench format clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@python3 -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] \
		&& echo "Installing python3-venv: the virtual environment needs it" \
		&& apt-get -q update && apt-get -q install -y python3-venv; } \
		|| { echo "python3-venv is missing: sudo apt-get install python3-venv"; exit 1; }
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade pip
	$(VENV)/bin/pip install --quiet --editable '.[lab,dev]'
	touch $(STAMP)

# What tests need of Debian; says what and why. Needs root only when something is missing.
packages:
	@tests/install_packages.sh

# The lab creates network namespaces, containers and virtual machines.
root:
	@[ "$$(id -u)" = 0 ] || { echo "The lab needs root: sudo make $(MAKECMDGOALS)"; exit 1; }

# The main job, from nothing: set up, start the lab, and bring its site to a verified end.
lab: root
	@echo "A whole site on this machine: a router, a hypervisor with two graphics cards, and three virtual machines."
	@echo "You see the plan, the apply with its reboots, and the checks."
	@if [ -w /dev/kvm ]; then echo "This takes some minutes."; else \
		echo "This takes about 8 minutes: the machine has no hardware virtualisation (/dev/kvm)."; fi
	@echo "The first time, the guest image is built as well, which takes some minutes more."
	@echo "Shorter, with containers instead of virtual machines: make tour"
	@$(MAKE) --no-print-directory setup
	$(VENV)/bin/provision apply inventories/lab.yaml --yes

# The same in containers: plan, apply, verify, and a second plan without changes.
tour: root
	@echo "A whole site in containers on this machine: a router, a hypervisor and three guests."
	@echo "You see the plan, the apply, the checks, and a second plan that changes nothing. It takes about 75 seconds."
	@echo "The first time, the guest image is built as well, which takes some minutes more."
	@$(MAKE) --no-print-directory setup
	$(VENV)/bin/provision apply inventories/tour.yaml --yes
	$(VENV)/bin/provision plan inventories/tour.yaml
	@echo "Look around: $(VENV)/bin/provision ssh inventories/tour.yaml vm-1"
	@echo "Remove it:   $(VENV)/bin/provision lab down inventories/tour.yaml"

# Everything that needs no lab: gates, unit tests, model sweeps, contracts against independent servers.
test: packages $(STAMP) check model

# The core story in the lab: needs root. Virtual machines and containers side by side, a file a worker.
story: $(STAMP)
	$(VENV)/bin/pytest tests/e2e -m 'not full and not rdma and not k3s' -n 2 --dist loadfile

story-full: $(STAMP)
	$(VENV)/bin/pytest tests/e2e -m 'not rdma and not k3s' -n 2 --dist loadfile

# Two virtual machines with Soft-RoCE; the packages of RDMA come from this machine's own archive (Debian 12).
story-rdma: $(STAMP)
	$(VENV)/bin/pytest tests/e2e/test_soft_roce.py -m rdma

# A cluster of three virtual machines: with k3s itself where PROVISION_LAB_K3S names a binary, else with a stand-in.
story-k3s: $(STAMP)
	$(VENV)/bin/pytest tests/e2e/test_k3s_story.py -m k3s

check: lint types layers unit pages

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

layers: $(STAMP)
	$(VENV)/bin/lint-imports --no-cache

# Unit tests need no network and no root, so root runs them as nobody, who reads all and writes nothing,
# in a network namespace without even loopback; where that cannot be, they run as they are.
# Compiled tests are kept where nobody may write: to compile them takes a quarter of the time. Plugins that no
# unit test uses are off: each costs every test something.
BYTECODE := $(abspath $(VENV))/bytecode
ALONE := unshare --net setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all,+dac_read_search \
	--inh-caps=-all,+dac_read_search --ambient-caps=+dac_read_search env -u PYTHONDONTWRITEBYTECODE HOME=/nonexistent PYTHONPYCACHEPREFIX=$(BYTECODE)
unit: $(STAMP)
	@alone=$$([ "$$(id -u)" = 0 ] && install -d -o 65534 $(BYTECODE) && $(ALONE) true 2>/dev/null && echo '$(ALONE)'); \
	set -x; $$alone $(VENV)/bin/pytest tests/unit -p no:cacheprovider -p no:logging -p no:anyio -p no:legacypath -p no:subtests

model: $(STAMP)
	$(VENV)/bin/pytest tests/model tests/contract -n 2
	$(VENV)/bin/pytest tests/unit -m hypothesis --hypothesis-profile=deep -n 2
	$(PY) benchmarks/fuzz_inventories.py --count 20000 --processes 2

# Writes the generated pages, and the outputs of commands in all pages.
docs: $(STAMP)
	$(VENV)/bin/python -m docs.generators

# The documentation as a web site, in the folder site.
export NO_MKDOCS_2_WARNING := 1
site: $(STAMP)
	$(VENV)/bin/mkdocs build --quiet --strict --clean --site-dir site

# Builds the site into a folder that is removed again: a broken link or a page without a place is an error.
pages: $(STAMP)
	@folder=$$(mktemp -d); set -x; $(VENV)/bin/mkdocs build --quiet --strict --site-dir $$folder; \
	status=$$?; rm -rf $$folder; exit $$status

# A re-run without changes beside its peers; says so and ends well where ../shared/bench is not there.
bench: $(STAMP)
	$(VENV)/bin/python benchmarks/noop.py $(ARGS)

format: $(STAMP)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean:
	rm -rf $(VENV)
