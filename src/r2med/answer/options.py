"""Options of multiple-choice questions, and which of them an answer chooses.

Models answer "C", "The answer is (C).", "**C) Botulism**", "Botulism" or a paragraph that weighs
all options. The strongest wording decides, and among equal ones the last, since models correct
themselves. A text that leaves two options open chooses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: An option at the start of a line: "A. text", "(A) text", "A) text", "A: text".
_LINE_OPTION = re.compile(r"^[ \t]*[(\[]?([A-J])[.):\]]+[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)
#: Options within a line need parentheses: "(A) text (B) text".
_INLINE_OPTION = re.compile(r"[(\[]([A-J])[)\]][ \t]*(.*?)(?=\s*[(\[][A-J][)\]]|\n|$)")

_OPENING = r"[\s\"'“‘*_`$({\[<]*"
_LETTER = r"(?:\\(?:text|mathrm|mathbf|textbf)\{)?([A-Ja-j])(?![A-Za-z0-9'’]|-[A-Za-z])"
_CAPITAL = r"(?:\\(?:text|mathrm|mathbf|textbf)\{)?([A-J])(?![A-Za-z0-9'’]|-[A-Za-z])"
_OPTION_WORD = r"(?:(?:option|choice|letter|answer|alternative)\s*)?"
_CHOICE_NOUN = (
    r"(?:answer|choice|option|response|diagnosis|selection|pick|solution|conclusion|step)"
)
_RIGHT = r"(?:correct|right|best|most\s+(?:likely|appropriate|suitable)|final|chosen|selected)"

#: Wordings that name the chosen letter, strongest first.
_WORDINGS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (rf"\\boxed\{{{_OPENING}{_LETTER}", re.IGNORECASE),
        (rf"<answer>{_OPENING}{_OPTION_WORD}{_OPENING}{_LETTER}", re.IGNORECASE),
        (
            rf"\"?\b(?:final[ _]|correct[ _]|exact[ _]|best[ _])?{_CHOICE_NOUN}\"?[*_]*\s*"
            rf"(?::|=|->|→)[*_:]*{_OPENING}{_OPTION_WORD}{_OPENING}{_LETTER}",
            re.IGNORECASE,
        ),
        (
            rf"\b{_CHOICE_NOUN}(?:\s+(?:here|to\s+this(?:\s+question)?|would|must|should|"
            rf"therefore|thus|then|in\s+this\s+case))*\s+(?:is|be|was|appears\s+to\s+be|"
            rf"seems\s+to\s+be)\s*:?(?:\s+(?:therefore|thus|clearly|definitely|most\s+likely|"
            rf"probably|indeed|simply))*{_OPENING}{_OPTION_WORD}{_OPENING}{_LETTER}",
            re.IGNORECASE,
        ),
        (rf"\bnot\s+{_OPENING}[A-J]\W{{1,3}}but\s+(?:rather\s+)?{_OPENING}{_CAPITAL}", 0),
        (
            rf"(?i:\b(?:choose|chose|select|pick|picked|selected|go(?:ing)?\s+(?:with|for)|"
            rf"opt\s+for|settle\s+on|favou?r|vote\s+for|lean\s+towards?))"
            rf"{_OPENING}(?i:{_OPTION_WORD}){_OPENING}{_CAPITAL}",
            0,
        ),
        (
            rf"(?<![A-Za-z'’]){_CAPITAL}[\s\"'”’*_`)\].:]*(?:[^.\n]{{0,80}}?)\b"
            rf"(?:is|was|would\s+be|must\s+be|remains|seems|appears)\s+(?:clearly\s+|therefore\s+|"
            rf"thus\s+|probably\s+)?(?:the\s+)?(?:only\s+|single\s+)?{_RIGHT}\b",
            0,
        ),
        (rf"\b(?:option|choice|letter|alternative){_OPENING}{_CAPITAL}", re.IGNORECASE),
        (r"[(\[]([A-J])[)\]]", 0),
        (r"\*\*([A-J])[.):]?\b", 0),
        (r"(?:^|\n)\s*([A-J])[.):](?=\s|$)", 0),
    )
)
#: Statements of the choice; weaker wordings that mention it; mentions without any verb.
_STATEMENTS, _MENTIONS, _BARE_MENTIONS = _WORDINGS[:5], _WORDINGS[5:], _WORDINGS[7:]
_WHOLE = re.compile(
    rf"{_OPENING}{_OPTION_WORD}{_OPENING}{_LETTER}[\s\"'”’*_`$)}}\].:,!]*", re.IGNORECASE
)
_LEADING = re.compile(rf"{_OPENING}{_CAPITAL}[\s\"'”’*_`$)}}\]]*[.):,\n–—-]")
_ALTERNATIVE = re.compile(
    r"[\s\"'”’*_`)}\].]*(?:,|/|or|and|&)\s*(?:option\s*)?[\"'“‘*_`({\[]*([A-J])(?![A-Za-z'’])"
)
_NEGATION = re.compile(
    r"\b(?:not|n't|never|neither|nor|rule[sd]?\s+out|excludes?|excluded|eliminate[sd]?|reject(?:s|ed)?|"
    r"incorrect|wrong|unlikely)\b(?:(?!\bbut\b)[^.\n]){0,12}$",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"[\s\"'”’*_`)\].:]*(?:[^.\n,;]{0,40}?)\b(?:is|are|was|can\s+be)\s+(?:not|n't|incorrect|wrong|unlikely|"
    r"excluded|ruled\s+out|eliminated|less\s+likely)\b",
    re.IGNORECASE,
)


def find_options(question: str) -> dict[str, str]:
    """Return the options that a question lists, by letter; empty for an open question."""
    for pattern in (_LINE_OPTION, _INLINE_OPTION):
        options = {match[1]: match[2].strip(" \t;,.") for match in pattern.finditer(question)}
        letters = [chr(ord("A") + index) for index in range(len(options))]
        if len(options) >= 2 and sorted(options) == letters and all(options.values()):
            return options
    return {}


def reference_option(reference: str, options: Mapping[str, str]) -> str | None:
    """Return the letter of the right option; the reference may be its letter or its text."""
    if not options:
        return None
    only_letter = _WHOLE.fullmatch(reference.strip())
    if only_letter and only_letter[1].upper() in options:
        return only_letter[1].upper()
    leading = _LEADING.match(reference.strip())
    if leading and leading[1] in options:
        return leading[1]
    by_text = [letter for letter, text in options.items() if _plain(text) == _plain(reference)]
    return by_text[0] if len(by_text) == 1 else None


def read_option(text: str, options: Mapping[str, str]) -> str | None:
    """Return the letter of the option that a text chooses; None if it chooses none or several."""
    if not options:
        return None
    spoken = re.sub(r".*</think(?:ing)?>", "", text, flags=re.DOTALL | re.IGNORECASE).strip()
    only_letter = _WHOLE.fullmatch(spoken)
    if only_letter:
        return _known(only_letter[1], options)
    for wording in _STATEMENTS:
        letter, is_decided = _last_choice(wording, spoken, options)
        if is_decided:
            return letter
    leading = _LEADING.match(spoken)
    if leading and leading[1] in options and not _is_list(spoken, options):
        return None if _names_alternative(spoken, leading.end(1)) else leading[1]
    by_text = _option_of_text(spoken.splitlines()[0] if spoken else "", options)
    if by_text:
        return by_text
    for wording in _MENTIONS:
        letter, is_decided = _last_choice(wording, spoken, options)
        if is_decided:
            return letter
    return _option_of_text(spoken, options)


def _last_choice(
    wording: re.Pattern[str], text: str, options: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Return the letter in the last match of a wording, and whether the match is decisive."""
    matches = [match for match in wording.finditer(text) if _is_chosen(match, text, options)]
    if not matches:
        return None, False
    if wording in _BARE_MENTIONS and len({match[1].upper() for match in matches}) > 1:
        return None, False  # the text goes through several options
    last = matches[-1]
    if _names_alternative(text, last.end(1)):
        return None, True
    return last[1].upper(), True


