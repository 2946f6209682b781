#!/usr/bin/env python3
"""What bench/nfs measures; see there."""

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

FILE_BYTES = 256 << 20
NAME = "nqn.2026-01.org.example:nfs"
# Of ten rounds eight must clear a bar.
CLEAR = 0.8
CLIENTS = 1000
IDLE_SECONDS = 20
# How often a client renews its lease: Linux's does so after two thirds of it.
RENEWAL_SECONDS = 30

options = argparse.ArgumentParser(prog="bench/nfs")
options.add_argument("built")
options.add_argument("--rounds", type=int, default=10)
options.add_argument("--seconds", type=float, default=1)
options.add_argument("--only", default="")
options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
asked = options.parse_args()
order = random.Random(asked.seed)
weir, limit = f"{asked.built}/weir", f"{asked.built}/weir-limit"
short = False


def note(text):
    print("#", text, flush=True)


def bar(name, value, limit_text, is_enough):
    global short
    short |= not is_enough
    print(name, f"{value:.3f}", limit_text, "ok" if is_enough else "short", flush=True)


def skipped(name, why):
    print(name, "-", "-", f"skipped: {why}", flush=True)


def is_asked(name):
    return name.startswith(asked.only)


def on(processor):
    return lambda: os.sched_setaffinity(0, {processor})


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Server:
    """A process on the first processor."""

    def start(self, command, port, log):
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=on(0))
        until = time.monotonic() + 30
        while not answers(port):
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"bench/nfs: {command[0]} did not start: {open(log, errors='replace').read()[-2000:]}")
            time.sleep(0.1)

    def spent(self):
        """Processor seconds of the whole process, with threads that have ended."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Gateway(Server):
    def __init__(self, folder, served):
        os.mkdir(folder)
        self.socket, self.port, block_port = f"{folder}/weir.sock", free_port(), free_port()
        with open(f"{folder}/weir.toml", "w", encoding="ascii") as file:
            file.write(f'state = "{folder}/state.json"\nreactors = 1\n[control]\nsocket = "{self.socket}"\n')
        command = [weir, "serve", "--config", f"{folder}/weir.toml"]
        with open(f"{folder}/log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=on(0))
        while subprocess.run([weir, "--socket", self.socket, "status"], capture_output=True).returncode:
            if self.process.poll() is not None:
                sys.exit(f"bench/nfs: the gateway did not start: {open(f'{folder}/log').read()}")
            time.sleep(0.1)
        for name, directory in served.items():
            self.tell("export", "add", f"/{name}", f"dir:{directory}", "--allow", "127.0.0.0/8")
        self.tell("listener", "add", f"127.0.0.1:{self.port}", "--protocol", "nfs")
        self.tell("subsystem", "add", NAME, "--allow-any-host")
        self.tell("listener", "add", f"127.0.0.1:{block_port}")
        self.block_url = f"nvme+tcp://127.0.0.1:{block_port}/{NAME}?nsid=1"

    def tell(self, *words):
        done = subprocess.run([weir, "--socket", self.socket, *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench/nfs: {' '.join(words)}: {done.stderr}")

    def memory_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


class Ganesha(Server):
    def __init__(self, folder, served):
        os.makedirs(f"{folder}/recovery")
        self.port = free_port()
        exports = "".join(
            f"EXPORT {{ Export_Id = {number}; Path = {directory}; Pseudo = /{name}; Access_Type = RW; "
            "Squash = No_root_squash; SecType = sys; Protocols = 4; FSAL { Name = VFS; } }\n"
            for number, (name, directory) in enumerate(served.items(), 1)
        )
        with open(f"{folder}/conf", "w", encoding="ascii") as file:
            file.write(f"NFS_CORE_PARAM {{ NFS_Port = {self.port}; Protocols = 4; Bind_addr = 127.0.0.1; ")
            file.write("Enable_NLM = false; Enable_RQUOTA = false; }\nNFS_KRB5 { Active_krb5 = false; }\n")
            file.write("NFSV4 { Slot_Table_Size = 1024; Graceless = true; RecoveryBackend = fs; ")
            file.write("Minor_Versions = 1,2; }\n" + exports)
        command = ["ganesha.nfsd", "-F", "-f", f"{folder}/conf", "-L", f"{folder}/log", "-p", f"{folder}/pid"]
        self.start(command, self.port, f"{folder}/out")


def load(url, *words):
    command = [weir, "bench", url, "--reactors", "1", *words, "--ramp", "200ms", "--json"]
    command += ["--duration", f"{asked.seconds}s"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=on(1))
    if done.returncode:
        sys.exit(f"bench/nfs: weir bench {url} failed: {done.stderr}")
    return json.loads(done.stdout)["total"]


def costed(server, url, *words):
    """Requests for each second of the server's processor time, and requests a second. The ramp takes its part of the time."""
    before = server.spent()
    total = load(url, *words)
    spent = (server.spent() - before) * asked.seconds / (asked.seconds + 0.2)
    return total["requests"] / spent, total["iops"]


