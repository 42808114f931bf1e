"""Messages for invalid configurations: the path, the value, the allowed values."""

from __future__ import annotations

import json

import pytest

from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import load_yaml, parse_config

GOOD = """\
name: digits
entrypoint: model_def:DigitsTrial
hyperparameters:
  learning_rate: {type: log, minval: -4, maxval: -1}
  batch_size: 32
searcher:
  name: asha
  metric: accuracy
  smaller_is_better: false
  max_length: {batches: 100}
  max_trials: 16
"""
SEARCHER = GOOD[GOOD.index("searcher:") :]
HYPERPARAMETERS = GOOD[GOOD.index("hyperparameters:") : GOOD.index("searcher:")]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


# (what, text, the whole message)
TABLE = [
    ("unclosed bracket", "name: [x", "line 1, column 9: not valid YAML: expected ',' or ']', but got '<stream end>'"),
    ("tab", "searcher:\n\tname: x", "line 2, column 1: not valid YAML: found character '\\t' that cannot start any token"),
    ("empty", "", "the configuration is empty; name, entrypoint and searcher are required"),
    ("a list", "- a", 'the configuration must be a mapping of fields, such as `name: my-experiment` (found ["a"])'),
    ("given twice", GOOD + "name: again\n", "line 12, column 1: not valid YAML: 'name' is given twice"),
    (
        "tag",
        "name: !!python/object:os.system x",
        "line 1, column 7: not valid YAML: could not determine a constructor for the tag",
    ),
    ("alias in itself", "name: &a [*a]", "line 1, column 7: not valid YAML: an alias contains itself"),
    (
        "alias bomb",
        "a0: &a0 [" + "x," * 50 + "]\n" + "".join(f"a{i}: &a{i} [{(f'*a{i - 1},') * 50}]\n" for i in range(1, 5)),
        "the configuration has more than 20000 values once its aliases are expanded",
    ),
    ("unknown field", GOOD + "max_restart: 3\n", "max_restart: there is no such field; did you mean max_restarts? (found 3)"),
    (
        "unknown field below",
        changed("max_trials: 16", "max_trials: 16\n  eta: 3"),
        "searcher.eta: there is no such field; allowed are",
    ),
    (
        "unknown resource",
        GOOD + "resources: {slots: 2}\n",
        "resources.slots: there is no such field; write slots_per_trial (found 2)",
    ),
    (
        "wrong type",
        changed("max_trials: 16", "max_trials: many"),
        'searcher.max_trials: must be a whole number, at least 1, at most 1000000 (found "many")',
    ),
    (
        "fraction",
        changed("max_trials: 16", "max_trials: 4.5"),
        "searcher.max_trials: must be a whole number, at least 1, at most 1000000 (found 4.5)",
    ),
    ("too small", GOOD + "max_restarts: -1\n", "max_restarts: must be a whole number, at least 0, at most 1000 (found -1)"),
    (
        "number as name",
        changed("name: digits", "name: 5"),
        "name: must be text (in quotes if it looks like a number), length at least 1, length at most 256 (found 5)",
    ),
    (
        "no entrypoint",
        changed("entrypoint: model_def:DigitsTrial\n", ""),
        "entrypoint: is required: `module:Class`, such as `model_def:MyTrial`, or a script, such as `train.py --fast`",
    ),
    (
        "bad entrypoint",
        changed("model_def:DigitsTrial", "model_def"),
        "entrypoint: must be `module:Class`, such as `model_def:MyTrial`, or a script, such as `train.py --fast` or "
        '`python -m package.train` (found "model_def")',
    ),
    (
        "a script elsewhere",
        changed("model_def:DigitsTrial", "python ../train.py"),
        'entrypoint: must name a script inside the model directory, such as `train.py` (found "python ../train.py")',
    ),
    (
        "no searcher",
        changed(SEARCHER, ""),
        "searcher: is required: a mapping with a name, one of adaptive_asha, asha, bohb, cmaes, custom, gp, grid",
    ),
    ("searcher without name", changed("  name: asha\n", ""), "searcher.name: is required: one of adaptive_asha, asha, bohb"),
    (
        "unknown method",
        changed("name: asha", "name: ashaa"),
        "searcher.name: there is no such search method; did you mean asha? it must be one of adaptive_asha, asha, bohb",
    ),
    (
        "a field of a method",
        "name: t\nentrypoint: a:B\nsearcher: {name: pbt, metric: a, max_length: {batches: 4}, population_size: many}\n",
        'searcher.population_size: must be a whole number, at least 2, at most 10000 (found "many")',
    ),
    (
        "no field of that method",
        changed("name: asha", "name: sobol\n  divisors: 4"),
        "searcher.divisors: there is no such field; allowed are ",
    ),
    ("no metric", changed("  metric: accuracy\n", ""), "searcher.metric: is required: text"),
    (
        "length as a number",
        changed("{batches: 100}", "100"),
        "searcher.max_length: must be {batches: N} or {epochs: N} (found 100)",
    ),
    (
        "two units",
        changed("{batches: 100}", "{batches: 100, epochs: 2}"),
        "searcher.max_length: give exactly one of batches and epochs, such as {batches: 100}",
    ),
    (
        "zero length",
        changed("{batches: 100}", "{batches: 0}"),
        "searcher.max_length.batches: must be a whole number, at least 1 (found 0)",
    ),
    ("not a mapping", changed(SEARCHER, "searcher: asha\n"), 'searcher: must be a mapping of fields (found "asha")'),
    (
        "hyperparameter bound",
        changed("minval: -4", "minval: low"),
        'hyperparameters.learning_rate.minval: must be a number (found "low")',
    ),
    (
        "bounds reversed",
        changed("minval: -4", "minval: 4"),
        "hyperparameters.learning_rate: minval (4.0) must not be above maxval (-1.0)",
    ),
    ("missing bound", changed(", maxval: -1", ""), "hyperparameters.learning_rate.maxval: is required: a number"),
    (
        "hyperparameter type",
        changed("type: log", "type: logarithmic"),
        "hyperparameters.learning_rate.type: there is no such type of hyperparameter; it must be one of",
    ),
    (
        "unknown key below",
        changed("maxval: -1", "maxval: -1, steps: 3"),
        "hyperparameters.learning_rate.steps: there is no such field; did you mean step? (found 3)",
    ),
    (
        "nested",
        changed("batch_size: 32", "optimizer: {decay: {type: double, minval: 0}}"),
        "hyperparameters.optimizer.decay.maxval: is required: a number",
    ),
    (
        "no number",
        changed("batch_size: 32", "batch_size: .nan"),
        "hyperparameters.batch_size: must be a finite number: a record is JSON, which has no other; leave it out, or give text "
        "that your code converts (found NaN)",
    ),
    ("number as key", changed("batch_size: 32", "5: 32"), "hyperparameters.5: "),
    (
        "an address of the user's own",
        GOOD + "checkpoint_storage: {type: s3, bucket: b, endpoint: 'http://x', access_key_variable: TENUTO_NATS_PASSWORD}\n",
        "checkpoint_storage: access_key_variable, bucket, endpoint, type: an experiment does not say where a store is",
    ),
    (
        "a key as a field",
        GOOD + "checkpoint_storage: {store: s, secret_key: wJalrXUtnFEMI}\n",
        "checkpoint_storage: secret_key: an experiment does not say where a store is",
    ),
    ("store", GOOD + "checkpoint_storage: {store: A/b}\n", "checkpoint_storage.store: must be "),
    ("policy", GOOD + "checkpoint_policy: bst\n", 'checkpoint_policy: must be one of best, all, none (found "bst")'),
    ("pool", GOOD + "resources: {pool: a b}\n", 'resources.pool: must be 1 to 63 letters, digits, _ or - (found "a b")'),
    (
        "reserved variable",
        GOOD + "environment: {variables: {TENUTO_X: '1'}}\n",
        "environment.variables: TENUTO_X is reserved: names that begin with TENUTO_ are",
    ),
    (
        "secrets that are no mapping",
        GOOD + "environment: {variables: {KEY: {secret: wandb}}, secrets: 5}\n",
        "environment: secrets must be a mapping of variables to names of secrets",
    ),
    (
        "a directory of the user's own",
        GOOD + "checkpoint_storage: {path: /etc}\n",
        "checkpoint_storage: path: an experiment does not say where a store is",
    ),
    (
        "grid without count",
        changed("name: asha", "name: grid").replace("  max_trials: 16\n", "").replace("log,", "double,"),
        "hyperparameters.learning_rate: the grid searcher needs `count`",
    ),
    ("too long", "# " + "x" * 2_000_000, "the configuration is 2000002 bytes long; at most 262144 are allowed"),
]


