#!/usr/bin/env python3
"""The generator's half of bench/lab: weir bench beside fio and another initiator.

Each bar comes from pairs of runs, one of each program, one after the other on the same
processor; what is compared is the median of the pairs' ratios. Prints lines of
"name value bar ok|short|skipped", and lines that begin with # with the figures behind
them. Exit status 1 where any bar is short, 2 where nothing could be measured.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

BLOCK = 4096
# Where two programs are to measure the same: so that the drive is the limit, and neither of them.
LARGE_BLOCK = 65536
DEPTH = 32
# How far two programs that measure the same may be apart, and how late requests may be.
AGREE = 0.05
LAG_NS = 100_000
# A pause of the machine that shows in lag, in seconds, and a volume in the generator's own process that is its own limit.
GAP = 100e-6
LIMITED = "null:?size=1G&rate=200000&delay=100us"
FILE_BYTES = 1 << 30
FIGURES = ("iops", "p50", "p99")

options = argparse.ArgumentParser()
options.add_argument("--weir", required=True)
options.add_argument("--folder", required=True, help="where the file is made, and removed with the folder")
options.add_argument("--pairs", type=int, required=True)
options.add_argument("--seconds", type=int, required=True)
options.add_argument("--tcp", required=True, help="URL of a namespace of 4096-byte blocks")
options.add_argument("--tcp-limited", required=True, help="and of one that is its own limit")
options.add_argument("--initiator", default="")
options.add_argument("--only", default="")
asked = options.parse_args()

short = False


def bar(name, value, limit, form="%.3f"):
    """Prints a bar: the value is to be no more than the limit."""
    global short
    verdict = "ok" if value <= limit else "short"
    short |= verdict == "short"
    print(name, form % value, limit, verdict, flush=True)


def note(text):
    print("#", text, flush=True)


def wanted(*names):
    return any(name.startswith(asked.only) for name in names)


def run(command, processor):
    """Runs the command on the processor: its standard output, and its processor seconds."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
    )
    before = os.times()
    out, err = process.communicate()
    after = os.times()
    if process.returncode != 0:
        sys.stderr.write(err)
        print(f"bench/generator.py: {command[0]} failed with {process.returncode}", file=sys.stderr)
        sys.exit(2)
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return out, spent


def weir(url, *more, processor=1, block=BLOCK):
    """A run of weir bench: requests a second, p50 and p99 in ns, processor ns of a request, the report."""
    command = [asked.weir, "bench", url, "--block-size", str(block), "--queue-depth", str(DEPTH)]
    out, spent = run([*command, "--duration", f"{asked.seconds}s", *more, "--json"], processor)
    report = json.loads(out)
    total, latency = report["total"], report["total"]["latency_ns"]
    return {
        "iops": total["iops"],
        "p50": latency["percentile"]["50"],
        "p99": latency["percentile"]["99"],
        "processor": spent * 1e9 / max(total["requests"], 1),
        "report": report,
    }


def fio(*more, block=BLOCK):
    """The same of a run of fio."""
    command = ["fio", "--name=peer", "--thread", "--rw=randread", f"--bs={block}", f"--iodepth={DEPTH}"]
    limits = ["--time_based", f"--runtime={asked.seconds}", "--norandommap", "--randrepeat=0"]
    out, spent = run([*command, *limits, *more, "--output-format=json"], 1)
    job = json.loads(out[out.index("{") :])["jobs"][0]
    read = job["read"]
    percentiles = read["clat_ns"].get("percentile", {})
    return {
        "iops": read["iops"],
        "p50": percentiles.get("50.000000", 0),
        "p99": percentiles.get("99.000000", 0),
        "processor": spent * 1e9 / max(read["total_ios"], 1),
    }


def initiator(url):
    """The same of a run of another initiator, from the table and the percentiles that it prints."""
    address, name, nsid = re.fullmatch(r"nvme\+tcp://([^/]+)/([^?]+)\?nsid=(\d+)", url).groups()
    host, port = address.rsplit(":", 1)
    transport = f"trtype:TCP adrfam:IPv4 traddr:{host} trsvcid:{port} subnqn:{name} ns:{nsid}"
    command = [asked.initiator, "--no-huge", "-s", "1024", "-c", "0x2", "-q", str(DEPTH), "-o", str(BLOCK)]
    out, _ = run([*command, "-w", "randread", "-t", str(asked.seconds), "-L", "-r", transport], 1)
    total = re.search(r"^Total\s*:\s+([\d.]+)", out, re.MULTILINE)
    percentile = lambda which: re.search(rf"^\s*{which}\s*:\s+([\d.]+)us", out, re.MULTILINE)
    if not total or not percentile("50.00000%"):
        sys.stderr.write(out)
        print("bench/generator.py: the other initiator printed no table that is understood", file=sys.stderr)
        sys.exit(2)
    microseconds = lambda which: float(percentile(which).group(1)) * 1e3
    return {"iops": float(total.group(1)), "p50": microseconds("50.00000%"), "p99": microseconds("99.00000%")}