def bare(work, depth, file):
    """The same of a server that reads from the file and sends."""
    served = subprocess.Popen(
        [limit, "--processor", "0", "serve", "--work", work, "--file", file], stdout=subprocess.PIPE, text=True
    )
    address = json.loads(served.stdout.readline())["listening"]
    drive = [limit, "--processor", "1", "drive", "--work", work, "--depth", str(depth)]
    subprocess.run([*drive, "--seconds", str(asked.seconds), address], check=True, capture_output=True)
    report = json.loads(served.communicate()[0])
    operations = report["operations"]
    return operations / report["processor_seconds"], operations / report["elapsed_seconds"]


def rounds(runs):
    """Every run once a round, in an order that is drawn: what each yielded, round by round."""
    found = {name: [] for name in runs}
    for _ in range(asked.rounds):
        names = list(runs)
        order.shuffle(names)
        for name in names:
            found[name].append(runs[name]())
    return found


def is_cleared(ratios, least):
    """Of ten rounds eight reach it, of fewer than five all."""
    wanted = CLEAR * len(ratios) if len(ratios) >= 5 else len(ratios)
    return sum(ratio >= least for ratio in ratios) >= wanted


def compare(name, found, one, other, least, index=0):
    ratios = [mine[index] / its[index] for mine, its in zip(found[one], found[other])]
    middle = {side: statistics.median(run[index] for run in found[side]) for side in (one, other)}
    what = "a processor second" if index == 0 else "a second"
    note(f"{name}: {one} {middle[one]:,.0f}, {other} {middle[other]:,.0f} {what}; ratios {min(ratios):.2f} to {max(ratios):.2f}")
    bar(name, statistics.median(ratios), least, is_cleared(ratios, least))


def reads(gateway, ganesha, file):
    mine, its = (f"nfs://127.0.0.1:{server.port}/plain/file" for server in (gateway, ganesha))
    for depth in (32, 128):
        names = [f"read-4k-{depth}-{peer}" for peer in ("ganesha", "bare")]
        if not any(map(is_asked, names)):
            continue
        words = ["-b", "4k", "-d", str(depth)]
        found = rounds({
            "weir": lambda: costed(gateway, mine, *words),
            "ganesha": lambda: costed(ganesha, its, *words),
            "bare": lambda: bare("read:4k", depth, file),
        })
        compare(names[0], found, "weir", "ganesha", 3.0)
        compare(names[1], found, "weir", "bare", 0.5)
    if is_asked("read-128k-bare"):
        found = rounds({
            "weir": lambda: costed(gateway, mine, "-b", "128k", "-d", "32"),
            "bare": lambda: bare("read:128k", 32, file),
        })
        compare("read-128k-bare", found, "weir", "bare", 0.8)
    if is_asked("connections-16"):
        words = ["-b", "128k", "-d", "128"]
        found = rounds({
            "sixteen": lambda: costed(gateway, f"{mine}?connections=16&depth=128", *words),
            "one": lambda: costed(gateway, f"{mine}?connections=1&depth=128", *words),
        })
        compare("connections-16", found, "sixteen", "one", 0.95, index=1)
    if is_asked("nvme-tcp"):
        gateway.tell("volume", "add", "file", f"file:{file}?direct=never")
        gateway.tell("namespace", "add", NAME, "file", "--nsid", "1")
        words = ["-b", "4k", "-d", "32"]
        found = rounds({
            "nfs": lambda: costed(gateway, mine, *words),
            "nvme": lambda: costed(gateway, gateway.block_url, *words),
        })
        compare("nvme-tcp", found, "nfs", "nvme", 0.6)
        gateway.tell("namespace", "remove", NAME, "1")
        gateway.tell("volume", "remove", "file")


def writes(gateway, ganesha, kind, least):
    name = f"write-4k-{kind}"
    if not is_asked(name):
        return
    words = ["-b", "4k", "-d", "32", "-r", "0"]

    def run(server):
        url = f"nfs://127.0.0.1:{server.port}/{kind}/file"
        return lambda: costed(server, url, *words, "--destroy-data", url)

    found = rounds({"weir": run(gateway), "ganesha": run(ganesha)})
    compare(name, found, "weir", "ganesha", least)


