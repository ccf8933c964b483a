"""All small edits of a source that somebody could make by mistake, and a choice among them that a seed fixes.

An edit is named by its function, the line it stands in, and what it does: no line number is in it. The choice goes by a hash
of seed and name. So it is the same tomorrow, and a change elsewhere in a file leaves it as it is.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What stands for what. A comparison has two: its boundary moves, or it is turned round.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}  # functions and methods
SEQUENCES = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)  # + joins them: a minus would only be a TypeError
OUTPUT_ONLY = ("__repr__", "__str__")


@dataclass(frozen=True)
class Edit:
    file: str  # below mini_engine
    kind: str
    line: int  # of what is replaced; the tests that execute it are asked
    lines: int  # all of its lines, and the first of its statement: a bit for each
    start: int  # in bytes, what is replaced
    end: int
    new: str
    name: str  # the same as long as the line is

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def edits(file: str, source: str) -> list[Edit]:
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[Edit] = []
    seen: Counter[str] = Counter()
    for node, where, statement, kind, new in _changes(ast.parse(source)):
        last_line, last_column = node.end_lineno or 0, node.end_col_offset or 0
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[last_line - 1] + last_column
        old = source.encode()[start:end].decode()
        text = lines[node.lineno - 1].decode().strip()
        name = f"{file} {where}: {text}  |  {_short(old)} -> {_short(new)}"
        seen[name] += 1
        name += f" (no. {seen[name]})" if seen[name] > 1 else ""
        bits = sum(1 << line for line in {statement.lineno, *range(node.lineno, last_line + 1)})
        found.append(Edit(file, kind, node.lineno, bits, start, end, new, name))
    return found


def chosen(package: Path, names: list[str], count: int, seed: int) -> list[Edit]:
    """`count` edits of each of these packages, in the order of the files; no two of them in one line."""
    result = []
    for name in names:
        files = [path for path in sorted((package / name).glob("*.py")) if path.name != "__init__.py"]
        found = [edit for path in files for edit in edits(f"{name}/{path.name}", path.read_text(encoding="utf-8"))]
        found.sort(key=lambda edit: hashlib.sha256(f"{seed} {edit.name}".encode()).digest())
        taken: dict[tuple[str, int], Edit] = {}
        for edit in found:
            if len(taken) < count:
                taken.setdefault((edit.file, edit.line), edit)
        result += sorted(taken.values(), key=lambda edit: (edit.file, edit.line))
    return result


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:40]} ... {text[-15:]}"


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, ast.stmt, str, str]]:
    """(what is replaced, the function and the statement it stands in, the kind of change, the new text)."""

    def visit(node: ast.AST, where: str, statement: ast.AST) -> Iterator[Any]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in OUTPUT_ONLY:
                return
            where = f"{where}.{node.name}".lstrip(".")
        statement = node if isinstance(node, ast.stmt) else statement
        for kind, new in _wrong(node):
            yield node, where, statement, kind, new
        for child in _followed(node):
            yield from visit(child, where, statement)

    yield from visit(tree, "", tree)


def _followed(node: ast.AST) -> Iterator[ast.AST]:
    """The children, without texts, annotations, decorators, and what makes up an error."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or (
            isinstance(node, ast.Assert) and name == "msg"
        ):
            continue
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _wrong(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The wrong versions of this node itself: (kind, text)."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield "comparison", _changed(node, ops=[*ops[:i], other(), *ops[i + 1 :]])
        case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC and not _is_text(left) | _is_text(
            right
        ):
            yield "arithmetic", _changed(node, op=ARITHMETIC[type(op)]())
        case ast.AugAssign(op=op, value=value):
            if type(op) in ARITHMETIC and not _is_text(value):
                yield "arithmetic", ast.unparse(_replace(node, op=ARITHMETIC[type(op)]()))
            yield "removed statement", "pass"
        case ast.BoolOp(op=op):
            yield "and, or, not", _changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "and, or, not", _text(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "arithmetic", _text(operand)
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", str(value + 1)
        case ast.Call(func=ast.Name(id=name) as function) if name in TWINS:
            yield "min, max, any, all", _changed(node, func=_replace(function, id=TWINS[name]))
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in TWINS:
            yield "min, max, any, all", _changed(node, func=_replace(function, attr=TWINS[name]))
        case ast.Call(func=ast.Name(id="range"), args=args):
            i = 0 if len(args) == 1 else 1
            for step in (ast.Add(), ast.Sub()):
                wrong = ast.BinOp(args[i], step, ast.Constant(1))
                yield "range, slice", _changed(node, args=[*args[:i], wrong, *args[i + 1 :]])
        case ast.Slice():
            for bound in ("lower", "upper"):
                if (old := getattr(node, bound)) is not None:
                    wrong = ast.BinOp(old, ast.Add(), ast.Constant(1))
                    yield "range, slice", ast.unparse(_replace(node, **{bound: wrong}))
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "returns None", "return None"
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield "removed statement", "pass"
        case ast.Assign(targets=targets) if all(
            isinstance(target, ast.Attribute | ast.Subscript) for target in targets
        ):
            yield "removed statement", "pass"
        case ast.Raise() | ast.Delete() | ast.Break() | ast.Continue():
            yield "removed statement", "pass"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, SEQUENCES) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _replace(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _changed(node: ast.AST, **fields: object) -> str:
    return _text(_replace(node, **fields))


def _text(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


def named_edit(name: str, file: str, right: str, wrong: str, source: str) -> Edit:
    """The edit that puts `wrong` in the place of `right`, which stands once in `source`."""
    first = source.index(right)
    start = len(source[:first].encode())
    line = source[:first].count("\n") + 1
    bits = sum(1 << (line + i) for i in range(right.count("\n") + 1))
    return Edit(file, "named", line, bits, start, start + len(right.encode()), wrong, name)
