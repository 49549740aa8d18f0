"""No verb answers nonsense with a traceback: it names what it refuses and ends with 2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wattpack import __version__
from wattpack.cli import VERBS, main
from wattpack.documents import read_text
from wattpack.errors import InputError, PermanentError
from wattpack.flags import output_file, write_output

FILES = {
    "garbage": b"not json",
    "empty": b"",
    "binary": bytes(range(128, 256)),
    "nan.json": b'{"a": NaN}',
    "truncated.json": b"[1,2",
    "unknown.yaml": b"foo: bar",
    "object.json": b"{}",
    "deep.yaml": b"[" * 5000 + b"]" * 5000,
    "deep.json": b"[" * 100_000 + b"]" * 100_000,
    "twice.yaml": b"seed: 1\nrow:\n  racks: 2\nseed: 2\n",
    "inner.yaml": b"row:\n  racks: 2\n  racks: 4\n",
    "twice.json": b'{"checks": {}, "checks": {}}',
    "two_nodes.json": b'{"nodes": [], "nodes": []}',
    "alias.yaml": b"a: &a [1, 2]\nb: [*a, *a]\n",
    "date.yaml": b"seed: 2026-13-45\n",
    "rack.yaml": b"row: {rack_rated_servers: 0.5}\n",
    "row.yaml": b"row: {rated_servers: 1}\n",
    "huge.json": b'{"a": ' + b"9" * 5000 + b"}",
}

# Each line is refused for what stands after the bar; nothing else on it is wrong.
REFUSED = """
demo --headless --duration nan | duration_seconds
demo --headless --duration -5 | duration_seconds
demo --headless --duration 1e400 | duration_seconds
demo --headless --speed nan | --speed
demo --headless --speed 0 | --speed
demo --headless --speed fast | --speed
demo --headless --seed -1 | seed
demo --headless --seed 99999999999999999999 | seed
demo --port 99999 | --port
demo --port -1 | --port
demo --headless --json folder | --json
demo --headless --json missing/x.json | --json
demo --headless --json /proc/nothing/x.json | --json
demo --headless --json /proc/x.json | --json
demo --scenario missing | file
demo --scenario deep.yaml | 64 levels
demo --scenario twice.yaml | seed
demo --scenario inner.yaml | racks
demo --scenario alias.yaml | alias
demo --scenario date.yaml | file
demo --headless --scenario rack.yaml | row.rack_rated_servers
demo --headless --scenario row.yaml | row.rated_servers
demo --scenario folder | file
demo --scenario garbage | file
demo --scenario binary | file
demo --scenario unknown.yaml | foo
agent --local --once --simulated 0 | --simulated
agent --local --once --simulated 99999999 | --simulated
agent --local --once --simulated 2 --hz nan | --hz
agent --local --once --simulated 2 --port 99999 | --port
agent --local --once --replay missing | recording
agent --local --once --replay garbage | recording
agent --local --once --replay empty | recording
agent --simulated 2 | --controller
agent --simulated 2 --controller nonsense | --controller
agent --simulated 2 --controller x:99999 --ca garbage --token garbage | --controller
agent --simulated 2 --node-limit-watts -1 | --node-limit-watts
agent --simulated 2 --other-watts nan | --other-watts
actuator | --config
actuator --config missing | file
actuator --config folder | file
actuator --config garbage | message
actuator --config empty | message
actuator --config binary | message
actuator --config nan.json | message
actuator --config huge.json | message
actuator --config truncated.json | message
actuator --config object.json | allowed_uids
controller --config missing | file
controller --config binary | file
controller --config unknown.yaml | foo
controller --config deep.yaml | 64 levels
controller --config twice.yaml | seed
controller --kubeconfig deep.yaml | kubeconfig
controller --http-port 99999 | http_port
controller --http-port many | --http-port
controller --lease-seconds -1 | lease_seconds
controller --renew-deadline-seconds nan | renew_deadline_seconds
controller --meter-prometheus-url prometheus:9090 | url: meter_prometheus_url: expected
controller --kubeconfig missing | kubeconfig
controller --kubeconfig garbage | kubeconfig
controller --kubeconfig empty | kubeconfig
controller --kubeconfig binary | kubeconfig
controller --kubeconfig folder | kubeconfig
scheduler --config unknown.yaml | foo
scheduler --mode Nonsense | --mode
scheduler --deadline-seconds nan | deadline_seconds
scheduler --solver-workers 0 | solver_workers
scheduler --policy cheapest | --policy
scheduler --policy cost | gpu_prices
scheduler --objective disruption,speed | objective.1
scheduler --objective disruption,cost | gpu_prices
scheduler --objective disruption,carbon | carbon_grams_per_kwh
scheduler --webhook-port 99999 | --webhook-port
scheduler --metrics-port -1 | --metrics-port
scheduler --kubeconfig binary | kubeconfig
watchdog --silence-seconds nan | --silence-seconds
watchdog --silence-seconds -1 | --silence-seconds
watchdog --kubeconfig binary | kubeconfig
forecaster --config binary | file
forecaster --config unknown.yaml | foo
forecaster --history-file garbage | history
forecaster --prometheus-url nonsense | --prometheus-url: prometheus_url: expected an http://
forecaster --prometheus-url http:// | --prometheus-url: prometheus_url: expected an http://
forecaster --interval-seconds -1 --history-file h | interval_seconds
forecaster --metrics-port 99999 --history-file h | metrics_port
forecast x --history-file garbage | history
forecast x --history-file missing | history
forecast x --history-file folder | history
forecast x --history-file empty | user_version
forecast x --prometheus-url nonsense | --prometheus-url: prometheus_url: expected an http://
forecast x | --history-file
forecast --all --data-file missing | file
forecast --all --data-file garbage --time-zone nowhere | zone
backtest x | --history-file
backtest x --history-file garbage | history
backtest x --every nan --history-file h | history
forecast x --at nonsense --history-file h | --at
forecast x --png missing/x.png | --png
forecaster --once | history_file
history | verb
history list | --history-file
history list --history-file missing | history
history list --history-file garbage | history
history list --history-file empty | user_version
history compact --history-file missing | history_file
history compact --history-file empty --days nan | --days
history import missing --history-file h | file
history import folder --history-file h | file
history import binary --history-file h | line 1
history import garbage --history-file h | columns
history import empty --history-file h --format azure | file
history import garbage --history-file h --format azure | line 1
history import object.json --history-file h --format mooncake | line 1.timestamp
history import deep.json --history-file h --format mooncake | line 1
history import folder --history-file h --format servegen | file
history import garbage --history-file h --format burstgpt | line 1
history import garbage --history-file h --format poems | --format
history import garbage --history-file h --time-zone Mars | zone
history import garbage --history-file h --ends yesterday | ends
history import garbage --history-file h --name x | name
history import garbage --history-file h --format azure --lengths missing/x | --lengths
console | --controller
console --controller nonsense | --controller
console --controller ftp://x | --controller
console --controller http://127.0.0.1:1 --port 99999 | --port
console --controller http://127.0.0.1:1 --kubeconfig binary | kubeconfig
plan | pods, gpus, parallel
plan poems | pods, gpus, parallel
plan pods | --snapshot
plan pods --snapshot missing | --snapshot
plan what-if missing | what-if
plan what-if missing --drain a | --snapshot
plan what-if object.json --drain a | --drain
plan what-if object.json --remove a | --remove
plan what-if object.json --remove 0:H200 | --remove
plan what-if object.json --remove 2:H200 | --remove
plan what-if object.json --add 2 | --add
plan what-if object.json --add 0:H200 | --add
plan what-if object.json --add 1e3:H200 | --add
plan what-if object.json --add 2:H200 | --add
plan what-if object.json --limit row | --limit
plan what-if object.json --limit row=nan | --limit
plan what-if object.json --limit row=5 | --limit
plan what-if object.json --start-of g | --start-of
plan what-if object.json --limit row=5 --forecast garbage | --forecast
plan what-if object.json --start-of g --forecast garbage | garbage: document
plan gpus | --demand
plan gpus --demand missing | file
plan gpus --demand folder | file
plan gpus --demand binary | file
plan gpus --demand garbage | file
plan gpus --demand deep.yaml | 64 levels
plan gpus --demand alias.yaml | alias
plan gpus --demand unknown.yaml | foo
plan gpus --demand object.json | buckets
plan gpus --demand object.json --deadline-seconds nan | --deadline-seconds
plan gpus --demand object.json --table object.json | buckets
plan gpus -f object.json | spec
plan gpus -f missing --table object.json | file
plan parallel | --model
plan parallel --model m --gpus H100:4 --global-batch 8 --links missing | file
plan parallel --model m --gpus H100:4 --global-batch 8 --links binary | file
plan parallel --model m --gpus H100:4 --global-batch 8 --links unknown.yaml | foo
plan parallel --model m --gpus H100:4 --global-batch 8 --links object.json | apiVersion
plan parallel --model m --gpus H100:4 --global-batch 0 --links object.json | --global-batch
plan parallel --model m --gpus H100:4 --global-batch 8 --links object.json --limits nan | --limits
plan --snapshot missing | --snapshot
plan --snapshot folder | --snapshot
plan --snapshot binary | --snapshot
plan --cluster --write-snapshot missing/x.json | --write-snapshot
plan --snapshot garbage | file
plan --snapshot empty | file
plan --snapshot truncated.json | file
plan --snapshot two_nodes.json | nodes: expected each key once
plan --snapshot deep.json | 64 levels
plan --snapshot nan.json | a
plan --snapshot object.json --deadline-seconds nan | --deadline-seconds
plan --snapshot object.json --workers -1 | --workers
plan --snapshot object.json --seed -1 | --seed
plan --cluster --kubeconfig garbage | kubeconfig
bench run --out x.jsonl --backend simulated --sections gemm,nonsense | sections
bench run --out x.jsonl --backend simulated --seed -1 | seed
bench run --out folder --backend simulated | --out
bench run --out garbage --backend simulated | row
bench run --out binary --backend simulated | row
bench run --out nan.json --backend simulated | row
bench run --out object.json --backend simulated | schema_version
bench run --out rows.gz --backend simulated | --out
bench rank --task gemm --backend numpy | --kernel
bench rank --task poems --backend numpy --kernel x:f | --task
bench rank --task gemm --backend numpy --kernel missing:f | --kernel
bench rank --task gemm --backend numpy --kernel folder | --kernel
bench rank --task gemm --backend numpy --kernel garbage | --kernel
bench rank --task gemm --backend numpy --kernel x:f --shapes 8x8 | --shapes
bench rank --task gemm --backend numpy --kernel x:f --shapes 8x8xnan | --shapes
bench rank --task gemm --backend numpy --kernel x:f --shapes 8x8x-8 | k
bench rank --task gemm --backend numpy --kernel x:f --shapes 8x8x8,8x8x8 | --shapes
bench rank --task gemm --backend numpy --kernel wattpack.units:ns_to_seconds --format bf16 | number
bench rank --task gemm --backend numpy --kernel wattpack.cli:main --shapes 1x1x9999999999 | shapes
bench check missing | rows
bench check garbage | row
bench profile empty | rows
bench profile nan.json | row
profiles --file missing | file
profiles --file garbage | file
profiles --file binary | file
profiles --file deep.json | 64 levels
profiles --file twice.json | checks
profiles --file truncated.json | file
profiles --file nan.json | a
profiles --file object.json | checks
profiles nonsense-gpu | gpuModel
"""
LINES = [tuple(part.strip() for part in line.split("|")) for line in REFUSED.split("\n") if line]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def status_of(arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as end:  # argparse
        return end.code


@pytest.mark.parametrize(("line", "names"), LINES)
def test_nonsense_is_refused_by_name_with_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, names: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    assert status_of(line.split()) == 2
    output = capsys.readouterr()
    assert names in output.err.splitlines()[-1]
    assert "expected" in output.err or "required" in output.err or "invalid" in output.err
    assert output.out == ""
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_refuses_a_flag_that_it_does_not_know(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert status_of([verb, "--help"]) == 0
    assert f"usage: wattpack {verb}" in capsys.readouterr().out
    assert status_of([verb, "--no-such-flag"]) == 2


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"], [""]])
def test_an_unknown_verb_shows_the_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert status_of(arguments) == 2
    output = capsys.readouterr()
    assert "wattpack VERB" in output.out + output.err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"wattpack {__version__}\n"


def test_trying_a_result_file_leaves_none_and_keeps_what_is_there(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("kept")
    assert [output_file(str(new)), output_file(str(old))] == [new, old]
    assert not new.exists()
    assert old.read_text() == "kept"


def test_an_output_file_is_whole_or_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl"
    write_output(file, "old")
    half = Path.write_text

    def full(self: Path, text: str, **_: Any) -> int:
        half(self, text[:1])
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(PermanentError, match="no space"):
        write_output(file, "new")
    assert file.read_text() == "old"


def test_a_pipe_is_read_to_its_end_and_is_refused_if_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattpack.documents.PIPE_SECONDS", 0.01)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="without a byte"):
        read_text(pipe)
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    assert read_text(Path(f"/dev/fd/{reader}")) == "text"
    os.close(reader)


@pytest.mark.parametrize("line", ["--help", "profiles --json", "plan pods --schema snapshot"])
def test_a_reader_that_has_enough_ends_a_verb_without_a_word(line: str) -> None:
    """As in ``wattpack plan pods --schema snapshot | head -n 1``."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "wattpack.cli", *line.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
