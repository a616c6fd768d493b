"""What experiment files reach beside algorithms: optimizers, schedules, samplers, and one's own code by import path."""

import numpy as np
import optax
import pandas as pd
import pytest
from tests.experiments.test_files import SMALL, invoke
from tests.experiments.test_named_algorithms import HEAD, PLAIN, methods, written

import cofed
from cofed.experiments import build, schema

MINE = """
import jax
import jax.numpy as jnp
import optax

import cofed


def halving(r):
    return 0.5**r


def falling(rate):
    return lambda r: 1 / (1 + rate * r)


def clipped(learning_rate, clip):
    return optax.chain(optax.clip(clip), optax.sgd(learning_rate))


class Robust(cofed.AbstractLoss):
    scale: float = 1.0

    def __call__(self, prediction, y):
        return jnp.log1p(((prediction - y) / self.scale) ** 2)


class Ridge(cofed.AbstractRegularizer):
    strength: float
    has_subgradient = True

    def value(self, w):
        return 0.5 * self.strength * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w))

    def prox(self, v, step):
        return jax.tree.map(lambda leaf: leaf / (1 + step * self.strength), v)

    def subgradient(self, w):
        return jax.tree.map(lambda leaf: self.strength * leaf, w)


class Evens(cofed.samplers.AbstractSampler):
    def count(self, clients):
        return clients // 2

    def draw(self, key, round, clients):
        return cofed.samplers.Draw(2 * jnp.arange(clients // 2, dtype=jnp.int32))


class Unfinished(cofed.batches.AbstractBatches):
    def size(self, most):
        return 1


error = cofed.metrics.on_samples(lambda prediction, y: abs(prediction - y))
number = 3
"""
MADE = """
[[algorithms]]
name = "ServerOptimizer"
label = "FedAdam"
algorithm = { name = "FedAvg", client_lr = [0.01, 0.02] }
optimizer = { name = "adam", learning_rate = [0.1, 0.2, 0.3], b2 = 0.99 }

[[algorithms]]
name = "ServerOptimizer"
label = "own"
algorithm = { name = "FedAvg", client_lr = 0.01 }
optimizer = { name = "NAME:clipped", learning_rate = 1.0, clip = 0.5 }

[[algorithms]]
name = "Compressed"
compressor = { name = "TopK", share = 0.5 }

[algorithms.algorithm]
name = "Scheduled"
algorithm = { name = "FedAvg", client_lr = 0.01 }
schedules = { client_lr = "NAME:halving", server_lr = { name = "NAME:falling", rate = 0.5 } }

[[algorithms]]
name = "Scheduled"
algorithm = { name = "FedAvg", client_lr = 0.01 }
schedules.client_lr = { name = "cosine_decay_schedule", init_value = 1.0, decay_steps = 100 }
"""


