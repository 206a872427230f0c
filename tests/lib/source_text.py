"""C and Lua as tokens: finds a function by its name, and a text within it, whatever white space and comments are. It is
no parser: what it knows of C is where a function begins and ends. For the mutants (tests/sim, tests/model)."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

C_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
      | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \w[\w.]*
      | -> | \.\.\. | \+\+ | -- | <<=|>>= | [-+*/%&|^=!<>]= | && | \|\| | << | >> | .""",
    re.VERBOSE | re.DOTALL,
)
LUA_TOKEN = re.compile(
    r"""(?P<skip>\s+|--\[\[.*?\]\]|--[^\n]*) | (?P<directive>(?!))
      | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \[\[.*?\]\] | \w+ | \.\.\.? | [=~<>]= | .""",
    re.VERBOSE | re.DOTALL,
)
WORD = re.compile(r"[A-Za-z_]\w*$")


class Token(NamedTuple):
    text: str
    start: int
    end: int
    directive: bool


class Function(NamedTuple):
    name: str
    start: int  # of its first word
    body: int  # of the "{"
    end: int
    parameters: list[str]
    variadic: bool


def tokens(text: str, lua: bool = False) -> list[Token]:
    return [
        Token(found[0].strip(), found.start(), found.end(), found["directive"] is not None)
        for found in (LUA_TOKEN if lua else C_TOKEN).finditer(text)
        if found["skip"] is None
    ]


def parameter(words: list[str]) -> str:
    """The name of this parameter: the last word before what says that it is an array or a function; "" for void."""
    if words == ["void"]:
        return ""
    if "(" in words:
        inner = words[words.index("(") + 1 :]
        return next(word for word in inner if WORD.match(word))
    if "[" in words:
        words = words[: words.index("[")]
    return words[-1]


def parameters(between: list[str]) -> list[str]:
    groups: list[list[str]] = [[]]
    depth = 0
    for word in between:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word, 0)
        if word == "," and depth == 0:
            groups.append([])
        else:
            groups[-1].append(word)
    return [name for group in groups if group and (name := parameter(group))]


def functions(text: str) -> Iterator[Function]:
    """Each function that this C file defines."""
    depth, first, opened, body = 0, 0, 0, None
    found = tokens(text)
    for i, token in enumerate(found):
        if token.directive:
            first = i + 1 if depth == 0 else first
        elif token.text == "{":
            if depth == 0 and i and found[i - 1].text == ")":
                body = i
            depth += 1
        elif token.text == "}":
            depth -= 1
            if depth == 0 and body is not None:
                closed, level = body - 1, 0
                for opened in range(closed, first, -1):
                    level += {")": 1, "(": -1}.get(found[opened].text, 0)
                    if level == 0:
                        break
                between = [t.text for t in found[opened + 1 : closed]]
                name = found[opened - 1].text
                known = [word for word in between if word != "..."]
                yield Function(
                    name, found[first].start, found[body].start, token.end, parameters(known), "..." in between
                )
                body = None
            first = i + 1 if depth == 0 else first
        elif token.text == ";" and depth == 0:
            first = i + 1


def places(text: str, old: str, lua: bool = False) -> list[tuple[int, int]]:
    """Where these tokens stand in the text."""
    whole, wanted = tokens(text, lua), [token.text for token in tokens(old, lua)]
    return [
        (whole[i].start, whole[i + len(wanted) - 1].end)
        for i in range(len(whole) - len(wanted) + 1)
        if whole[i].text == wanted[0] and [t.text for t in whole[i : i + len(wanted)]] == wanted
    ]


def replaced(text: str, old: str, new: str, lua: bool = False) -> str:
    """The text with these tokens, which must stand there once, replaced. ValueError says what is wrong."""
    found = places(text, old, lua)
    if len(found) != 1:
        raise ValueError(f"its text occurs {len(found)} times, expected once")
    start, end = found[0]
    return text[:start] + new + text[end:]


@functools.lru_cache(maxsize=200)
def _functions(text: str) -> list[Function]:
    return list(functions(text))


def function(text: str, name: str) -> Function:
    found = [f for f in _functions(text) if f.name == name]
    if len(found) != 1:
        raise ValueError(f"{len(found)} functions are called {name}, expected one")
    return found[0]
