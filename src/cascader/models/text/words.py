"""Words that two texts share, to show people what a language model may have seen in them."""

import re

#: Letters only: numbers and ids are shared by chance.
_WORD = re.compile(r"[^\W\d_]{3,}")
#: English words that say nothing by themselves; shorter ones are no words here.
_STOP_WORDS = frozenset(
    _WORD.findall(
        """
    about above after again against all also although among and another any are around because been before being below
    between both but can cannot could did does doing down during each either etc especially few for from further had
    has have having her here hers herself him himself his how however including into its itself just least less made
    make many may might more most much must near neither nor not now off often once one only onto other others our out
    over own part per same several shall she should since some something somewhat such than that the their them then
    there these they thing things this those through thus too toward towards two under until upon usually used various
    very was well were what when where whether which while who whom whose why will with within without would yet you
    your
    """
    )
)


def shared_words(text: str, other: str, without: str = "") -> list[str]:
    """Return the content words that two texts share, in the order of the first; those of a third are left out.

    >>> shared_words("aspirin: a drug against pain", "pain: what a drug relieves", without="treats pain")
    ['drug']
    """
    shared = set(_words(other)) - set(_words(without)) - _STOP_WORDS
    return [word for word in dict.fromkeys(_words(text)) if word in shared]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
