"""Pinned requirements, and their use by the image and the workflow."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import botocore
import pytest
import yaml
from packaging.requirements import Requirement

from deploy.release import bases, sbom
from deploy.release.audit import LOCKS as AUDITED
from deploy.release.audit import audit
from deploy.release.audit import command as audit_command

ROOT = Path(__file__).parents[2]
LOCKS = {"requirements.lock": "requirements", "deploy/release/tools.lock": "tools"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WORKFLOWS = {path.name: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yaml"))}
JOBS = yaml.safe_load(WORKFLOWS["release.yaml"])["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]


def required(name: str) -> list[Requirement]:
    """Return the requirements of setup.cfg or of the list of tools."""
    if name == "tools":
        lines = (ROOT / "deploy/release/tools.in").read_text().splitlines()
        return [Requirement(line) for line in lines if line and not line.startswith("#")]
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    text = setup["options"]["install_requires"] + extras["grpc"] + extras["aws"]
    return [Requirement(line) for line in text.splitlines() if line]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_requirement_is_pinned_within_its_bounds(lock: str) -> None:
    pinned = sbom.pins((ROOT / lock).read_text())
    for requirement in required(LOCKS[lock]):
        assert all(map(requirement.specifier.contains, pinned[requirement.name.lower()])), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_the_locks_contain_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host|@ file:", text)


def test_the_image_installs_pinned_packages_on_bases_given_as_arguments() -> None:
    assert set(re.findall(r"^ARG (\w+)=\S+$", DOCKERFILE, re.MULTILINE)) == {"BASE", "RUNTIME", "TARGETARCH"}
    bases = re.findall(r"^FROM (?:--platform=\S+ )?(\S+)", DOCKERFILE, re.MULTILINE)
    assert bases == ["${BASE}", "${RUNTIME}"]
    parts = re.split(r"&&|\n", DOCKERFILE.replace("\\\n", " "))
    commands = [part for part in parts if re.search(r"\bpip (install|wheel) ", part)]
    assert len(commands) == 4
    assert all("--require-hashes" in command or "--no-index" in command for command in commands)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert {f"!{name}" for names in copied for name in names.split()} <= set(ignored)


def test_the_image_has_no_shell_and_no_root() -> None:
    """The last stage runs no command, so it can have a base without a shell, and gets only the folder of packages."""
    instructions = [line for line in DOCKERFILE.partition("FROM ${RUNTIME}\n")[2].splitlines() if line[:1] != "#"]
    assert {line.split()[0] for line in instructions} == {"COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT"}
    assert [line for line in instructions if line.startswith("COPY")] == ["COPY --from=packages /packages /packages"]
    assert "USER 65532:65532" in instructions
    assert 'ENTRYPOINT ["rescheduler"]' in instructions
    assert re.search(r"^ARG RUNTIME=gcr\.io/distroless/python3-debian12:nonroot$", DOCKERFILE, re.MULTILINE)


def test_the_workflow_uses_the_pinned_images_only() -> None:
    """The builder and what writes the SBOM run beside the credentials of the registry."""
    scripts = "\n".join(step.get("run", "") for step in STEPS)
    for use in (
        '--build-arg BASE="$BASE" ',
        '--build-arg RUNTIME="$RUNTIME" ',
        '--sbom=generator="$SCANNER" ',
        'docker buildx create --use --driver-opt image="$BUILDER"\n',
    ):
        assert scripts.count(use) == 1, use
    assert len(re.findall(r"docker (?:run|pull)|buildx (?:create|build) ", scripts)) == 2
    for name in bases.images(DOCKERFILE):
        assert JOBS["files"]["outputs"][name] == f"${{{{ steps.images.outputs.{name} }}}}"
        [given] = [step["env"][name] for step in STEPS if name in step.get("env", {})]
        assert given == f"${{{{ needs.files.outputs.{name} }}}}"
    assert "make release" in scripts


def test_the_workflow_ends_first_if_an_image_is_not_pinned() -> None:
    steps = [step for step in JOBS["files"]["steps"] if "run" in step]
    assert (steps[0]["id"], steps[0]["run"]) == (
        "images",
        'python3 -m deploy.release.bases --print >> "$GITHUB_OUTPUT"',
    )
    assert (JOBS["image"]["needs"], JOBS["publish"]["needs"]) == ("files", "image")


def test_all_actions_are_pinned_by_commit_and_have_no_expressions_in_scripts() -> None:
    used = {line for text in WORKFLOWS.values() for line in re.findall(r"uses: *(.*)", text)}
    pinned = [re.fullmatch(r"((?:actions|sigstore)/[\w-]+)@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line) for line in used]
    assert all(pinned), used
    assert len({match[1] for match in pinned if match}) == len(used), "an action has two versions"
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


def test_other_containers_are_not_run() -> None:
    assert not [name for name, text in WORKFLOWS.items() if re.search(r"docker run|--privileged", text)]


def test_only_the_steps_that_publish_have_a_token_that_may_write() -> None:
    assert yaml.safe_load(WORKFLOWS["release.yaml"])["permissions"] == {}
    assert all(
        yaml.safe_load(WORKFLOWS[name])["permissions"] == {"contents": "read"} for name in ("ci.yaml", "nightly.yaml")
    )
    assert JOBS["files"]["permissions"] == {"contents": "read"}, "this job runs the code of dependencies"
    writers = {
        name: {key for key, value in job["permissions"].items() if value == "write"} for name, job in JOBS.items()
    }
    signing = {"id-token", "attestations"}
    assert writers == {"files": set(), "image": {"packages", *signing}, "publish": {"contents", *signing}}
    holders = [step["name"] for step in STEPS if "github.token" in str(step.get("env", {}))]
    assert holders == ["Build and push the image", "Publish the files"]
    assert "github.token" not in str([job.get("env") for job in JOBS.values()])
    # A checkout gets the token of its job unasked.
    checkouts = [(name, step) for name, job in JOBS.items() for step in job["steps"] if "checkout@" in str(step)]
    assert [name for name, _ in checkouts] == ["files"]
    assert all(step["with"]["persist-credentials"] is False for _, step in checkouts)
    assert not [step for name in ("image", "publish") for step in JOBS[name]["steps"] if "python" in str(step)]


def test_the_image_and_the_files_are_signed() -> None:
    assert any("cosign sign" in step.get("run", "") for step in JOBS["image"]["steps"])
    attested = [step["with"] for step in STEPS if step.get("uses", "").startswith("actions/attest-build-provenance@")]
    assert [sorted(given) for given in attested] == [
        ["push-to-registry", "subject-digest", "subject-name"],
        ["subject-path"],
    ]
    published = [step.get("run", "") for step in JOBS["publish"]["steps"]]
    assert any("sha256sum --check" in script for script in published)


#: Imports all modules without the packages in the arguments.
_WITHOUT = """
import importlib, pkgutil, sys
import predicates, rescheduler

