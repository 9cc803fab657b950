"""Commands that checks of several domains use."""

LOADED_MODULES = "[ ! -e /proc/modules ] && [ -r /proc/version ] || cat /proc/modules"
"""The modules of the running kernel, one a line; a kernel that can load none has no such file."""
