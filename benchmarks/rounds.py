"""Seconds per round of our engines and of a plain loop, the engine's overhead, and the server's memory.

    python benchmarks/rounds.py                  all but the last, on FashionMNIST (about 10 minutes)
    python benchmarks/rounds.py --rows 3000      a quick look
    python benchmarks/rounds.py --part overhead  one part: rounds, methods, overhead, memory or help
    python benchmarks/rounds.py --method all     every method's time for a pass over the data

What is compared is measured in one process and interleaved, so that a noisy machine is noisy for all; the
median of the repeats counts. Results go to standard output and, as JSON, to --out.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from fedakd.data import load
from fedakd.engine.base import Engine, Rows, Spec
from fedakd.engine.processes import Processes
from fedakd.engine.serial import Serial
from fedakd.examples import Examples
from fedakd.method import ClientInfo, Server
from fedakd.methods import METHODS, of_the_paper
from fedakd.models import factory
from fedakd.partition import power_law
from fedakd.rounds import Messages
from fedakd.simulation import cores
from fedakd.threads import one_thread
from fedakd.training import Recipe, Task
from plain_loop import PlainLoop

RECIPE = Recipe(batch_size=32, lr=0.001, optimizer="adam")


class Ours:
    """One engine and one method, a round at a time; the work of a round without its evaluation."""

    def __init__(
        self, spec: Spec, make: Callable[[Spec], Engine], validation: Examples | None = None
    ) -> None:
        self.method, self.engine = spec.method, make(spec)
        infos = [ClientInfo(rows.id, len(rows.train)) for rows in spec.clients]
        self.server = Server(spec.task, spec.recipe, threads=cores(), clients=infos, validation=validation)
        params = self.server.init(0)
        self.state = self.method.server_init(self.server, params)
        self.engine.start(params)
        self.number, self.everyone = 0, [rows.id for rows in spec.clients]
        self.rows, self.passes = sum(len(rows.train) for rows in spec.clients), 0.0

    def round(self) -> None:
        self.number += 1
        trained = self.engine.train(self.number, Messages(self.method, self.state, self.everyone))
        with one_thread():
            self.state = self.method.server_update(self.server, self.state, trained.updates)
        self.passes = sum(report.gradients for report in trained.reports.values()) / self.rows


def rounds(args: argparse.Namespace) -> dict[str, Any]:
    """(a) processes, (b) serial, (c) plain loop, interleaved, for each method."""
    found: dict[str, Any] = {}
    for name in args.method:
        clients = federation(args)
        spec = Spec(METHODS[name], Task(factory("cnn", (1, 28, 28), 10)), RECIPE, 0, clients)
        plain = PlainLoop([TensorDataset(c.train.x.contiguous(), c.train.y) for c in clients], 32, 0.001)
        ours = {"processes": Ours(spec, lambda s: Processes(s, cores())), "serial": Ours(spec, Serial)}
        actions: dict[str, Callable[[], None]] = {k: one.round for k, one in ours.items()}
        actions["plain"] = getattr(plain, f"{name}_round")
        seconds = interleaved(actions, args.repeats)
        for one in ours.values():
            one.engine.close()
        found[name] = {"seconds": seconds, **ratios(seconds)}
        print(f"{name:>8}: " + ", ".join(f"{k} {statistics.median(v):.2f} s" for k, v in seconds.items()))
        print(
            f"          processes {found[name]['plain/processes']:.2f}x and serial "
            f"{found[name]['plain/serial']:.2f}x as fast as the plain loop"
        )
    return found


def methods(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds for one pass over the data, all methods beside FedAvg; the server's share is in them."""
    clients, found = federation(args), {}
    validation = load("fashion-mnist", args.data_dir).examples(
        np.arange(args.rows, args.rows + args.rows // 7)
    )
    spec = Spec(METHODS["fedavg"], Task(factory("cnn", (1, 28, 28), 10)), RECIPE, 0, clients)
    fedavg = Ours(spec, lambda s: Processes(s, cores()))
    for name in [name for name in of_the_paper() if name != "fedavg"]:
        ours = Ours(replace(spec, method=METHODS[name]), lambda s: Processes(s, cores()), validation)
        seconds = interleaved({"fedavg": fedavg.round, name: ours.round}, args.repeats)
        ours.engine.close()
        turns = zip(seconds[name], seconds["fedavg"], strict=True)
        ratio = statistics.median(own / ours.passes / usual for own, usual in turns)
        found[name] = {"seconds": seconds, "passes": ours.passes, "per pass, times FedAvg's": ratio}
        print(
            f"{name:>10}: {statistics.median(seconds[name]):6.2f} s a round, {ours.passes:.2f} passes, "
            f"a pass takes {ratio:.2f}x FedAvg's",
            flush=True,
        )
    fedavg.engine.close()
    return found


def federation(args: argparse.Namespace) -> tuple[Rows, ...]:
    """The first rows of FashionMNIST over power-law clients."""
    dataset = load("fashion-mnist", args.data_dir)
    sizes = power_law(args.rows, args.clients)
    parts = [dataset.examples(rows) for rows in np.split(np.arange(args.rows), np.cumsum(sizes)[:-1])]
    return tuple(Rows(k, part, part[torch.arange(1)]) for k, part in enumerate(parts))


def interleaved(actions: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Each action in turn, after one turn that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """How many times as long as ours the plain loop takes: the median over turns, each a fair comparison."""
    return {
        f"plain/{name}": statistics.median(p / o for p, o in zip(seconds["plain"], own, strict=True))
        for name, own in seconds.items()
        if name != "plain"
    }


def overhead(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a client of a FedAvg round with a linear model, 100 rows a client, training included."""
    found = {}
    for clients in (10, 100, 1000):
        ours = Ours(small_clients(clients, 100, "linear"), lambda s: Processes(s, cores()))
        seconds = interleaved({"round": ours.round}, max(args.repeats, 5))["round"]
        ours.engine.close()
        found[str(clients)] = 1000 * statistics.median(seconds) / clients
        print(
            f"overhead: {clients:>5} clients, linear model: {found[str(clients)]:.2f} ms a client and round"
        )
    return found


def small_clients(clients: int, rows: int, model: str) -> Spec:
    """Random rows the shape of FashionMNIST's; what they hold does not matter here."""
    data = Examples(torch.rand(rows, 1, 28, 28), torch.randint(0, 10, (rows,)))
    task = Task(factory(model, (1, 28, 28), 10))
    return Spec(METHODS["fedavg"], task, RECIPE, 0, tuple(Rows(k, data, data) for k in range(clients)))


def memory(args: argparse.Namespace) -> dict[str, Any]:
    """The server's peak memory, each count of clients in a process of its own."""
    found: dict[str, Any] = {}
    for clients in (10, 100, 1000):
        command = [sys.executable, __file__, "--part", "peak", "--clients", str(clients)]
        found[str(clients)] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        one = found[str(clients)]
        all_models = one["model_mb"] * clients
        print(
            f"memory: {clients:>5} clients, model {one['model_mb']:.2f} MB (all: {all_models:.0f} MB): "
            f"server's peak {one['before_mb']:.0f} -> {one['after_mb']:.0f} MB"
        )
    return found


def peak(args: argparse.Namespace) -> dict[str, float]:
    """Three FedAvg rounds; the server's peak before the first and after the last."""
    ours = Ours(small_clients(args.clients, 8, "cnn"), lambda s: Processes(s, cores()))
    before = peak_mb()
    for _ in range(3):
        ours.round()
    after = peak_mb()
    ours.engine.close()
    model = sum(part.nbytes for part in ours.state["model"].values()) / 2**20
    return {"before_mb": before, "after_mb": after, "model_mb": model}


def peak_mb() -> float:
    """This process's high-water mark; getrusage would also count the parent's, from before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def help_time(args: argparse.Namespace) -> dict[str, Any]:
    """`fedakd --help` as a multiple of an interpreter that does nothing."""
    commands = {
        "help": [sys.executable, "-c", "from fedakd.cli import main; main()", "--help"],
        "nothing": [sys.executable, "-c", "pass"],
    }
    actions = {
        name: lambda command=command: subprocess.run(command, check=True, capture_output=True)
        for name, command in commands.items()
    }
    seconds = interleaved(actions, max(args.repeats, 5))  # type: ignore[arg-type]
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = median["help"] / median["nothing"]
    print(f"help: {median['help']:.2f} s, {ratio:.1f}x an empty interpreter ({median['nothing']:.3f} s)")
    return {"seconds": median, "ratio": ratio}


PARTS = {"rounds": rounds, "methods": methods, "overhead": overhead, "memory": memory, "help": help_time}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=[*PARTS, "peak", "all"], default="all")
    parser.add_argument("--method", action="append", choices=["fedavg", "fedakd", "all"])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmark-rounds.json"))
    args = parser.parse_args()
    if "all" in (args.method or []):
        args.part, args.method = "methods", None
    args.method = args.method or ["fedavg", "fedakd"]
    if args.part == "peak":
        print(json.dumps(peak(args)))
        return
    everything = {name: part for name, part in PARTS.items() if name != "methods"}
    chosen = everything if args.part == "all" else {args.part: PARTS[args.part]}
    found = {"machine": machine(), "rows": args.rows, **{name: part(args) for name, part in chosen.items()}}
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {args.out}")


def machine() -> dict[str, Any]:
    return {"cores": cores(), "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
