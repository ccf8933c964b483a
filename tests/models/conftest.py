"""Small sound folders of every model family, to be damaged."""

from __future__ import annotations

import shutil

import pytest

from tests.models.damage import make_folder
from tests.oracle import FAMILIES, LATENT_FAMILIES


@pytest.fixture(scope="module", params=[*FAMILIES, *LATENT_FAMILIES])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def sound(family, tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("sound"), family)


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "model")
