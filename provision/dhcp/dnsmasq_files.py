"""What a router's dnsmasq was told: its configuration with all files that it includes, and its leases.

One shell fragment follows the files as dnsmasq 2.90 does (`one_file`, `read_file` and `file_filter` of its
option.c); Python reads the lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame, Unknown

OPTION, HOST, ETHER, LEASE, NAMED = "option", "host", "ether", "lease", "named"
"""Sorts of lines: of a configuration, of a dhcp-hostsfile or dhcp-hostsdir, of /etc/ethers, of leases, and of
files like hosts(5), for names that a reservation has without an address."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file.

    Args:
        sort: what kind of file it is from.
        path: the file.
        text: the line.
    """

    sort: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class DnsmasqFiles:
    """All lines about hosts and leases; the answer is a tuple of `Row`.

    Args:
        folder: a dhcp-hostsdir that is read even if no configuration names it.
    """

    kind: ClassVar[str] = "dnsmasq-files"
    folder: str


# Arguments of running servers stand for lines of a configuration. A server in a container of this machine has
# another process namespace, and its paths mean nothing here. Pi-hole's server is dnsmasq under another name,
# with a configuration of its own since version 6 (`src/config/dnsmasq_config.h` of pi-hole/FTL).
_SERVERS = r"""
provision_servers() {
    own=$(readlink /proc/self/ns/pid 2>/dev/null) || own=
    for process in /proc/[0-9]*; do
        name=
        { read -r name <"$process/comm"; } 2>/dev/null || continue
        case $name in dnsmasq|pihole-FTL) ;; *) continue;; esac
        [ "$(readlink "$process/ns/pid" 2>/dev/null)" = "$own" ] || continue
        printf 'server\n'
        if [ "$name" = pihole-FTL ] && [ -e /etc/pihole/dnsmasq.conf ]; then
            printf '%s\n' --conf-file=/etc/pihole/dnsmasq.conf
        fi
        tr '\0' '\n' <"$process/cmdline" 2>/dev/null
    done
}
"""

_FOLLOW = r"""
function quoted(text) { gsub(/'/, "'\\''", text); return "'" text "'" }
function row(sort, path, text) { printf "%s\t%s\t%s\n", sort, path, text }
function absolute(path) { return path ~ /^\// ? path : "/" path }

# Quotes, comments and blanks, as in read_file of option.c.
function clean(line,    i, c, out, white, inside) {
    out = ""; white = 1; inside = 0
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\"") { inside = !inside; white = 0; continue }
        if (inside && c == "\\") { i++; out = out substr(line, i, 1); continue }
        if (!inside && white && c == "#") break
        white = (c ~ /[ \t]/)
        out = out c
    }
    sub(/^[ \t]+/, "", out); sub(/[ \t]+$/, "", out)
    return out
}

# What a path is: d(irectory), f(ile), u(nreadable), n(othing).
function what(path,    command, answer) {
    path = quoted(path)
    command = "if [ -d " path " ]; then if [ -r " path " ]; then echo d; else echo u; fi; " \
        "elif [ -r " path " ]; then echo f; elif [ -e " path " ]; then echo u; else echo n; fi"
    answer = "u"
    command | getline answer
    close(command)
    return answer
}

# The regular files of a folder in names[], without what file_filter of option.c leaves out.
function files(folder, names,    command, line, count) {
    count = 0
    command = "cd " quoted(folder) " && for name in *; do if [ -f \"$name\" ]; then " \
        "if [ -r \"$name\" ]; then echo \"f$name\"; else echo \"u$name\"; fi; fi; done"
    while ((command | getline line) > 0) {
        if (line ~ /~$/ || line ~ /^.#.*#$/) continue
        names[++count] = line
    }
    close(command)
    return count
}

function hosts(path, sort,    kind, names, count, i, line, file) {
    path = absolute(path)
    if ((sort, path) in read) return
    read[sort, path] = 1
    kind = what(path)
    if (kind == "u") row("unreadable", path, "")
    if (kind == "f") lines(path, sort)
    if (kind != "d") return
    count = files(path, names)
    for (i = 1; i <= count; i++) {
        file = path "/" substr(names[i], 2)
        if (substr(names[i], 1, 1) == "u") row("unreadable", file, ""); else lines(file, sort)
    }
}

function lines(file, sort,    line) {
    while ((getline line < file) > 0) if (line !~ /^[ \t]*(#|$)/) {
        row(sort, file, line)
        if (sort == "host") note(clean(line))
    }
    close(file)
}

function folder(value,    parts, count, path, kind, names, amount, i, j, name, keep, only) {
    count = split(value, parts, /[ \t]*,[ \t]*/)
    path = absolute(parts[1])
    kind = what(path)
    if (kind == "u") row("unreadable", path, "")
    if (kind != "d") return
    amount = files(path, names)
    for (i = 1; i <= amount; i++) {
        name = substr(names[i], 2); keep = 1; only = 0
        for (j = 2; j <= count; j++) {
            if (parts[j] == "") continue
            if (substr(parts[j], 1, 1) == "*") {
                if (!only) { only = 1; keep = 0 }
                if (ends(name, substr(parts[j], 2))) keep = 1
            } else if (ends(name, parts[j])) { keep = 0; break }
        }
        if (keep) configuration(path "/" name)
    }
}

function ends(name, tail,    at) {
    at = length(name) - length(tail)
    return at > 0 && substr(name, at + 1) == tail
}

function configuration(path,    kind, line) {
    path = absolute(path)
    if (path in configured) return
    configured[path] = 1
    kind = what(path)
    if (kind == "u" || kind == "d") row("unreadable", path, "")
    if (kind != "f") return
    while ((getline line < path) > 0)
        if (line ~ /^[ \t]*"?(dhcp-|conf-|read-e|no-hosts|addn-h|hostsdir)/) option(clean(line), line, path)
    close(path)
}

function option(text, line, path,    name, value, at) {
    at = index(text, "=")
    name = at ? substr(text, 1, at - 1) : text
    value = at ? substr(text, at + 1) : ""
    sub(/[ \t]+$/, "", name); sub(/^[ \t]+/, "", value)
    if (name == "conf-script" || (name == "conf-file" && value == "-")) row("unreadable", path ": " text, "")
    else if (name == "conf-file" && value != "") configuration(value)
    else if (name == "conf-dir") folder(value)
    else if (name == "dhcp-hostsfile" || name == "dhcp-hostsdir") {
        row("option", path, line)
        hosts(value, "host")
    }
    else if (name == "read-ethers") hosts("/etc/ethers", "ether")
    else if (name == "dhcp-leasefile" || name == "dhcp-lease") {
        leasefile = absolute(value)
        leases(leasefile, 1)
    }
    else if (name == "dhcp-host") { row("option", path, line); note(value) }
    else if (name == "no-hosts") no_hosts = 1
    else if (name == "addn-hosts" || name == "hostsdir") more_names[++more_count] = value
}

# The words of a reservation: dhcp_update_configs of dnsmasq takes the address of a name from hosts(5).
function note(text,    parts, count, i) {
    count = split(tolower(text), parts, /[ \t]*,[ \t]*/)
    for (i = 1; i <= count; i++) if (parts[i] ~ /^[a-z0-9]/ && parts[i] !~ /:/) noted[parts[i]] = 1
}

function named(path,    kind, names, count, i) {
    path = absolute(path)
    kind = what(path)
    if (kind == "f") named_lines(path)
    if (kind != "d") return
    count = files(path, names)
    for (i = 1; i <= count; i++) if (substr(names[i], 1, 1) == "f") named_lines(path "/" substr(names[i], 2))
}

function named_lines(file,    line, text, words, count, i, bare) {
    while ((getline line < file) > 0) {
        text = tolower(line)
        sub(/#.*/, "", text)
        count = split(text, words)
        for (i = 2; i <= count; i++) {
            bare = words[i]
            sub(/\..*/, "", bare)
            if (words[i] in noted || bare in noted) { row("named", file, line); break }
        }
    }
    close(file)
}

function leases(path, must,    kind) {
    if (("lease", path) in read) return
    kind = what(path)
    if (kind == "n" && must) row("unreadable", path, "")
    hosts(path, "lease")
}

# The end of a server's arguments: what they did not say has its default.
function defaults() {
    if (servers && !own) configuration("/etc/dnsmasq.conf")
    own = 0
}

BEGIN {
    long["C"] = "conf-file"; long["7"] = "conf-dir"; long["G"] = "dhcp-host"; long["l"] = "dhcp-leasefile"
    long["H"] = "addn-hosts"
    while ((getline word) > 0) {
        if (word == "server") { defaults(); servers++; pending = ""; continue }
        if (pending != "") { word = "--" pending "=" word; pending = "" }
        else if (word ~ /^-[C7GlH]./) word = "--" long[substr(word, 2, 1)] "=" substr(word, 3)
        else if (word ~ /^-[C7GlH]$/) { pending = long[substr(word, 2, 1)]; continue }
        else if (word == "-Z") word = "--read-ethers"
        else if (word == "-h") word = "--no-hosts"
        if (word !~ /^--/) continue
        word = substr(word, 3)
        if (word ~ /^(conf-(file|dir)|dhcp-(host|hostsfile|hostsdir|leasefile)|addn-hosts|hostsdir)$/) {
            pending = word
            continue
        }
        if (word ~ /^conf-file=/) own = 1
        option(word, word, "the arguments of dnsmasq")
    }
    defaults()
    if (!servers) {
        configuration("/etc/dnsmasq.conf")
        folder("/etc/dnsmasq.d,.dpkg-dist,.dpkg-old,.dpkg-new")
    }
    hosts(ENVIRON["PROVISION_FOLDER"], "host")
    # Debian's and Fedora's default
    if (leasefile == "") {
        leases("/var/lib/misc/dnsmasq.leases", 0)
        leases("/var/lib/dnsmasq/dnsmasq.leases", 0)
    }
    if (!no_hosts) named("/etc/hosts")
    for (i = 1; i <= more_count; i++) named(more_names[i])
    print "end"
}
"""


class DnsmasqFilesKind:
    """All files in one fragment: one process for a folder, none for a file in it."""

    query = DnsmasqFiles

    def script(self, queries: Sequence[DnsmasqFiles]) -> str:
        """Return the fragment; each folder has rows of its own after a line with its number."""
        runs = [
            f"printf 'begin\\t{index}\\n'; printf '%s\\n' \"$servers\" | "
            f"PROVISION_FOLDER={shlex.quote(query.folder)} awk {shlex.quote(_FOLLOW)}"
            for index, query in enumerate(queries)
        ]
        return "\n".join((_SERVERS, "servers=$(provision_servers || :)", *runs))

    def parse(
        self, frame: Frame, queries: Sequence[DnsmasqFiles]
    ) -> Mapping[DnsmasqFiles, tuple[Row, ...] | Unknown]:
        """Return the rows for each folder; one file that cannot be read makes all of them unknown."""
        parts: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in frame.stdout.decode("utf-8", "replace").split("\n"):
            if line.startswith("begin\t"):
                lines = parts.setdefault(line.partition("\t")[2], [])
            else:
                lines.append(line)
        if frame.dropped:
            return dict.fromkeys(queries, Unknown("dnsmasq's files are too large"))
        return {query: _rows(parts.get(str(index), []), frame) for index, query in enumerate(queries)}


def _rows(lines: Sequence[str], frame: Frame) -> tuple[Row, ...] | Unknown:
    if "end" not in lines:
        error = frame.stderr.decode("utf-8", "replace").strip().splitlines()
        return Unknown(f"dnsmasq's files cannot be read: {error[-1] if error else 'no answer'}")
    rows: list[Row] = []
    for line in lines[: lines.index("end")]:
        sort, _, rest = line.partition("\t")
        path, _, text = rest.partition("\t")
        if sort == "unreadable":
            return Unknown(f"dnsmasq reads {path}, which cannot be read or does not exist")
        rows.append(Row(sort, path, text))
    return tuple(rows)
