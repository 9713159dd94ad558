"""Python files as trees, each parsed and walked once for all rules that look at it."""

import ast
from functools import cache
from pathlib import Path

Tree = ast.Module


@cache
def parsed(path: Path) -> Tree:
    return ast.parse(path.read_text())


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))
