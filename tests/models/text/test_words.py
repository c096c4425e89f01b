"""Words that two texts share."""

from cascader.models.text.words import shared_words


def test_only_content_words_are_shared_in_the_order_of_the_first_text():
    one, other = "Rhine: a RIVER that runs through the city 1234", "Cologne: the city by that river (1234), rhine"
    assert shared_words(one, other) == ["rhine", "river", "city"]


def test_the_words_of_the_relation_are_left_out():
    assert shared_words("the part of a wheel", "a wheel with a part", without="has the wheel") == []