class Removed:
    def find_spec(self, name, path=None, target=None):
        if any(name == gone or name.startswith(gone + ".") for gone in sys.argv[1:]):
            raise ModuleNotFoundError(f"the image does not have {name}")

sys.meta_path.insert(0, Removed())
for package in (predicates, rescheduler):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def test_nothing_imports_what_the_image_leaves_out() -> None:
    removed = re.findall(r"(?<=rm -rf )kubernetes/aio(?:\s|\\|[a-z_])*", DOCKERFILE)
    modules = [name.replace("/", ".") for name in removed[0].replace("\\", " ").split()]
    assert {"kubernetes.aio", "aiohttp", "yarl"} <= set(modules)
    command = [sys.executable, "-c", _WITHOUT, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(subprocess.CalledProcessError):  # the removal is effective
        subprocess.run([*command, "rescheduler.kube.loaders"], cwd=ROOT, capture_output=True, check=True)


#: Creates the client of each service in the arguments.
_CLIENTS = """
import botocore, botocore.session, boto3, sys
print(botocore.__file__)
for service in sys.argv[1:]:
    boto3.client(service, region_name="eu-west-1", aws_access_key_id="key", aws_secret_access_key="secret")
"""


def test_the_image_knows_the_services_of_aws_that_are_used(tmp_path: Path) -> None:
    """Those of the documented permissions, and those from which botocore gets credentials."""
    [folder] = botocore.__path__
    shutil.copytree(folder, tmp_path / "botocore", ignore=shutil.ignore_patterns("__pycache__"))
    [removal] = re.findall(r"find botocore/data .*?\{\} \+", DOCKERFILE.replace("\\\n", ""))
    subprocess.run(removal, shell=True, cwd=tmp_path, check=True)
    kept = {path.name for path in (tmp_path / "botocore/data").iterdir() if path.is_dir()}
    assert len(kept) < 10
    documented = (ROOT / "docs/aws.md").read_text() + (ROOT / "docs/money.md").read_text()
    used = set(re.findall(r"\b([a-z][a-z0-9]+):[A-Z][a-z]+[A-Z]\w+", documented)) - {"aws"}  # keys of conditions
    sources = "".join((Path(folder) / name).read_text() for name in ("credentials.py", "tokens.py"))
    used |= set(re.findall(r"_client(?:_creator)?\(\s*(?:self\._session, )?['\"]([\w-]+)['\"]", sources))
    assert {"autoscaling", "ec2", "pricing", "sts", "sso", "sso-oidc"} <= used <= kept
    command = [sys.executable, "-c", _CLIENTS, *sorted(kept)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


#: What the tool prints, on each stream, and whether the audit fails.
AUDITS: dict[str, tuple[str, str, int]] = {
    "nothing found": ("", "No known vulnerabilities found", 0),
    "a vulnerability": ("Name Version ID\nsix 1.0 PYSEC-1", "Found 1 known vulnerability in 1 package", 1),
    "a vulnerability, then no network": ("Name Version ID\nsix 1.0 PYSEC-1", "requests.ConnectionError", 1),
    "no network": ("", "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.osv.dev')", 1),
    "the tool cannot be downloaded": ("", "Caused by: client error (Connect)\n dns error: failed to lookup", 1),
    "another error": ("", "invalid requirements input: requirements.lock", 1),
}
SKIPPED = {"no network", "the tool cannot be downloaded"}


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_fails_unless_there_is_no_network(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err, code = AUDITS[name]
    tool = f"import sys; print({out!r}, end=''); print({err!r}, file=sys.stderr); sys.exit({code})"
    assert audit([sys.executable, "-c", tool]) == (0 if name in SKIPPED else code)
    assert ("audit: skipped" in capsys.readouterr().out) == (name in SKIPPED)


def test_the_nightly_workflow_audits_both_locks() -> None:
    assert [step for step in yaml.safe_load(WORKFLOWS["nightly.yaml"])["jobs"]["audit"]["steps"] if "run" in step] == [
        {"run": "make audit"}
    ]
    assert set(AUDITED) == set(LOCKS)
    for lock in LOCKS:
        assert sum(word.startswith("--requirement=") for word in audit_command(lock)) == 1
