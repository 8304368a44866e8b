"""The shape of the code: functions that fit on a screen, and arguments that say what they take."""

import ast
from pathlib import Path

import pytest

import unibio

PACKAGE = Path(unibio.__file__).parent
LINES, BRANCHES, ANYTHING = 60, 12, 60
BRANCHING = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension)


def functions():
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node, text.splitlines()


def lines_of_code(node, text):
    """Without the docstring, comments and blank lines."""
    lines = set(range(node.lineno, node.end_lineno + 1))
    if ast.get_docstring(node) is not None:
        lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return sum(bool(text[line - 1].strip()) and not text[line - 1].strip().startswith("#") for line in lines)


def branches(node):
    return sum(isinstance(inner, BRANCHING) for inner in ast.walk(node))


def arguments(node):
    named = node.args
    return [*named.posonlyargs, *named.args, *named.kwonlyargs, *filter(None, (named.vararg, named.kwarg))]


def test_functions_fit_on_a_screen():
    assert [name for name, node, text in functions() if lines_of_code(node, text) > LINES] == []


def test_functions_have_few_branches():
    assert [name for name, node, _ in functions() if branches(node) > BRANCHES] == []


def test_arguments_say_what_they_take():
    """`Any` stands where anything goes: a value that is about to be checked, say."""
    anything = [
        f"{name}({argument.arg})"
        for name, node, _ in functions()
        for argument in arguments(node)
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Any"
    ]
    assert len(anything) <= ANYTHING, anything


@pytest.mark.parametrize(("code", "count"), [("def f(a):\n    '''Says.'''\n\n    # so\n    return a if a else 0\n", 2)])
def test_the_counting_counts(code, count):
    node = ast.parse(code).body[0]
    assert lines_of_code(node, code.splitlines()) == count
    assert branches(node) == 1
