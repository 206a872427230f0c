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
    head: str  # up to the "{", in which each parameter has a name


def tokens(text: str, lua: bool = False) -> list[Token]:
    return [
        Token(found[0].strip(), found.start(), found.end(), found["directive"] is not None)
        for found in (LUA_TOKEN if lua else C_TOKEN).finditer(text)
        if found["skip"] is None
    ]


def is_unnamed(words: list[str]) -> bool:
    """These are a type and nothing else."""
    plain = [word for word in words if word != "const"]
    return words[-1] == "*" or len(plain) == 1 or (len(plain) == 2 and plain[0] in ("struct", "enum", "union"))


def parameter(words: list[str]) -> str:
    """The name of this parameter: the last word before what says that it is an array or a function."""
    if "(" in words:
        inner = words[words.index("(") + 1 :]
        return next(word for word in inner if WORD.match(word))
    if "[" in words:
        words = words[: words.index("[")]
    return words[-1]


def parameters(between: list[Token]) -> tuple[list[str], list[int]]:
    """Their names, and where one is missing; it is "unused" and a number."""
    groups: list[list[Token]] = [[]]
    depth = 0
    for token in between:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            groups.append([])
        else:
            groups[-1].append(token)
    names: list[str] = []
    missing: list[int] = []
    for group in groups:
        words = [token.text for token in group]
        if words in ([], ["void"]):
            continue
        if is_unnamed(words):
            missing.append(group[-1].end)
            names.append(f"unused{len(missing)}")
        else:
            names.append(parameter(words))
    return names, missing


def with_names(text: str, start: int, end: int, missing: list[int]) -> str:
    for number in range(len(missing), 0, -1):
        at = missing[number - 1]
        text = f"{text[:at]} unused{number}{text[at:]}"
        end += len(f" unused{number}")
    return text[start:end]


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
                between = found[opened + 1 : closed]
                name = found[opened - 1].text
                known = [t for t in between if t.text != "..."]
                names, missing = parameters(known)
                start, end = found[first].start, found[body].start
                head = with_names(text, start, end, missing)
                yield Function(name, start, end, token.end, names, known != between, head)
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
