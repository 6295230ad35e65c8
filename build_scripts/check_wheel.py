"""Checks a built wheel and the source archive it was built from.

The wheel holds every file of the package and works in an empty environment; the archive holds what
the README's commands need.

Usage: python build_scripts/check_wheel.py dist
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = {".so", ".pyc"}
IMPORT_ALL = """
import importlib, pkgutil, sys
import specret
heavy = {"torch", "transformers", "faiss"} & set(sys.modules)
assert not heavy, f"import specret loads {sorted(heavy)}"
names = [m.name for m in pkgutil.walk_packages(specret.__path__, "specret.")]
assert "specret._suffix" in names, names
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(f"{len(names)} modules import, from {specret.__path__[0]}")
"""


def main() -> None:
    wheel, archive = only("specret-*.whl"), only("specret-*.tar.gz")
    for file, problems in ((wheel, content_problems(wheel)), (archive, lacking(archive))):
        if problems:
            sys.exit("\n".join(f"error: {file.name}: {problem}" for problem in problems))
    check_install(wheel)
    print(f"{wheel.name}, {archive.name}: complete")


def only(pattern: str) -> Path:
    """The one file of that kind in the given folder."""
    found = sorted(Path(sys.argv[1]).glob(pattern))
    if len(found) != 1:
        sys.exit(f"error: {len(found)} {pattern} in {sys.argv[1]}, expected one\nhint: make wheel")
    return found[0]


def lacking(archive: Path) -> list[str]:
    """Files of the project that are not in the source archive."""
    with tarfile.open(archive) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    folders = [ROOT / name for name in ("build_scripts", "rust/src", "specret", "tests")]
    wanted = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    wanted += [*ROOT.glob("*.md"), *ROOT.glob("rust/Cargo.*")]
    wanted += [ROOT / name for name in ("LICENSE", "Makefile", "constraints.txt", "pyproject.toml")]
    names = {str(path.relative_to(ROOT)) for path in wanted if path.suffix not in LEFT_OUT}
    return [f"lacks {name}" for name in sorted(names - held)]


def content_problems(wheel: Path) -> list[str]:
    """What the wheel lacks, and what it should not hold."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = {str(p.relative_to(ROOT)) for p in (ROOT / "specret").rglob("*") if p.is_file()}
    wanted = {name for name in wanted if Path(name).suffix not in LEFT_OUT}
    ours = {name for name in held if ".dist-info/" not in name}
    built = {name for name in ours if name.startswith("specret/_suffix.") and name.endswith(".so")}
    problems = [f"lacks {name}" for name in sorted(wanted - held)]
    problems += [f"holds {name}" for name in sorted(ours - wanted - built)]
    if len(built) != 1 or "abi3" not in next(iter(built)):
        problems.append(f"holds {sorted(built)}, expected one abi3 module specret/_suffix")
    if not any(name.endswith("licenses/LICENSE") for name in held):
        problems.append("lacks its LICENSE")
    return problems


def check_install(wheel: Path) -> None:
    """Install it with its dependencies where nothing is, import every module, ask for help."""
    uv = Path(sys.executable).with_name("uv")
    limits = ["--constraint", ROOT / "constraints.txt"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "env"
        python = place / "bin" / "python"
        run(uv, "venv", "--quiet", "--python", sys.executable, place)
        run(uv, "pip", "install", "--quiet", "--python", python, *limits, wheel.resolve())
        run(python, "-c", IMPORT_ALL, cwd=folder)
        run(place / "bin" / "specret", "--help", cwd=folder, stdout=subprocess.DEVNULL)


def run(*command: object, **options: object) -> None:
    subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
