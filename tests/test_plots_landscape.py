"""The picture of a landscape: what each place says, and where the pick is."""

from __future__ import annotations

import numpy as np
import pytest

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.plots import DARK, LIGHT, figure, render
from gemmsim.plots.landscape import landscape_picture, landscape_pictures
from gemmsim.problem import Problem
from gemmsim.search import rank, spaces_of
from gemmsim.search.landscapes import Landscape, landscapes

H200 = device("h200")
FEW = {
    "block_m": (32, 64, 128), "block_n": (64, 96), "block_k": (8,), "thread_m": (4, 8), "thread_n": (8,), "pad_a": (0,),
    "pad_b": (0,),
}  # fmt: skip


@pytest.fixture(scope="module")
def filled():
    spaces = spaces_of(Problem(1000, 800, 500), H200, [kernel("register")], values=FEW)
    maps = landscapes(spaces)
    return rank(spaces, watchers=maps, simulated=0), maps


def test_each_place_says_how_much_slower_it_is(filled):
    found, (blocks, _) = filled
    ax = landscape_picture(figure().subplots(), blocks, found.pick)
    (image,) = ax.get_images()
    ratios = np.asarray(image.get_array())
    assert ratios == pytest.approx(blocks.best_s / blocks.best_s.min())
    assert sorted(text.get_text() for text in ax.texts) == sorted(f"{ratio:.2f}" for ratio in ratios.ravel())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["64", "96"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["32", "64", "128"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Block n", "Block m")


def test_the_ring_is_where_the_pick_is(filled):
    found, (blocks, stages) = filled
    ax = landscape_picture(figure().subplots(), blocks, found.pick)
    (ring,) = [line for line in ax.lines if line.get_gid() == "pick"]
    at = int(ring.get_xdata()[0]), int(ring.get_ydata()[0])
    assert (blocks.xs[at[0]], blocks.ys[at[1]]) == (found.pick.tiling.block_n, found.pick.tiling.block_m)
    # the landscape is of the quick route, the pick was predicted in full
    assert blocks.best_s[at[1], at[0]] <= 1.1 * blocks.best_s.min()
    other = landscape_picture(figure().subplots(), stages, found.pick)
    (ring,) = [line for line in other.lines if line.get_gid() == "pick"]
    (image,) = other.get_images()
    assert np.asarray(image.get_array())[int(ring.get_ydata()[0]), int(ring.get_xdata()[0])] <= 1.1


def test_places_without_a_configuration_stay_empty(filled):
    found, (blocks, _) = filled
    holed = Landscape("block_n", "block_m", found.spaces)
    holed.best_s = blocks.best_s.copy()
    holed.best_s[0, 0] = np.inf  # one place of a row that has another
    holed.best_s[1] = np.inf  # a whole row
    ax = landscape_picture(figure().subplots(), holed, found.pick)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["32", "128"]
    assert len(ax.texts) == 3


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_both_in_one_figure_the_same_every_time(filled, theme):
    found, maps = filled
    both = [landscape_pictures(figure(theme=theme), maps, found.pick, "a title", theme) for _ in range(2)]
    assert both[0].get_suptitle() == "a title"
    assert len([ax for ax in both[0].axes if ax.get_images()]) == 2
    assert render(both[0], "svg") == render(both[1], "svg")
