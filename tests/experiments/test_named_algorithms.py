"""Every algorithm can be named in an experiment file: those inside others, and one of the user's own by import path."""

import json

import pandas as pd
import pytest
from tests.experiments.test_files import SMALL, invoke
from tests.pages import blocks, script

import cofed
from cofed.experiments import build, registry, schema

HEAD, _, _ = SMALL.partition("[[algorithms]]")
PLAIN = HEAD.replace('regularizer = { name = "L1", strength = 0.1, on = "coef" }', "")  # for methods that need psi = 0
WRAPPED = """
[[algorithms]]
name = "FedProx"
strength = 0.5
client_lr = [0.001, 0.01]

[[algorithms]]
name = "PureLocal"
client_lr = 0.01

[[algorithms]]
name = "Alternative"
client_lr = 0.01
folds = 2

[[algorithms]]
name = "Compressed"
label = "FedDualAvg, a tenth"
algorithm = { name = "FedDualAvg", client_lr = [0.001, 0.01], mirror = { name = "PNorm", p = 3.0 } }
compressor = { name = "TopK", share = 0.1 }

[[algorithms]]
name = "Alternative"
label = "compressed or alone"
local = { name = "PureLocal", client_lr = 0.01 }

[algorithms.shared]
name = "Compressed"
algorithm = { name = "FedAvg", client_lr = 0.01 }
compressor = { name = "Quantised", bits = 2 }
"""


def written(tmp_path, text, name="file.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def methods(path):
    """The methods of a file, by label."""
    file = schema.load(path)
    return {method.label: method for method in build.methods_of(path, file)}


def test_every_public_algorithm_can_be_named():
    public = {name for name in dir(cofed) if isinstance(getattr(cofed, name), type)}
    algorithms = {name for name in public if issubclass(getattr(cofed, name), cofed.AbstractAlgorithm)}
    named = {name for name in algorithms if not name.startswith("Abstract")}
    assert {*registry.ALGORITHMS, *schema.WRAPPERS} == named
    assert {"FedProx", "PureLocal", "Alternative", "Compressed"} <= set(registry.ALGORITHMS)


def test_algorithms_inside_algorithms_are_made_with_their_own_keys(tmp_path):
    made = methods(written(tmp_path, PLAIN + WRAPPED))
    small, large = made["FedDualAvg, a tenth"].algorithms()
    assert (small.algorithm.client_lr, large.algorithm.client_lr) == (0.001, 0.01)
    assert small.compressor == cofed.TopK(0.1)
    assert small.algorithm.mirror.p == 3.0
    (chosen,) = made["compressed or alone"].algorithms()
    assert chosen.shared.compressor.bits == 2
    assert isinstance(chosen.local, cofed.PureLocal)
    assert made["Alternative"].algorithms()[0].folds == 2


def test_they_run_are_tuned_and_planned(tmp_path):
    path = written(tmp_path, 'columns = ["objective", "personal_objective"]\n' + PLAIN + WRAPPED)
    planned = invoke("plan", str(path), "--seconds", "0.01", "--json")
    assert planned.exit_code == 0, planned.output
    lines = {line["label"]: line for line in json.loads(planned.stdout)["algorithms"]}
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    numbers = pd.read_parquet(tmp_path / "out" / "file" / "numbers.parquet")
    assert set(numbers["algorithm"]) == set(lines)
    ends = numbers[numbers["round"] == 4].set_index("algorithm")
    label = "FedDualAvg, a tenth"
    assert lines[label]["run"]["bytes_on_wire"] == ends.loc[label, ["bytes_down", "bytes_up"]].sum()
    assert lines["PureLocal"]["run"]["bytes_on_wire"] == 0
    assert lines["Alternative"]["run"]["rounds"] == 4
    assert lines["FedDualAvg, a tenth"]["configurations"] == 2
    tuned = invoke("tune", str(path), "--out", str(tmp_path / "grid.csv"))
    assert tuned.exit_code == 0, tuned.output
    assert set(pd.read_csv(tmp_path / "grid.csv")["algorithm"]) == set(lines) - {"Alternative", "compressed or alone"}


def test_a_method_that_chooses_takes_no_grid(tmp_path):
    path = written(tmp_path, PLAIN + '[[algorithms]]\nname = "Alternative"\nclient_lr = [0.1, 0.2]\n')
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert f"{path}, line 21, algorithm 'Alternative': Alternative chooses between methods by itself" in result.output


def test_a_method_that_chooses_needs_held_out_data_of_its_own_clients(tmp_path, monkeypatch):
    text = (
        PLAIN.replace("test_clients = 0", "test_clients = 2")
        + '[[algorithms]]\nname = "Alternative"\nclient_lr = 0.1\n'
    )
    monkeypatch.setattr(cofed, "run", None)
    result = invoke("run", str(written(tmp_path, text)), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "algorithm 'Alternative': the evaluation federation has the client" in result.output


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"TopK", share', '"TopQ", share', "algorithms[4].compressor.name is 'TopQ' (did you mean 'TopK'?)"),
        ("share = 0.1", "part = 0.1", "algorithms[4].compressor.part is not a key here; allowed are name, share"),
        ("share = 0.1", "share = 2.0", "algorithm 'FedDualAvg, a tenth': TopK: share must be a number in (0, 1]"),
        ('{ name = "TopK", share = 0.1 }', "0.1", "algorithms[4].compressor is 0.1; give a table with the key name"),
        ('{ name = "TopK", share = 0.1 }', '"TopK"', "algorithms[4].compressor.share is missing"),
        ('{ name = "FedAvg", client_lr', '{ name = "FedAvg", label = "x", client_lr', "label is not a key here"),
        ("bits = 2", "bytes = 2", "line 50: algorithms[5].shared.compressor.bytes is not a key here"),
        ('name = "FedProx"\nstrength', 'name = "FedProx"\nmirror = "PNorm"\nstrength', "mirror is not a key here"),
    ],
)
def test_mistakes_inside_are_said_with_their_place(tmp_path, old, new, sentence):
    assert old in WRAPPED
    path = written(tmp_path, PLAIN + WRAPPED.replace(old, new, 1))
    with pytest.raises(schema.FileError) as error:
        methods(path)
    assert sentence in str(error.value)