class Client:
    """A client of version 4.1 with a session, by hand."""

    def __init__(self, port, number):
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.xid, self.sequence = 0, 0
        owner = f"client {number}".encode()
        padded = owner + bytes(-len(owner) % 4)
        reply = self.call(struct.pack(">I8sI", 42, number.to_bytes(8, "big"), len(owner)) + padded + bytes(12))
        client, sequence = struct.unpack_from(">QI", reply, 8)
        channel = struct.pack(">7I", 0, 1 << 20, 1 << 20, 1024, 16, 64, 0)
        create = struct.pack(">IQII", 43, client, sequence, 0) + channel + channel + struct.pack(">3I", 0, 1, 0)
        self.session = self.call(create)[8:24]

    def call(self, operation):
        """Sends one operation, which goes well; its result, with its number and status."""
        self.xid += 1
        call = struct.pack(">6I4I", self.xid, 0, 2, 100003, 4, 1, 0, 0, 0, 0)
        record = call + struct.pack(">3I", 0, 1, 1) + operation
        self.stream.sendall(struct.pack(">I", 1 << 31 | len(record)) + record)
        reply = self.bytes(struct.unpack(">I", self.bytes(4))[0] & 0x7FFFFFFF)
        assert reply[24:28] == bytes(4), "the operation goes well"
        return reply[36:]

    def bytes(self, count):
        read = b""
        while len(read) < count:
            more = self.stream.recv(count - len(read))
            assert more, "the server stays"
            read += more
        return read

    def renew(self):
        self.sequence += 1
        self.call(struct.pack(">I", 53) + self.session + struct.pack(">4I", self.sequence, 0, 0, 0))


def idle(gateway):
    if not is_asked("idle-mib") and not is_asked("idle-percent"):
        return
    before = gateway.memory_bytes()
    clients = [Client(gateway.port, number) for number in range(1, CLIENTS + 1)]
    began, spent, renewed = time.monotonic(), gateway.spent(), 0
    while (passed := time.monotonic() - began) < IDLE_SECONDS:
        while renewed < passed / RENEWAL_SECONDS * CLIENTS:
            clients[renewed % CLIENTS].renew()
            renewed += 1
        time.sleep(0.01)
    percent = 100 * (gateway.spent() - spent) / passed
    taken = (gateway.memory_bytes() - before) / 2**20
    note(f"idle: {CLIENTS} clients with a session of 64 slots each, {renewed} renewals in {passed:.0f} s")
    bar("idle-mib", taken, "at most 64", taken < 64)
    bar("idle-percent", percent, "at most 0.5", percent < 0.5)
    for client in clients:
        client.stream.close()


def fill(path):
    with open(path, "wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(FILE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def mounted(folder, kind):
    """A file system of a kind in a loop device; why it is not there, where it is not."""
    image, place = f"{folder}/{kind}.image", f"{folder}/{kind}"
    os.mkdir(place)
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    for command in ([f"mkfs.{kind}", "-q", image], ["mount", "-o", "loop", image, place]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return None


def main():
    if os.sched_getaffinity(0) < {0, 1}:
        sys.exit("bench/nfs: the process may not run on the first two processors")
    note(f"seed {asked.seed}, {asked.rounds} rounds of {asked.seconds} s")
    folder = tempfile.mkdtemp(prefix="weir-nfs-", dir="/var/tmp")
    served, missing, servers = {"plain": f"{folder}/plain"}, {}, []
    try:
        os.mkdir(served["plain"])
        for kind in ("ext4", "xfs"):
            missing[kind] = mounted(folder, kind)
            if missing[kind] is None:
                served[kind] = f"{folder}/{kind}"
        for directory in served.values():
            fill(f"{directory}/file")
        gateway = Gateway(f"{folder}/gateway", served)
        servers.append(gateway)
        ganesha = Ganesha(f"{folder}/ganesha", served)
        servers.append(ganesha)
        reads(gateway, ganesha, f"{served['plain']}/file")
        for kind, least in (("ext4", 1.5), ("xfs", 2.0)):
            if missing[kind] is None:
                writes(gateway, ganesha, kind, least)
            else:
                skipped(f"write-4k-{kind}", missing[kind])
        idle(gateway)
    finally:
        for server in servers:
            server.end()
        for kind in ("ext4", "xfs"):
            if missing.get(kind, "") is None:
                subprocess.run(["umount", f"{folder}/{kind}"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if short else 0)


main()
