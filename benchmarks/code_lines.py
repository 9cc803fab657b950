"""Code lines by folder of the package: lines with a token that is no comment, without those of docstrings.

Run it as `python benchmarks/code_lines.py`.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "provision"
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """Return how many lines of a source hold code."""
    code = {
        number
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                code -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(code)


def main() -> None:
    """Print the lines of every folder, the largest first."""
    lines: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        lines[file.relative_to(PACKAGE).parts[0]] += code_lines(file.read_text())
    for name, count in lines.most_common():
        print(f"{count:6}  {name}")
    print(f"{lines.total():6}")


if __name__ == "__main__":
    main()
