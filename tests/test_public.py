"""What the package offers, and that its documents tell the truth."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fedakd

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = {
    "__version__", "methods", "trees", "load", "Examples", "assess", "cf_coefficient", "Federation",
    "federate", "Client", "Method", "Server", "factory", "Budget", "Result", "Round", "simulate", "Recipe",
    "Task",
}  # fmt: skip


def test_the_public_names_are_exactly_these():
    assert set(fedakd.__all__) == PUBLIC == set(dir(fedakd))
    assert all(getattr(fedakd, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedakd.nonsense  # noqa: B018


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for path in DOCUMENTS:
        for block in re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            found.append((path.name, block))
    return found


COMMANDS = [(name, line) for name, block in blocks("sh") for line in block.strip().splitlines()]
RUN_ELSEWHERE = (
    "make test",
    "make test-long",
    "make check",
)  # these run this test, or stand beside it in continuous integration


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which documented commands run, in their order, as a reader would run them."""
    folder = tmp_path_factory.mktemp("reader")
    for name in (
        "benchmarks",
        "examples",
        "src",
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        "README.md",
        "LICENSE",
    ):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("document", "line"), COMMANDS, ids=[line[:60] for _, line in COMMANDS])
def test_every_command_of_the_documents_runs(document, line, workplace):
    line = line.split("#")[0].strip()
    if line in RUN_ELSEWHERE:
        pytest.skip("runs this very test")
    if "fashion-mnist" in line and fedakd.data.source("fashion-mnist").where() is None:
        pytest.skip("FashionMNIST is not on this machine")
    words = shlex.split(line)
    program = {"fedakd": ["-c", "from fedakd.cli import main; main()"], "python": [], "make": None}[words[0]]
    command = ["make", *words[1:]] if program is None else [sys.executable, *program, *words[1:]]
    if line == "make demo":  # its set-up is this environment; the job itself is what it runs
        command = [sys.executable, "-c", "from fedakd.cli import main; main()", "demo"]
    done = subprocess.run(command, cwd=workplace, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted({name for name, _ in blocks("python")}))
def test_the_python_of_a_document_runs_as_one_file(document, tmp_path):
    """In a file, as its readers would have it: worker processes import what is defined there."""
    script = tmp_path / "mine.py"
    script.write_text("\n\n".join(block for name, block in blocks("python") if name == document))
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def imports(path: Path) -> set[str]:
    """The modules of this package a file imports, by their first part."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("fedakd.")}
        if isinstance(node, ast.ImportFrom) and node.module == "fedakd":
            found |= {alias.name for alias in node.names}
    return found


LAYERS = [
    {"errors", "threads"},
    {
        "trees",
        "examples",
        "spelling",
        "optimizers",
        "fairness",
        "correlation",
        "intervals",
        "gaussians",
        "figures",
        "convergence",
        "seeds",
    },
    {
        "wire",
        "training",
        "distillation",
        "fitting",
        "verdict",
        "statistics",
        "ranking",
        "partition",
        "models",
        "data",
    },
    {"activations", "features"},
    {"method", "federation", "audit"},
    {"released", "judged"},
    {"methods", "engine"},
    {"rounds"},
    {"simulation", "plan", "testing"},
    {"reference", "theory", "shift"},
    {"cellfolder", "drawn"},
    {"runfolder"},
    {"experiment"},
    {"summary"},
    {"tables"},
    {"compare"},
    {"paper"},
    {"outcome", "report"},
    {"cli"},
]


def test_dependencies_point_one_way():
    level = {name: height for height, layer in enumerate(LAYERS) for name in layer}
    source = ROOT / "src" / "fedakd"
    for path in source.rglob("*.py"):
        own = path.relative_to(source).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other in imports(path) & level.keys() - {own}:
            assert level[other] <= level[own], f"{path.relative_to(source)} imports {other}"


def test_methods_and_files_stay_small():
    for path in (ROOT / "src").rglob("*.py"):
        lines = len(path.read_text().splitlines())
        assert lines < (160 if path.parent.name == "methods" else 301), f"{path.name} has {lines} lines"
