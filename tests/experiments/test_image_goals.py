"""Which goals of the experiments on images are met."""

import json
import re

from experiments.report import goals
from experiments.report.__main__ import GOALS
from experiments.results import FOLDER


def test_goals_are_met_by_every_seed_or_in_the_mean_or_not():
    assert goals.met([1.0, 2.0], 2.0) == "yes, by every seed"
    assert goals.met([1.0, 2.9], 2.0) == "in the mean, by 0.05; not by every seed"
    assert goals.met([1.0, 3.5], 2.0) == "no, by 0.25"


def test_our_model_is_compared_with_the_best_baseline():
    nll = {"VFG, encoding edge": [79.0, 81.0], "VFG": [70.0], "VAE": [90.0], "IAF": [84.0, 86.0]}
    models = {name: {"nll": values} for name, values in nll.items()}
    assert goals.lead(models, "nll") == -5.0


def test_a_lost_contest_is_no_goal_that_is_met():
    found = [json.loads((FOLDER / f"{file}.json").read_text()) for file in GOALS]
    before = goals.goals(*found)
    assert re.search(r"static MNIST: -ELBO at most 83.0 \|.*\| in the mean, by 0.01;", before)
    found[0]["data"]["omniglot"]["models"]["IAF"]["nll"] = [90.0]
    found[2]["models"]["masked VAE"]["half, conditional"] = [41.0]
    after = goals.goals(*found)
    for line in ("Omniglot: both", "halves of MNIST"):
        verdicts = [re.search(rf"\| {line}.*\| (\w+) \|\n", text)[1] for text in (before, after)]
        assert verdicts == ["yes", "no"]