@pytest.mark.parametrize(("text", "message"), [pytest.param(text, message, id=name) for name, text, message in TABLE])
def test_message(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert str(caught.value).startswith(message)
    assert len(caught.value.problems) == 1
    assert "wJalr" not in str(caught.value), "a secret is not repeated"


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(changed("max_trials: 16", "max_trials: 0") + "labels: none\nresources: {slots_per_trial: -1}\n")
    assert sorted(problem.path for problem in caught.value.problems) == [
        "labels",
        "resources.slots_per_trial",
        "searcher.max_trials",
    ]


def test_good_ones() -> None:
    assert parse_config(GOOD).searcher.name == "asha"
    config = parse_config(changed("batch_size: 32", "decay: 1e-4"))
    assert config.hyperparameters["decay"].val == 1e-4  # bare YAML would read text
    assert parse_config(
        b'{"name": "x", "entrypoint": "m:T", "searcher": {"name": "single", "metric": "loss", "max_length": {"epochs": 1}}}'
    )


def test_json_with_escaped_characters_beyond_65535_is_read_as_what_it_says() -> None:
    assert load_yaml(json.dumps({"name": "digits \U0001f600", "\U00010000": ["a\U0001f600b"]})) == {
        "name": "digits \U0001f600",
        "\U00010000": ["a\U0001f600b"],
    }
    assert load_yaml('{"name": "\\ud800 \\udc00 \\udc00\\ud800"}') == {"name": "\ud800 \udc00 \udc00\ud800"}, "halves stay"
