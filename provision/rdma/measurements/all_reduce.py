# ruff: noqa: T201 - its output is its result
"""An all-reduce between pods by NCCL alone: no MPI, no ssh. It runs inside the pods, as `python3 -c`.

nccl-tests reduce between nodes only when they are started by MPI. Here each pod runs one rank, and they
meet at `NCCL_COMM_ID` (ADDRESS:PORT of rank 0), which `ncclGetUniqueId` takes where it is set. All that an
image needs is Python and NCCL: the card is used by the driver's own library, which comes with it.

    python3 -c "$PROGRAM" RANK RANKS BYTES TIMES
"""

from __future__ import annotations

import ctypes
import glob
import struct
import sys
import time
from typing import Any

WARM = 5
FLOAT, SUM = 7, 0


class UniqueId(ctypes.Structure):
    """What ranks of a communicator share; NCCL takes it by value."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def library(name: str) -> Any:
    """Load a library of the system, or one that a Python package has brought."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        for folder in sys.path:
            for path in glob.glob(f"{folder}/nvidia/*/lib/{name}"):  # noqa: PTH207 - short, in a pod
                return ctypes.CDLL(path)
        raise


def call(code: int, name: str) -> None:
    """End the program where a call has failed."""
    if code:
        print(f"fault|{name} returned {code}")
        sys.exit(1)


def main(rank: int, ranks: int, size: int, times: int) -> None:
    """Reduce, and print what was measured: ranks, bytes, calls in all, calls that were timed, seconds."""
    cuda, nccl = library("libcuda.so.1"), library("libnccl.so.2")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call(cuda.cuInit(0), "cuInit")
    call(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    call(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    given, result, count = ctypes.c_void_p(), ctypes.c_void_p(), size // 4
    for memory in (given, result):
        call(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)), "cuMemAlloc")
    value = struct.unpack("I", struct.pack("f", rank + 1.0))[0]
    call(cuda.cuMemsetD32_v2(given, ctypes.c_uint(value), ctypes.c_size_t(count)), "cuMemsetD32")
    identity, group = UniqueId(), ctypes.c_void_p()
    call(nccl.ncclGetUniqueId(ctypes.byref(identity)), "ncclGetUniqueId")
    nccl.ncclCommInitRank.argtypes = (ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int)
    call(nccl.ncclCommInitRank(ctypes.byref(group), ranks, identity, rank), "ncclCommInitRank")
    begin = 0.0
    for number in range(WARM + times):
        if number == WARM:
            call(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
            begin = time.monotonic()
        code = nccl.ncclAllReduce(given, result, ctypes.c_size_t(count), FLOAT, SUM, group, None)
        call(code, "ncclAllReduce")
    call(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
    seconds = time.monotonic() - begin
    back = ctypes.create_string_buffer(size)
    call(cuda.cuMemcpyDtoH_v2(back, result, ctypes.c_size_t(size)), "cuMemcpyDtoH")
    is_right = back.raw == struct.pack("f", ranks * (ranks + 1) / 2) * count
    print(f"reduced|{ranks}|{size}|{WARM + times}|{times}|{seconds:.6f}|{'right' if is_right else 'wrong'}")
    nccl.ncclCommDestroy(group)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