def test_an_algorithm_of_ones_own_runs_by_its_import_path(tmp_path):
    (tmp_path / "own_momentum.py").write_text(script("docs/adding-an-algorithm.md"))
    text = PLAIN + '[[algorithms]]\nname = "own_momentum:HeavyBall"\nclient_lr = [0.001, 0.01]\nbeta = 0.5\n'
    path = written(tmp_path, text)
    method = methods(path)["HeavyBall"]
    assert [one.client_lr for one in method.algorithms()] == [0.001, 0.01]
    planned = invoke("plan", str(path), "--seconds", "0.01")
    assert planned.exit_code == 0, planned.output
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "out" / "file" / "config.json").read_text())
    assert config["algorithms"][0]["algorithm"] == "HeavyBall"
    assert list(config["numbers"]["code"]) == ["own_momentum:HeavyBall"]
    assert "are now in" not in invoke("run", str(path), "--out", str(tmp_path / "out")).output
    (tmp_path / "own_momentum.py").write_text((tmp_path / "own_momentum.py").read_text() + "\n# changed\n")
    assert "code.own_momentum:HeavyBall was" in invoke("run", str(path), "--out", str(tmp_path / "out")).output


OWN = """
import equinox as eqx
import cofed

number = 3

class Nothing(eqx.Module):
    x: float = 1.0

class Half(cofed.AbstractServerAlgorithm):
    client_lr: float

    def init(self, problem, w0):
        return w0

class Duck(eqx.Module):
    client_lr: float

    def local(self, problem, down, client, steps):
        return down, client

class Untyped:
    def local_node(self): ...
    def init_node(self): ...
    def mix(self): ...
    def model_node(self): ...
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere_at_all:Method", "there is no module nowhere_at_all, neither installed nor in "),
        ("own_parts:Methods", "has no 'Methods'"),
        ("own_parts:Haf", "has no 'Haf' (did you mean 'Half'?)"),
        ("own_parts:number", "number is no class"),
        ("own_parts:Nothing", "Nothing is no algorithm: one of your own derives from AbstractServerAlgorithm or"),
        ("own_parts:Half", "Half lacks aggregate, broadcast, init_client, local, model, which AbstractServerAlgorithm"),
        ("own_parts:Duck", "Duck lacks aggregate, broadcast, init, init_client, model, which AbstractServerAlgorithm"),
        ("own_parts:Untyped", "Untyped is no equinox.Module; derive it from AbstractGossipAlgorithm"),
        ("own_parts.deeper:Half", "there is no module own_parts.deeper"),
        ("own parts:Half", "an import path is written package.module:Class"),
        ("own_broken:Half", "the module own_broken cannot be imported: ZeroDivisionError: division by zero"),
        ("own_needy:Half", "the module own_needy cannot be imported: No module named 'nowhere_at_all'"),
        ("own_parts.Half", "is 'own_parts.Half'; allowed are AccSDANE, Alternative, "),
        ("own_parts.Half", "an import path has a colon: own_parts:Half"),
    ],
)
def test_what_is_no_algorithm_is_refused_in_a_sentence(tmp_path, name, sentence, monkeypatch):
    for module in ("own_parts", "own_broken", "own_needy"):
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
    (tmp_path / "own_parts.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    (tmp_path / "own_needy.py").write_text("import nowhere_at_all")
    path = written(tmp_path, HEAD + f'[[algorithms]]\nname = "{name}"\nclient_lr = 0.1\n')
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert f"line 22: algorithms[1].name is '{name}'" in result.output
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_the_keys_of_ones_own_algorithm_are_checked(tmp_path):
    (tmp_path / "own_keys.py").write_text(script("docs/adding-an-algorithm.md"))
    path = written(tmp_path, HEAD + '[[algorithms]]\nname = "own_keys:HeavyBall"\nclient_lr = "fast"\ngamma = 1.0\n')
    with pytest.raises(schema.FileError) as error:
        schema.load(path)
    said = str(error.value)
    assert "line 23: algorithms[1].client_lr is 'fast'" in said
    assert "line 24: algorithms[1].gamma is not a key here; allowed are beta, client_lr, label, name, server_lr" in said
    path.write_text(path.read_text().replace('"fast"', "-1.0").replace("gamma = 1.0\n", ""))
    with pytest.raises(schema.FileError, match="algorithm 'HeavyBall': HeavyBall: client_lr must be"):
        methods(path)


@pytest.mark.parametrize(
    ("field", "given", "sentence"),
    [
        ("kind: float = 1.0", "kind = 2.0", None),
        ("kind: str = eqx.field(static=True, default='a')", "kind = 'b'", None),
        ("label: str = eqx.field(static=True, default='a')", "", "has a field 'label', which is a key of the file"),
        ("name: str = eqx.field(static=True, default='a')", "", "has a field 'name', which is a key of the file"),
        (
            "kind: str = 'a'",
            "kind = 'b'",
            "line 21, algorithm 'Named': kind is 'b', which is no number; make",
        ),
        (
            "part: object = None",
            "part = { name = 'L1' }",
            "algorithm 'Named': part is {'name': 'L1'}; a table may",
        ),
    ],
)
def test_fields_of_ones_own_algorithm_run_or_are_refused_in_a_sentence(tmp_path, monkeypatch, field, given, sentence):
    monkeypatch.delitem(__import__("sys").modules, "own_fields", raising=False)
    base = script("docs/adding-an-algorithm.md")
    (tmp_path / "own_fields.py").write_text(f"{base}\n\nclass Named(HeavyBall):\n    {field}\n")
    path = written(tmp_path, HEAD + f'[[algorithms]]\nname = "own_fields:Named"\nclient_lr = 0.1\n{given}\n')
    if sentence is None:
        assert str(methods(path)["Named"].algorithms()[0].kind) in given
        return
    with pytest.raises(schema.FileError) as error:
        methods(path)
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_where_a_method_of_ones_own_raises_the_file_and_its_line_are_named(tmp_path):
    own = "class Raising(HeavyBall):\n    def broadcast(self, server):\n        raise RuntimeError('my own bug')\n"
    (tmp_path / "own_raising.py").write_text(f"{script('docs/adding-an-algorithm.md')}\n\n{own}")
    path = written(tmp_path, PLAIN + '[[algorithms]]\nname = "own_raising:Raising"\nclient_lr = 0.1\n')
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert f"Error: {path}, line 21, algorithm 'Raising': " in result.output
    assert "'Raising': algorithm:" not in result.output
    assert "my own bug" in result.output


def test_the_algorithms_of_the_page_are_valid(tmp_path):
    (tmp_path / "momentum.py").write_text(script("docs/adding-an-algorithm.md"))
    (tmp_path / "mine.py").write_text("def halving(r):\n    return 0.5 ** (r / 10)\n")
    pages = [block.text for block in blocks("docs/experiments.md", "toml")]
    text = "\n".join(block for block in pages if block.startswith("[[algorithms]]"))
    made = methods(written(tmp_path, PLAIN + text))
    assert {label: len(method.algorithms()) for label, method in made.items()} == {
        "FedDualAvg, 5 % up": 2,
        "Alternative": 1,
        "FedProx": 2,
        "HeavyBall": 2,
        "FedAdam": 2,
        "Scheduled": 1,
    }


def test_a_file_reaches_clocks_and_robust_means(tmp_path):
    late = 'clock = { seconds = 2.0, spread = 0.5 }\nmean = { name = "Trimmed", share = 0.1 }'
    text = SMALL.replace("[run]\n", f"[run]\n{late}\n")
    path = written(tmp_path, text)
    file = schema.load(path)
    setup = build.set_up(file, 0, tmp_path, file.run.model_dump(exclude_none=True))
    assert setup.run["mean"] == cofed.means.Trimmed(0.1)
    assert (float(setup.run["clock"].seconds), setup.run["clock"].spread) == (2.0, 0.5)
    with pytest.raises(schema.FileError, match=r"run\.mean.*'Trimed'"):
        schema.load(written(tmp_path, text.replace("Trimmed", "Trimed"), "wrong.toml"))
    with pytest.raises(schema.FileError, match=r"run\.clock\.sped"):
        schema.load(written(tmp_path, text.replace("spread", "sped"), "wrong.toml"))


def test_rates_may_be_auto(tmp_path):
    """They are settled by each seed's run, and not tuned; what they came to is in the configuration."""
    text = SMALL.replace("client_lr = [0.001, 0.01]", 'client_lr = "auto"').replace("seeds = 1", "seeds = 2")
    path = written(tmp_path, text)
    done = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    config = json.loads((tmp_path / "out" / "file" / "config.json").read_text())
    ours, other = config["algorithms"]
    assert ours["hyperparameters"]["client_lr"] == "auto"
    assert "settled" not in other
    data = cofed.datasets.yuan_lasso(clients=4, samples=8, d=6, nonzeros=2, test_clients=0, seed=1)
    problem = cofed.Problem(regularizer=cofed.On(cofed.L1(0.1), "coef"))
    alone = cofed.run(problem, data.federation, cofed.FedDualAvg("auto"), rounds=4, local_steps=2, seed=1)
    assert ours["settled"]["1"]["client_lr"] == alone.algorithm.client_lr
    assert ours["settled"]["0"]["client_lr"] != alone.algorithm.client_lr
    planned = invoke("plan", str(path), "--seconds", "0.1")
    assert planned.exit_code == 0, planned.output
    path.write_text(text.replace('client_lr = "auto"', 'client_lr = "auto"\nserver_lr = [1.0, 2.0]'))
    refused = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert refused.exit_code == 2
    assert '"auto" is settled in a run, which has no grid' in refused.output
