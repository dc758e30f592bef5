"""What the page on images says of its results, where the results decide the sentence."""

import json

from experiments.report import images
from experiments.report.render import provenance
from experiments.results import FOLDER


def row(nll, curve, steps, **more):
    about = {"elbo": [nll + 2.0], "train": [nll + 1.0], "nll": [nll], "batch": 4}
    return about | {"validation": curve, "steps": steps, "train_seconds": 3.0} | more


def models(**more):
    """Ours is at 84 after 10 steps and at 82 after 30, which are those of its first seed."""
    ours = row(80.0, [84.0, 83.0, 82.0], 60, first_steps=30)
    return {"VFG, encoding edge": ours, "VAE": row(90.0, [84.5], 10), **more}


def test_ours_is_compared_after_at_most_the_steps_of_each_baseline():
    said = images._sooner(models())
    assert said.endswith("is below the best of every baseline.")
    assert images._sooner(models(IAF=row(90.0, [82.5], 29))).endswith("every baseline but IAF.")
    assert images._sooner(models(IAF=row(90.0, [82.5], 30))).endswith("every baseline.")
    assert images._sooner(models(IAF=row(90.0, [99.0], 9))).endswith("every baseline but IAF.")
    assert images._sooner({"VAE": row(90.0, [84.5], 10)}) == ""


def test_baselines_are_called_underfitted_only_if_none_is_better_on_training_rows():
    rates = {"0.0005, dropout 0.1": 99.0, "0.001, dropout 0.1": 98.0}
    flat = row(90.0, [98.0], 10, train=[93.0], rates=rates)
    (said,) = images._underfitted("caltech", models(**{"VAE, same size": flat}))
    assert "(VAE 93.0 and 92.0). The highest rate tried, 0.001, was the best for each." in said
    assert said.endswith("flows have an NLL of 93.82.")
    other = flat | {"rates": {"0.0005": 97.0, "0.001": 98.0}}
    (said,) = images._underfitted("digits", models(**{"VAE, same size": other}))
    assert "highest rate tried" not in said
    assert "93.82" not in said
    fitted = models(**{"VAE, same size": flat, "IAF, same size": flat | {"train": [91.0]}})
    assert list(images._underfitted("caltech", fitted)) == []


def test_longer_runs_are_told_by_their_steps_and_images_of_the_first_seed():
    longer = row(79.0, [81.0], 210, together=2)
    (said,) = images._longer(models(**{"VFG, encoding edge, longer": longer}))
    assert "had 210 steps in place of 60," in said
    assert images._images(models()["VFG, encoding edge"]) == 120
    assert images._images(row(80.0, [82.0], 60, images=7)) == 7


def test_published_numbers_are_rows_of_the_table_that_are_marked():
    found = json.loads((FOLDER / "likelihood.json").read_text())
    lines = images.likelihood(found).splitlines()
    for name, mark in (("mnist", "published"), ("omniglot", "published, other images")):
        vae = images.PUBLISHED[name]["VAE"]
        (place,) = (
            k
            for k, line in enumerate(lines)
            if line.startswith(f"| *{mark}:* VAE | {vae[0]:.2f} | {vae[1]:.2f} | – |")
        )
        header = next(line for line in lines[place::-1] if line.startswith("| model |"))
        assert lines[place].count("|") == header.count("|")
        assert any(line.startswith("| VFG, encoding edge | ") for line in lines[place - 20 : place])


def test_merged_results_are_not_said_to_come_from_one_command():
    machine = {"gpu": "G", "cores": 2, "torch": "2"}
    found = {"command": "python -m x --draws 5", "machine": machine, "seconds": 3.0}
    assert provenance(found) == "`python -m x --draws 5`: G, torch 2, 3 s."
    said = provenance(found | {"merged": True})
    assert said == "Merged from runs of `python -m x`: G, torch 2, 3 s."


def test_variants_without_a_result_are_named():
    found = json.loads((FOLDER / "image_ablation.json").read_text())
    said = images.image_ablation(dict(found))
    assert "Not measured: Normal prior, no hidden inputs, no average of weights, deeper" in said
    found["variants"].pop("no dropout")
    assert "no dropout, no hidden inputs" in images.image_ablation(dict(found))
