"""Similarity: exact to the last decimal whatever the order of summation."""

import numpy as np
import pytest

from finevolve_pipeline.mechanisms.similarity import SimilarityIndex, most_similar_first


def units(count, dimensions, seed=0):
    made = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.mark.parametrize("dimensions", [16, 1024, 4096])
def test_a_vector_is_exactly_as_similar_to_itself_as_can_be(dimensions):
    index = SimilarityIndex(dimensions)
    vectors = units(40, dimensions)
    for vector in vectors:
        index.add(vector)
    assert len(index) == 40
    for position, vector in enumerate(vectors):
        assert index.similarities(vector)[position] == 1.0


@pytest.mark.parametrize("dimensions", [16, 512, 4096])
def test_similarities_are_cosines_to_six_decimals(dimensions):
    index, vectors = SimilarityIndex(dimensions), units(60, dimensions, seed=1)
    for vector in vectors:
        index.add(vector)
    query = units(1, dimensions, seed=2)[0]
    exact = vectors.astype(np.float64) @ query.astype(np.float64)
    assert index.similarities(query) == pytest.approx(exact, abs=7e-7)


def test_news_that_is_all_alike_is_told_apart():
    # Learned vectors of long texts lie close together: here their cosines differ in the fifth decimal.
    common, index = units(1, 4096)[0], SimilarityIndex(4096)
    near = [common + np.float32(0.001 * step) * units(1, 4096, seed=step)[0] for step in range(1, 9)]
    for vector in near:
        index.add(vector / np.linalg.norm(vector))
    assert list(most_similar_first(index.similarities(common))) == list(range(8))


def test_the_largest_possible_sums_are_exact_in_any_order():
    one = np.zeros(4096, dtype=np.float32)
    one[0] = np.float32(1.0000001)
    even = np.full(4096, np.float32(1 / 64))
    index = SimilarityIndex(4096)
    for vector in (one, even):
        index.add(vector)
    assert list(index.similarities(one)) == [1.0, 0.015625]
    assert list(index.similarities(even)) == [0.015625, 1.0]


def test_the_order_of_summation_changes_no_bit():
    vectors, query = units(50, 1024, seed=3), units(1, 1024, seed=4)[0]
    shuffled = np.random.default_rng(5).permutation(1024)
    plain, mixed = SimilarityIndex(1024), SimilarityIndex(1024)
    for vector in vectors:
        plain.add(vector)
        mixed.add(vector[shuffled])
    assert plain.similarities(query).tobytes() == mixed.similarities(query[shuffled]).tobytes()
    assert len(set(plain.similarities(query))) == 50


def test_the_number_of_memories_changes_no_bit_of_an_earlier_one():
    vectors, query = units(100, 256, seed=6), units(1, 256, seed=7)[0]
    index = SimilarityIndex(256)
    first = []
    for vector in vectors:
        index.add(vector)
        first.append(index.similarities(query)[0])
    assert len(set(first)) == 1


def test_a_zero_vector_is_similar_to_nothing():
    index = SimilarityIndex(16)
    index.add(np.zeros(16, dtype=np.float32))
    index.add(units(1, 16)[0])
    assert list(index.similarities(units(1, 16)[0])) == [0.0, 1.0]
    assert list(index.similarities(np.zeros(16, dtype=np.float32))) == [0.0, 0.0]


def test_an_empty_index_answers_with_nothing():
    assert len(SimilarityIndex(16).similarities(units(1, 16)[0])) == 0


def test_positions_come_most_similar_first_and_newest_among_equals():
    assert list(most_similar_first(np.array([0.2, 0.9, 0.2, 0.9, 0.5]))) == [3, 1, 4, 2, 0]
