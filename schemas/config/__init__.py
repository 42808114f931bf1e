"""The experiment configuration: what a user writes in YAML."""

from tenuto.schemas.config.environment import Environment
from tenuto.schemas.config.experiment import ExperimentConfig, Reproducibility
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
from tenuto.schemas.config.resources import Resources
from tenuto.schemas.config.searchers import (
    AdaptiveAshaSearcher,
    AshaSearcher,
    BohbSearcher,
    CmaEsSearcher,
    CustomSearcher,
    GpSearcher,
    GridSearcher,
    HyperbandSearcher,
    Nsga2Searcher,
    PbtSearcher,
    PluginSearcher,
    RandomSearcher,
    Searcher,
    ShaSearcher,
    SingleSearcher,
    SobolSearcher,
    TpeSearcher,
)
from tenuto.schemas.config.storage import CheckpointStorage

__all__ = [
    "AdaptiveAshaSearcher",
    "AshaSearcher",
    "BohbSearcher",
    "CategoricalHyperparameter",
    "CheckpointStorage",
    "CmaEsSearcher",
    "ConstHyperparameter",
    "CustomSearcher",
    "DoubleHyperparameter",
    "Environment",
    "ExperimentConfig",
    "GpSearcher",
    "GridSearcher",
    "HyperbandSearcher",
    "Hyperparameter",
    "Hyperparameters",
    "IntHyperparameter",
    "Length",
    "LogHyperparameter",
    "Nsga2Searcher",
    "PbtSearcher",
    "PluginSearcher",
    "RandomSearcher",
    "Reproducibility",
    "Resources",
    "Searcher",
    "ShaSearcher",
    "SingleSearcher",
    "SobolSearcher",
    "TpeSearcher",
    "Unit",
]