def _is_chosen(match: re.Match[str], text: str, options: Mapping[str, str]) -> bool:
    if match[1].upper() not in options:
        return False
    if match[1].islower() and re.match(r"\s+[a-z]", text[match.end(1) :]):
        return False  # "the answer is a mixture ...": an article
    if match[1] == "A" and re.match(r"\s+[a-z]{3,}", text[match.end(1) :]) and _is_article(match):
        return False
    return not _NEGATION.search(text[: match.start(1)]) and not _DENIAL.match(text[match.end(1) :])


def _is_article(match: re.Match[str]) -> bool:
    """Whether a matched "A" may be the article: the match has no word such as "option"."""
    return match[0].rstrip().endswith(" A") and "ption" not in match[0] and "hoice" not in match[0]


def _names_alternative(text: str, end: int) -> bool:
    return bool(_ALTERNATIVE.match(text[end:]))


def _is_list(text: str, options: Mapping[str, str]) -> bool:
    """Whether a text goes through the options one by one."""
    return len({letter for letter in _line_letters(text) if letter in options}) > 1


def _line_letters(text: str) -> Iterator[str]:
    for line in text.splitlines():
        leading = _LEADING.match(line.strip())
        if leading:
            yield leading[1]


def _option_of_text(text: str, options: Mapping[str, str]) -> str | None:
    """Return the letter of the only option whose wording is in a text, else None.

    An option that is part of a longer option in the text does not count.
    """
    plain_text = f" {_plain(text)} "
    present = {
        letter: _plain(option)
        for letter, option in options.items()
        if _plain(option) and f" {_plain(option)} " in plain_text
    }
    longest = [
        letter
        for letter, option in present.items()
        if not any(option != longer and option in longer for longer in present.values())
    ]
    return longest[0] if len(longest) == 1 else None


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s%+<>./-]", " ", text.lower()).replace(". ", " ").split()).rstrip(
        "."
    )


def _known(letter: str, options: Mapping[str, str]) -> str | None:
    return letter.upper() if letter.upper() in options else None