@pytest.fixture
def module(tmp_path, request):
    """The module of one's own, beside the file, by a name that no other test has."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MINE)
    return name


def made_setup(path):
    file = schema.load(path)
    return build.set_up(file, 0, path.parent, file.run.model_dump(exclude_none=True))


def test_optimizers_and_schedules_are_named_with_their_numbers(tmp_path, module):
    made = methods(written(tmp_path, PLAIN + MADE.replace("NAME", module)))
    adam = made["FedAdam"].algorithms()
    assert {(one.algorithm.client_lr, one.options["learning_rate"]) for one in adam} == {
        (rate, step) for rate in (0.01, 0.02) for step in (0.1, 0.2, 0.3)
    }
    assert all(one.optimizer is optax.adam and one.options["b2"] == 0.99 for one in adam)
    (own,) = made["own"].algorithms()
    assert own.name == "FedAvg + clipped"
    (inside,) = made["Compressed"].algorithms()
    schedules = dict(inside.algorithm.schedules)
    np.testing.assert_allclose([schedules["client_lr"](2.0), schedules["server_lr"](2.0)], [0.25, 0.5])
    (cosine,) = made["Scheduled"].algorithms()
    np.testing.assert_allclose(dict(cosine.schedules)["client_lr"](50.0), 0.5, rtol=1e-6)


def test_samplers_losses_regularizers_and_metrics_of_ones_own(tmp_path, module):
    text = SMALL.replace('name = "L1", strength = 0.1', f'name = "{module}:Ridge", strength = 0.1')
    text = text.replace("[problem]\n", f'[problem]\nloss = {{ name = "{module}:Robust", scale = 2.0 }}\n')
    own = f'batch_size = {{ name = "Shuffled", samples = 4 }}\nclients_per_round = "{module}:Evens"'
    text = text.replace("[run]\n", f"[run]\n{own}\n").replace('["f1"]', f'["f1", "{module}:error"]')
    path = written(tmp_path, text)
    setup = made_setup(path)
    assert type(setup.problem.loss).__name__ == "Robust"
    assert setup.problem.loss.scale == 2.0
    assert type(setup.problem.regularizer.regularizer).__name__ == "Ridge"
    assert setup.run["batch_size"] == cofed.batches.Shuffled(4)
    assert setup.run["clients_per_round"].count(6) == 3
    assert list(setup.metrics) == ["f1", "error"]
    code = build.code_of(schema.load(path), tmp_path)
    assert set(code) == {f"{module}:{name}" for name in ("Ridge", "Robust", "Evens", "error")}
    (tmp_path / f"{module}.py").write_text(MINE + "\n# another word\n")
    assert set(build.code_of(schema.load(path), tmp_path).values()).isdisjoint(code.values())


def test_clients_samplers_of_cofed_take_their_numbers(tmp_path):
    for given, sampler in (
        ("2", 2),
        ('{ name = "Cyclic", clients = 2 }', cofed.samplers.Cyclic(2)),
        ('{ name = "Availability", clients = 2, awake = 0.5 }', cofed.samplers.Availability(2, awake=0.5)),
    ):
        path = written(tmp_path, SMALL.replace("[run]\n", f"[run]\nclients_per_round = {given}\n"))
        assert made_setup(path).run["clients_per_round"] == sampler
    given = '{ name = "Importance", clients = 2, sizes = [1.0, 2.0, 2.0, 1.0] }'
    path = written(tmp_path, SMALL.replace("[run]\n", f"[run]\nclients_per_round = {given}\n"))
    assert made_setup(path).run["clients_per_round"].sizes.tolist() == [1.0, 2.0, 2.0, 1.0]


@pytest.mark.slow
def test_such_a_file_runs_and_is_planned(tmp_path, module):
    text = HEAD.replace('name = "L1", strength = 0.1', f'name = "{module}:Ridge", strength = 0.1')
    own = f'batch_size = {{ name = "Weighted", samples = 4 }}\nclients_per_round = "{module}:Evens"'
    text = text.replace("[run]\n", f"[run]\n{own}\n").replace('["f1"]', f'["{module}:error"]')
    path = written(tmp_path, text + MADE.replace("NAME", module))
    assert invoke("plan", str(path), "--seconds", "0.01").exit_code == 0
    result = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    numbers = pd.read_parquet(tmp_path / "out" / "file" / "numbers.parquet")
    assert set(numbers["algorithm"]) == {"FedAdam", "own", "Compressed", "Scheduled"}
    assert np.isfinite(numbers["error"]).all()
    again = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert again.exit_code == 0
    assert "old-1" not in again.output


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "adam"', 'name = "adm"', "it is neither a function of optax, such as adam"),
        ("learning_rate = [0.1, 0.2, 0.3]", "lr = 0.1", "algorithm 'FedAdam': ServerOptimizer: optimizer with these"),
        ("NAME:clipped", "NAME:cliped", "did you mean 'clipped'?"),
        ("NAME:clipped", "NAME:Ridge", "Ridge is no function"),
        ("NAME:halving", "no_such_module:halving", "there is no module no_such_module"),
        ("schedules.client_lr", "schedules.momentum", "momentum of FedAvg cannot change from round to round"),
    ],
)
def test_mistakes_in_functions_are_said_with_their_place(tmp_path, module, old, new, sentence):
    assert old in MADE
    with pytest.raises(schema.FileError, match=r"line \d+") as error:
        methods(written(tmp_path, PLAIN + MADE.replace(old, new, 1).replace("NAME", module)))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        ("clients_per_round = 0", "run.clients_per_round"),
        ("clients_per_round = 2.5", "run.clients_per_round is 2.5; it should be a whole number"),
        ('clients_per_round = "Cyclc"', "run.clients_per_round is 'Cyclc' (did you mean 'Cyclic'?)"),
        ('clients_per_round = "NAME:Robust"', "Robust is no class that derives from AbstractSampler of cofed"),
        ('batch_size = "NAME:Unfinished"', "Unfinished lacks draw, which AbstractBatches asks for and explains"),
        ('mean = "NAME:number"', "number is no class that derives from AbstractMean of cofed"),
    ],
)
def test_mistakes_in_what_a_run_is_given_are_said_with_their_place(tmp_path, module, new, sentence):
    with pytest.raises(schema.FileError, match=r"line \d+") as error:
        schema.load(written(tmp_path, SMALL.replace("[run]\n", f"[run]\n{new.replace('NAME', module)}\n")))
    assert sentence in str(error.value)


def test_numbers_of_each_client_reach_the_run(tmp_path):
    text = HEAD.replace("local_steps = 2", "local_steps = [1, 2, 3, 4]\nweights = [0.1, 0.2, 0.3, 0.4]")
    text += '[[algorithms]]\nname = "FedDualAvg"\nclient_lr = [0.001, 0.01]\n'
    done = invoke("run", str(written(tmp_path, text)), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    numbers = pd.read_parquet(tmp_path / "out" / "file" / "numbers.parquet")
    data = cofed.datasets.yuan_lasso(clients=4, samples=8, d=6, nonzeros=2, test_clients=0, seed=0)
    problem, each = cofed.Problem(regularizer=cofed.On(cofed.L1(0.1), "coef")), {"local_steps": [1, 2, 3, 4]}
    ends = [
        cofed.run(problem, data.federation, cofed.FedDualAvg(rate), rounds=4, weights=[1, 2, 3, 4], **each)
        for rate in (0.001, 0.01)
    ]
    best = min(end.history["objective"][-1] for end in ends)
    np.testing.assert_allclose(numbers["objective"].iloc[-1], best, rtol=1e-12)
    failing = text.replace("local_steps = [1, 2, 3, 4]\nweights = [0.1, 0.2, 0.3, 0.4]", "link_failure = 0.2")
    refused = invoke("run", str(written(tmp_path, failing)), "--out", str(tmp_path / "out"))
    assert refused.exit_code == 2
    assert "link_failure is for runs with a topology" in refused.output
    for wrong in ("local_steps = [1, 0, 3, 4]", "weights = 3", "link_failure = 1.0"):
        bad = text.replace("local_steps = [1, 2, 3, 4]\nweights = [0.1, 0.2, 0.3, 0.4]", wrong)
        assert "line 19: run." in invoke("run", str(written(tmp_path, bad))).output


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            "clients_per_round = 2\nclock = { seconds = 1.0, spread = -0.1 }",
            "run: Clock: spread must be a finite number",
        ),
        ('mean = { name = "Trimmed", share = 0.7 }', "run: Trimmed: share must be a number in [0, 0.5)"),
    ],
)
def test_what_a_part_of_the_run_refuses_is_said_with_the_file(tmp_path, part, words):
    text = (
        HEAD.replace("local_steps = 2", f"local_steps = 2\n{part}")
        + '[[algorithms]]\nname = "FedAvg"\nclient_lr = 0.1\n'
    )
    result = invoke("run", str(written(tmp_path, text)))
    assert result.exit_code == 2
    assert f"file.toml, {words}" in result.output
