"""Measure a re-run without changes: `provision` beside pyinfra and the bare batched script.

    make bench
    python benchmarks/noop.py [--hosts 1,10,50] [--rounds 5] [--json FILE]

The farm of SSH servers, the 25 states a host and the peers are those of the benchmark folder `shared/bench`
beside the checkout (or `PROVISION_BENCH=FOLDER`); without it this says so and ends well. `provision` gets the
same states from an inventory file through its public command line. All contenders run with cached bytecode,
after one unmeasured run each. Needs root on Debian or Ubuntu; works in /var/cache/provision-bench
(`PROVISION_BENCH_WORK`), on loopback addresses, with one system account that is removed at the end.
"""

from __future__ import annotations

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
    python = environment(bench, work / "venv")
    told = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    told |= {
        "BENCH_DIR": str(work / "farm"),
        # Bytecode of all contenders, the benchmark's folder included, which is left as it is.
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
    }
    arguments = sys.argv[1:]
    most = max(int(each) for each in _value(arguments, "--hosts", "1,10,50").split(","))
    provision = Path(sys.executable).with_name("provision")
    with farm(python, bench, most, told):
        options: list[str | Path] = [
            "--bench",
            bench,
            "--provision",
            provision,
            "--folder",
            work / "provision",
        ]
        return run(python, CHECKOUT / "benchmarks" / "contender.py", *options, *arguments, env=told)


def run(*command: str | Path, env: dict[str, str]) -> int:
    """Run a command and return its exit status."""
    return subprocess.run([str(each) for each in command], check=False, env=env).returncode


def _value(arguments: list[str], option: str, default: str) -> str:
    return arguments[arguments.index(option) + 1] if option in arguments else default


def environment(bench: Path, folder: Path) -> Path:
    """Return the Python of the peers' virtual environment, made once."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        listed = {line.split("==")[0].strip(): line.strip() for line in _requirements(bench)}
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        wanted = [listed.get(each, each) for each in PEERS]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
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
            sys.exit("the farm is not as it should be")
        yield
    finally:
        run(*hosts, "stop", env=environment)


if __name__ == "__main__":
    sys.exit(main())
