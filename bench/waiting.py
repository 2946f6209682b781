#!/usr/bin/env python3
"""What bench/waiting measures; see there."""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NAME = "nqn.2026-01.org.example:waiting"
FIXED = ["0us", "50us", "200us", "1ms", "10ms"]
DEFAULTS = "auto"
ROWS = [(kind, depth, 1) for kind in ("read", "write") for depth in (1, 8, 32, 128)]
ROWS += [("read", 32, 4), ("write", 32, 4)]
HOSTS = 8
IDLE_SECONDS = 20

options = argparse.ArgumentParser(prog="bench/waiting")
options.add_argument("weir")
options.add_argument("--pairs", type=int, default=10)
options.add_argument("--seconds", type=float, default=0.5)
options.add_argument("--only", default="")
options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
asked = options.parse_args()
order = random.Random(asked.seed)
short = False


def note(text):
    print("#", text, flush=True)


def bar(name, value, limit, is_enough, verdict=None):
    global short
    verdict = verdict or ("ok" if is_enough else "short")
    short |= verdict == "short"
    print(name, f"{value:.3f}", limit, verdict, flush=True)


def on(processor):
    return lambda: os.sched_setaffinity(0, {processor})


class Gateway:
    """A gateway with one reactor on the first processor."""

    def __init__(self, folder, spin):
        self.folder, self.socket = folder, f"{folder}/weir.sock"
        os.mkdir(folder)
        with open(f"{folder}/weir.toml", "w", encoding="ascii") as file:
            file.write(f'state = "{folder}/state.json"\nreactors = 1\nspin = "{spin}"\n')
            file.write(f'[control]\nsocket = "{self.socket}"\n')
        with open(f"{folder}/log", "wb") as log:
            command = [asked.weir, "serve", "--config", f"{folder}/weir.toml"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=on(0))
        while subprocess.run([asked.weir, "--socket", self.socket, "status"], capture_output=True).returncode:
            if self.process.poll() is not None:
                sys.exit(f"bench/waiting: a gateway did not start: {open(f'{folder}/log').read()}")
            time.sleep(0.1)
        self.tell("subsystem", "add", NAME, "--allow-any-host")
        self.tell("volume", "add", "nothing", "null:?size=1G")
        self.tell("namespace", "add", NAME, "nothing", "--nsid", "1")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.tell("listener", "add", f"127.0.0.1:{port}")
        self.url = f"nvme+tcp://127.0.0.1:{port}/{NAME}?nsid=1"

    def tell(self, *words):
        command = [asked.weir, "--socket", self.socket, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench/waiting: {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout) if "--json" in words else None

    def reactor(self):
        [reactor] = self.tell("reactor", "list", "--json")
        return reactor

    def spent(self):
        """Processor seconds of the whole process, with threads that have ended."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def load(self, *words):
        command = [asked.weir, "bench", self.url, "--reactors", "1", "-b", "4k", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=on(1))
        if done.returncode:
            sys.exit(f"bench/waiting: weir bench failed: {done.stderr}")
        return json.loads(done.stdout)["total"]

    def end(self):
        self.process.terminate()
        self.process.wait()


def closed_loop(gateways, kind, depth, queues):
    name = f"{kind}-{depth}" + (f"-{queues}q" if queues > 1 else "")
    if not name.startswith(asked.only):
        return
    words = ["-d", str(depth), "-q", str(queues), "-r", "100" if kind == "read" else "0"]
    words += ["--duration", f"{asked.seconds}s", "--ramp", "200ms"]
    runs = {spin: [] for spin in gateways}
    gaps = []
    for _ in range(2 * asked.pairs):
        spins = list(gateways)
        order.shuffle(spins)
        for spin in spins:
            before = gateways[spin].reactor() if spin == FIXED[-1] else None
            runs[spin].append(gateways[spin].load(*words)["iops"])
            if before:
                after = gateways[spin].reactor()
                gaps.append((after["spin_ns"] - before["spin_ns"]) / (after["busy_turns"] - before["busy_turns"]))
    best = max(FIXED, key=lambda spin: statistics.median(runs[spin][0::2]))
    judged = {spin: statistics.median(all[1::2]) for spin, all in runs.items()}
    # Of the one that sleeps at once: where the defaults measured it wrongly, they are judged all the same.
    gap, wake_up = statistics.median(gaps), gateways[FIXED[0]].reactor()["wake_up_ns"]
    told = ", ".join(f"{spin} {rate / 1e3:.0f}k" for spin, rate in judged.items())
    note(f"{name}: {told}; best {best}; gap awake {gap / 1e3:.1f} us, wake-up {wake_up / 1e3:.1f} us")
    ratio = judged[DEFAULTS] / judged[best]
    bar(name, ratio, 0.95, ratio >= 0.95, None if gap < wake_up else "printed")


def main():
    with tempfile.TemporaryDirectory(prefix="weir-waiting-") as folder:
        gateways = {}
        try:
            for spin in [DEFAULTS, *FIXED]:
                gateways[spin] = Gateway(f"{folder}/{spin}", spin)
            defaults = gateways[DEFAULTS]
            defaults.load("-d", "1", "--rate", "1000", "--duration", "5s")
            note(f"seed {asked.seed}")
            note(f"a wake-up takes {defaults.reactor()['wake_up_ns'] / 1e3:.1f} us, as the reactor measured it")
            for row in ROWS:
                closed_loop(gateways, *row)
            if "offered-10000".startswith(asked.only):
                offered(defaults, gateways[FIXED[0]])
            if "idle-percent".startswith(asked.only):
                idle(defaults)
        finally:
            for gateway in gateways.values():
                gateway.end()
    return 1 if short else 0


def offered(defaults, asleep):
    costs = {defaults: [], asleep: []}
    for _ in range(asked.pairs):
        for gateway, all in costs.items():
            before, began = gateway.spent(), time.monotonic()
            rate = gateway.load("--rate", "10000", "--duration", "2s")["iops"]
            if rate < 9_900:
                sys.exit(f"bench/waiting: of 10,000 requests a second {rate:.0f} were done")
            all.append((gateway.spent() - before) / (time.monotonic() - began))
    value, least = (statistics.median(all) for all in costs.values())
    note(f"offered-10000: {value:.3f} of a processor, {least:.3f} where it sleeps at once")
    bar("offered-10000", value, 0.25, value <= 0.25)


def idle(gateway):
    command = [asked.weir, "bench", gateway.url, "--hosts", str(HOSTS), "--rate", "1"]
    command += ["--duration", f"{IDLE_SECONDS + 6}s", "--json"]
    hosts = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=on(1))
    time.sleep(4)
    before = gateway.spent()
    time.sleep(IDLE_SECONDS)
    percent = (gateway.spent() - before) / IDLE_SECONDS * 100
    if hosts.poll() is not None:
        sys.exit(f"bench/waiting: the hosts left: {hosts.stderr.read().decode()}")
    hosts.terminate()
    hosts.wait()
    bar("idle-percent", percent, 0.1, percent <= 0.1)


sys.exit(main())
