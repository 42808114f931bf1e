"""The experiment configuration: what a user writes in YAML."""

from tenuto.schemas.config.experiment import (
    Environment,
    ExperimentConfig,
    Reproducibility,
    Resources,
)
from tenuto.schemas.config.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    Hyperparameter,
    Hyperparameters,
    IntHyperparameter,
    LogHyperparameter,
)
from tenuto.schemas.config.length import Length, Unit
from tenuto.schemas.config.searchers import (
    AshaSearcher,
    GridSearcher,
    RandomSearcher,
    Searcher,
    SingleSearcher,
)
from tenuto.schemas.config.storage import CheckpointStorage, SharedDirectoryStorage

__all__ = [
    "AshaSearcher",
    "CategoricalHyperparameter",
    "CheckpointStorage",
    "ConstHyperparameter",
    "DoubleHyperparameter",
    "Environment",
    "ExperimentConfig",
    "GridSearcher",
    "Hyperparameter",
    "Hyperparameters",
    "IntHyperparameter",
    "Length",
    "LogHyperparameter",
    "RandomSearcher",
    "Reproducibility",
    "Resources",
    "Searcher",
    "SharedDirectoryStorage",
    "SingleSearcher",
    "Unit",
]
