"""What each method gains alone on one core in small settings, and what batch-norm statistics do to it.

For every method and seed: the average accuracy of the clients, the gain over Standalone with a kept and with
a restarted optimiser, and how the average would change with the statistics that training left behind instead
of those re-estimated on each client's own training rows before judging.

    python benchmarks/methods.py --method fedas --method cgsv
    python benchmarks/methods.py --model mlp --optimizer sgd --lr 0.15 --method cffl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from fedakd import Recipe, Task, factory, federate, load, methods
from fedakd.engine.serial import Serial
from fedakd.federation import Federation
from fedakd.rounds import Messages, run
from fedakd.simulation import server_of, spec_of

REFERENCES = ("standalone", "standalone(restart=true)")


@dataclass(frozen=True)
class Setting:
    """One federation and how its clients train."""

    federation: Federation
    task: Task
    recipe: Recipe
    rounds: int
    seed: int

    def averages(self, name: str) -> dict[str, float]:
        """The average accuracy after the last round: as judged, and with the statistics training left."""
        method = methods.parse(name)
        engine = Serial(spec_of(method, self.federation, self.task, self.recipe, self.seed))
        server = server_of(self.federation, self.task, self.recipe)
        result = run(method, engine, server, rounds=self.rounds, seed=self.seed, judge_every=self.rounds)
        judged = result.rounds[-1].scores
        view = next(iter(judged)).split("/")[0]
        for site in engine.sites.values():
            site.client.update_bn = lambda params, _: params  # type: ignore[method-assign]
        everyone = list(range(self.federation.clients))
        stale = engine.evaluate(self.rounds, Messages(method, result.state, everyone))
        return {
            "accuracy": fmean(judged[f"{view}/accuracy"].values()),
            "left by training": fmean(one.scores[f"{view}/accuracy"] for one in stale.values()),
        }


def setting(options: argparse.Namespace, seed: int) -> Setting:
    dataset = load(options.dataset)
    federation = federate(dataset, options.partition, options.clients, scale=options.scale, seed=seed)
    task = Task(factory(options.model, dataset.shape, dataset.classes))
    return Setting(federation, task, Recipe(lr=options.lr, optimizer=options.optimizer), options.rounds, seed)


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Every method's numbers, one entry per seed; what is in the file already is not computed again."""
    path = Path(options.out) if options.out else None
    done = json.loads(path.read_text()) if path and path.exists() else {}
    for seed in range(options.seeds):
        built: Setting | None = None
        for name in dict.fromkeys([*REFERENCES, *options.method]):
            if len(done.setdefault(name, [])) <= seed:
                built = built or setting(options, seed)
                done[name].append(built.averages(name))
                print(f"seed {seed} {name}: {done[name][-1]}", flush=True)
                if path:
                    path.write_text(json.dumps(done, indent=1))
    return done


def table(done: Mapping[str, list[dict[str, float]]]) -> str:
    lines = [
        "| method | average | gain | gain over the restarted | statistics left by training |",
        "|---|---|---|---|---|",
    ]
    for name, seeds in done.items():
        columns = [[100 * own["accuracy"] for own in seeds]]
        for reference in REFERENCES:
            pairs = zip(seeds, done[reference], strict=True)
            columns.append([100 * (own["accuracy"] - alone["accuracy"]) for own, alone in pairs])
        columns.append([100 * (own["left by training"] - own["accuracy"]) for own in seeds])
        lines.append(f"| {name} | " + " | ".join(map(spread, columns)) + " |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    deviation = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):+.1f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--partition", default="pow")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--scale", type=float, default=0.05, help="0.05 of FashionMNIST: 2,450 training rows")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--out", help="a JSON file with every number; a call that was stopped goes on with it"
    )
    options = parser.parse_args()
    print(table(measure(options)))


if __name__ == "__main__":
    main()
