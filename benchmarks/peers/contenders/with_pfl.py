"""pfl: its own `FederatedAveraging` on PyTorch, with proximal SGD as the local and as the central optimizer."""

import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.in_torch import ProxSGD, module_of, prox_of
from benchmarks.peers.jobs import Job
from benchmarks.peers.measure import Ran, main
from benchmarks.peers.models import Leaves


def prepare(job: Job, X: np.ndarray, y: np.ndarray, w0: Leaves):
    """A function that runs so many rounds from the start."""
    rng, prox = np.random.default_rng(0), prox_of(job)
    features, labels = torch.from_numpy(X), torch.from_numpy(y.astype(np.int64 if y.dtype.kind == "i" else y.dtype))
    some = job.samples if job.local_steps is None else job.local_steps * job.batch

    def client(m: int) -> Dataset:
        rows = torch.from_numpy(rng.permutation(job.samples)[:some])
        return Dataset(raw_data=[features[m][rows], labels[m][rows]], user_id=str(m))

    def run(rounds: int) -> Ran:
        module = module_of(job, w0)
        module.metrics = lambda X, y: {"loss": Weighted(module.loss(X, y).item() * len(y), len(y))}
        model = PyTorchModel(
            module,
            lambda parameters, lr: ProxSGD(parameters, lr, prox),
            ProxSGD(module.parameters(), 1.0, prox, span=job.lr * job.steps),
        )
        backend = SimulatedBackend(
            training_data=FederatedDataset(client, get_user_sampler("minimize_reuse", list(range(job.clients)))),
            val_data=FederatedDataset(client, get_user_sampler("minimize_reuse", list(range(job.clients)))),
        )
        began = time.perf_counter()
        FederatedAveraging().run(
            # Nothing is evaluated but the first cohort, which pfl always does.
            NNAlgorithmParams(rounds, evaluation_frequency=10**9, train_cohort_size=job.per_round, val_cohort_size=0),
            backend,
            model,
            NNTrainHyperParams(local_batch_size=job.batch, local_num_epochs=1, local_learning_rate=job.lr),
            send_metrics_to_platform=False,
        )
        seconds = time.perf_counter() - began
        return Ran(module.leaves(), seconds)

    return run


if __name__ == "__main__":
    main(prepare, packages=("pfl", "torch", "numpy"))
