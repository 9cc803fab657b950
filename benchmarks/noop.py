"""Measure a re-run without changes beside pyinfra, the bare batched script and, if asked, Ansible.

    make bench
    make bench ARGS="--hosts 1,10,50,100 --rounds 5 --only provision,check-paramiko --ansible --seed 7"

The farm of SSH servers, the 25 states a host and the peers are those of the benchmark folder `shared/bench`
beside the checkout (or `PROVISION_BENCH=FOLDER`); without it this says so and ends with 0. `provision` gets
the same states from an inventory file through its public command line. Before each number of hosts is
measured, one percent of the states is damaged (the seed is printed), and a plan must name each of them and
nothing else. All contenders run with cached bytecode, after one unmeasured run each. Needs root on Debian or
Ubuntu; works in /var/cache/provision-bench (`PROVISION_BENCH_WORK`), on loopback addresses, with one system
account that is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PEERS = ("pyinfra", "paramiko", "jinja2", "pyyaml")
"""What the peers need; versions are the benchmark's own where it names one."""


def main() -> int:
    bench = Path(os.environ.get("PROVISION_BENCH", CHECKOUT.parent / "shared" / "bench")).resolve()
    if not (bench / "measure.py").is_file():
        print(f"skipped: there is no benchmark folder {bench}; PROVISION_BENCH=FOLDER names another one")
        return 0
    if os.geteuid() != 0:
        print("the farm of SSH servers needs root", file=sys.stderr)
        return 64
    work = Path(os.environ.get("PROVISION_BENCH_WORK", "/var/cache/provision-bench"))
    work.mkdir(mode=0o755, parents=True, exist_ok=True)
    python = make_environment(bench, work / "venv")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "BENCH_DIR": str(work / "farm"),
        # Bytecode of all contenders, the benchmark's folder included, which is left as it is.
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
    }
    arguments = sys.argv[1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", default="1,10,50,100")
    hosts = max(int(count) for count in parser.parse_known_args(arguments)[0].hosts.split(","))
    options: list[str | Path] = ["--bench", bench, "--folder", work / "provision"]
    options += ["--provision", Path(sys.executable).with_name("provision")]
    with farm(python, bench, hosts, environment):
        script = CHECKOUT / "benchmarks" / "noop_contender.py"
        return run(python, script, *options, *arguments, env=environment)


def run(*command: str | Path, env: dict[str, str]) -> int:
    """Run a command and return its exit status."""
    return subprocess.run([str(word) for word in command], check=False, env=env).returncode


def make_environment(bench: Path, folder: Path) -> Path:
    """Return the Python of the peers' virtual environment, which is made once."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        pinned = {line.split("==")[0].strip(): line.strip() for line in _requirements(bench)}
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        packages = [pinned.get(name, name) for name in PEERS]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.touch()
    return python


def _requirements(bench: Path) -> list[str]:
    file = bench / "requirements.txt"
    return (
        [line for line in file.read_text().splitlines() if not line.startswith("#")] if file.exists() else []
    )


@contextmanager
def farm(python: Path, bench: Path, count: int, environment: dict[str, str]) -> Iterator[None]:
    """Start the servers, bring them to the 25 states, and end them afterwards."""
    hosts = python, bench / "hosts.py"
    for_pyinfra = environment | {"BENCH_HERE": str(bench), "BENCH_HOSTS": str(count)}
    pyinfra = (python.with_name("pyinfra"), "-y", bench / "pyinfra_inventory.py", bench / "pyinfra_deploy.py")
    try:
        if run(*hosts, "start", str(count), env=environment):
            sys.exit("the farm did not start")
        if subprocess.run(pyinfra, check=False, env=for_pyinfra, capture_output=True).returncode:
            sys.exit("pyinfra did not bring the farm to its states")
        if run(python, bench / "batch.py", "paramiko", "check", str(count), env=environment):
            sys.exit("the states of the farm differ from what is declared")
        yield
    finally:
        # a server that removes its pid file meanwhile makes the benchmark's own script fail
        if run(*hosts, "stop", env=environment):
            run(*hosts, "stop", env=environment)


if __name__ == "__main__":
    sys.exit(main())
