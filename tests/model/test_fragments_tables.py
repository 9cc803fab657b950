"""Lines of /etc/hosts and /etc/fstab: what awk makes of them is what the models say."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from provision.hosts.resources import hosts_file, mount

AWKS = {"awk": ["awk"], "busybox": ["busybox", "awk"]}
HOSTS = [
    "",
    "127.0.0.1 localhost\n",
    "10.0.0.3 reg\n",
    "10.0.0.4 reg other\n",
    "10.0.0.4\treg\n10.0.0.3 reg\n10.0.0.3 reg\n",
    "# 10.0.0.4 reg\n\n  # x\n10.0.0.3 other reg\n",
]
SEVERAL = """# nas:/m /srv/m nfs ro 0 0
nas:/m\t/srv/m nfs ro 0 0
nas:/m /srv/m nfs x 0 0
/dev/vdb none swap sw 0 0
"""
FSTAB = ["", "/dev/vda1 / ext4 defaults 0 1\n", "nas:/m /srv/m nfs ro 0 0\n", SEVERAL]


def filtered(awk: str, script: str, text: str, **variables: str) -> str:
    argv = AWKS[awk]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    result = subprocess.run(
        [*argv, script],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env={**os.environ, "LC_ALL": "C", **variables},
    )
    return result.stdout


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize("text", HOSTS, ids=range(len(HOSTS)))
def test_a_name_gets_one_address(awk: str, text: str) -> None:
    made = filtered(awk, hosts_file._AWK, text, PROVISION_NAME="reg", PROVISION_ADDRESS="10.0.0.3")
    assert made == hosts_file.with_entry(text.encode(), "reg", "10.0.0.3").decode()


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize("text", FSTAB, ids=range(len(FSTAB)))
@pytest.mark.parametrize("line", ["nas:/m /srv/m nfs defaults 0 0", ""], ids=["line", "none"])
def test_a_place_gets_one_line_or_none(awk: str, text: str, line: str) -> None:
    made = filtered(awk, mount._AWK, text, PROVISION_MOUNT="/srv/m", PROVISION_LINE=line)
    assert made == mount.with_fstab_line(text.encode(), "/srv/m", line).decode()