def pairs(name, ours, peer):
    """Alternating runs; which of the two is first alternates too. The medians of the ratios, by figure."""
    ratios = {}
    for pair in range(asked.pairs):
        first = ours() if pair % 2 == 0 else None
        theirs = peer()
        mine = first or ours()
        for figure in theirs:
            if theirs[figure]:
                ratios.setdefault(figure, []).append(mine[figure] / theirs[figure])
        told = [f"{figure} {mine[figure]:.0f} : {theirs[figure]:.0f}" for figure in theirs]
        note(f"{name}, pair {pair + 1}: weir : peer, {', '.join(told)}")
    for figure, all_of_it in ratios.items():
        note(f"{name}, {figure}: ratios {' '.join('%.3f' % ratio for ratio in sorted(all_of_it))}")
    return {figure: statistics.median(all_of_it) for figure, all_of_it in ratios.items()}


def agreement(prefix, ratio):
    for figure in FIGURES:
        bar(f"{prefix}-{figure}", abs(ratio[figure] - 1), AGREE)


if wanted("null-processor-ratio"):
    ratio = pairs("null", lambda: weir("null:?size=1G"), lambda: fio("--ioengine=null", "--size=1G"))
    bar("null-processor-ratio", ratio["processor"], 1)

if wanted("file-processor-ratio", *(f"{prefix}-{figure}" for prefix in ("file", "large-file") for figure in FIGURES)):
    path = os.path.join(asked.folder, "volume")
    with open(path, "wb") as volume:
        for _ in range(FILE_BYTES >> 20):
            volume.write(os.urandom(1 << 20))
        os.fsync(volume.fileno())
    uring = ("--ioengine=io_uring", "--direct=1", f"--filename={path}", f"--size={FILE_BYTES}")
    ratio = pairs("file", lambda: weir(f"file:{path}"), lambda: fio(*uring))
    bar("file-processor-ratio", ratio["processor"], 1)
    agreement("file", ratio)
    large = {"block": LARGE_BLOCK}
    agreement("large-file", pairs("file, 64 KiB", lambda: weir(f"file:{path}", **large), lambda: fio(*uring, **large)))

for prefix, url in (("tcp", asked.tcp), ("limited-tcp", asked.tcp_limited)):
    if wanted(*(f"{prefix}-{figure}" for figure in FIGURES)):
        if asked.initiator:
            agreement(prefix, pairs(prefix, lambda: weir(url), lambda: initiator(url)))
        else:
            for figure in FIGURES:
                print(f"{prefix}-{figure} - {AGREE} skipped")

def machine():
    """How often and for how long the machine takes the generator's processor away from a program that does nothing but look."""
    os.sched_setaffinity(0, {1})
    began = last = time.monotonic()
    gaps = []
    while last - began < asked.seconds:
        now = time.monotonic()
        if now - last > GAP:
            gaps.append(now - last)
        last = now
    together, longest = sum(gaps) * 1e3, max(gaps, default=0) * 1e3
    note(f"machine: {len(gaps)} gaps over {GAP * 1e6:.0f} us in {asked.seconds} s, {together:.1f} ms together, the longest {longest:.1f} ms")


def open_loop(url):
    """What is told of a load of half of what the volume can do."""
    saturated = weir(url)["iops"]
    offered = int(saturated / 2)
    held = weir(url, "--rate", str(offered), "--arrivals", "exponential")["report"]
    sent, lag = held["total"]["iops"], held["lag_ns"]
    codes = [caveat["code"] for caveat in held["caveats"]]
    note(f"open loop, {url.split(':')[0]}: {offered} of {saturated:.0f} requests a second, sent {sent:.0f}; lag {lag}; caveats {codes}")
    return held


# Through NVMe/TCP the gateway's pauses, and the machine's of its processor, fill the queue: what is late waited for room.
for prefix, url in (("lag", asked.tcp), ("own-lag", LIMITED)):
    if wanted(f"{prefix}-p99-us", f"{prefix}-unsent"):
        machine()
        held = open_loop(url)
        lag = held["lag_ns"]
        bar(f"{prefix}-p99-us", lag["percentile"]["99"] / 1e3, LAG_NS / 1e3, "%.1f")
        bar(f"{prefix}-unsent", held["unsent"], 0, "%d")

sys.exit(1 if short else 0)
