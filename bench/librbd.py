#!/usr/bin/env python3
"""The measurements of bench/ceph on a real cluster: the gateway beside fio's rbd engine, and numbers of images.

Prints lines of "name value bar ok|short", and lines that begin with # with the figures
behind them. Exit status 1 where any bar is short, 2 where nothing could be measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

DEPTH = 32
RAMP = 1
AT_LEAST = 0.9
# Name, bytes of a request, percent of reads.
WORKLOADS = [("read", 4096, 100), ("write", 4096, 0), ("mixed", 16384, 70)]

options = argparse.ArgumentParser()
options.add_argument("--weir", required=True)
options.add_argument("--gateway", type=int, required=True, help="its process")
options.add_argument("--url", required=True, help="of its subsystem: image N is namespace N + 1")
options.add_argument("--pairs", type=int, required=True)
options.add_argument("--seconds", type=int, required=True)
options.add_argument("--what", choices=["pairs", "images"], required=True)
options.add_argument("--note", default="")
options.add_argument("--prefix", default="", help="of the names of bars")
options.add_argument("--fio-conf", required=True, help="fio's configuration of Ceph")
asked = options.parse_args()


def note(text):
    print("#", text, flush=True)


def run(command, **variables):
    """Runs the command: its standard output, and the processor seconds of it and its children."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    after = os.times()
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        print(f"bench/librbd.py: {command[0]} failed with {done.returncode}", file=sys.stderr)
        sys.exit(2)
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return done.stdout, spent


def gateway_seconds():
    """Processor seconds of the gateway so far."""
    with open(f"/proc/{asked.gateway}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def through_weir(images, size, reads):
    """Requests a second of all images, and microseconds of the gateway's processor time for each."""
    urls = [f"{asked.url}?nsid={image + 1}" for image in range(images)]
    load = ["--block-size", str(size), "--read-percent", str(reads), "--queue-depth", str(DEPTH)]
    times = ["--duration", f"{asked.seconds}s", "--ramp", f"{RAMP}s"]
    before = gateway_seconds()
    named = [word for url in urls for word in ("--destroy-data", url)]
    out, _ = run([asked.weir, "bench", *urls, *load, *times, *named, "--json"])
    spent = gateway_seconds() - before
    total = json.loads(out)["total"]
    if total["errors"]:
        print(f"bench/librbd.py: {total['errors']} requests failed", file=sys.stderr)
        sys.exit(2)
    # The ramp's requests were served too, at the same rate.
    served = total["iops"] * (asked.seconds + RAMP)
    return total["iops"], spent / served * 1e6


def through_fio(images, size, reads):
    """The same of fio on librbd, on images of its own; the processor time is that of fio with librbd in it."""
    pattern = {100: ["--rw=randread"], 0: ["--rw=randwrite"]}.get(reads, ["--rw=randrw", f"--rwmixread={reads}"])
    command = ["fio", "--ioengine=rbd", "--clientname=admin", "--pool=weir", f"--bs={size}", f"--iodepth={DEPTH}", *pattern]
    command += ["--time_based", f"--runtime={asked.seconds}", f"--ramp_time={RAMP}", "--norandommap", "--randrepeat=0"]
    command += ["--group_reporting", "--output-format=json"]
    for image in range(images):
        command += [f"--name=image{image}", f"--rbdname=fio{image}"]
    out, spent = run(command, CEPH_CONF=asked.fio_conf)
    job = json.loads(out[out.index("{") :])["jobs"][0]
    iops = job["read"]["iops"] + job["write"]["iops"]
    return iops, spent / (iops * (asked.seconds + RAMP)) * 1e6


def pairs():
    short = False
    note(asked.note)
    for images in (1, 4):
        for workload, size, reads in WORKLOADS:
            name = asked.prefix + workload
            ratios, costs = [], []
            for pair in range(asked.pairs):
                first = through_weir(images, size, reads) if pair % 2 == 0 else None
                theirs = through_fio(images, size, reads)
                ours = first or through_weir(images, size, reads)
                ratios.append(ours[0] / theirs[0])
                costs.append((ours[1], theirs[1]))
                note(f"{name}-{images}, pair {pair + 1}: {ours[0]:.0f} : {theirs[0]:.0f} requests/s")
            ours, theirs = (statistics.median(cost) for cost in zip(*costs))
            note(f"{name}-{images}: ratios {min(ratios):.3f} to {max(ratios):.3f}; processor of a request {ours:.0f} us gateway, {theirs:.0f} us fio")
            ratio = statistics.median(ratios)
            verdict = "ok" if ratio >= AT_LEAST else "short"
            short |= verdict == "short"
            print(f"{name}-{images} {ratio:.3f} {AT_LEAST} {verdict}", flush=True)
    return short


def images():
    for count in (1, 4, 8):
        told = []
        for name, size, reads in WORKLOADS:
            iops, cost = through_weir(count, size, reads)
            told.append(f"{name} {iops:.0f} requests/s at {cost:.0f} us")
        note(f"{asked.note}, images {count}: {', '.join(told)}")
    return False


sys.exit(1 if (pairs() if asked.what == "pairs" else images()) else 0)
