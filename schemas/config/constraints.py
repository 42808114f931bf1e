"""Constraints between hyperparameters: one comparison written as in Python, such as `net.width * net.layers <= 4096`.

The language has names (dotted paths), numbers, strings, booleans, lists, `+ - * / // %`, comparisons, `and`, `or`, `not`, `in`,
and the functions abs, min and max. Nothing else of Python is accepted: no attributes of objects, no other calls, no power (its
result may be endless).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

CHARACTERS_MAX = 500
"""Most characters of a constraint: more than any that a person would read."""
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}
_WHOLE_MAX = 10**18
"""Whole numbers beyond this become floating point, so that no product grows without bound."""


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[ast.expr, frozenset[str]]:
    """The expression and the paths it names. Raises ValueError with a sentence for the user."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"is longer than {CHARACTERS_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"is not an expression ({getattr(error, 'msg', error)}): {text}") from None
    names: set[str] = set()
    _check(tree, names, text)
    if not names:
        raise ValueError(f"names no hyperparameter: {text}")
    return tree, frozenset(names)


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """True if the constraint holds for these hyperparameters (by dotted path). A constraint on a hyperparameter that is not in
    use (see `when`) holds; one whose values do not fit together (text < number, a division by zero) does not."""
    tree, names = parse(text)
    if not names <= values.keys():
        return True
    try:
        return bool(_value(tree, values))
    except (TypeError, ArithmeticError, ValueError):
        return False


def _check(node: ast.expr, names: set[str], text: str) -> None:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name() | ast.Attribute():
            names.add(_path(node, text))
            return
        case ast.List() | ast.Tuple():
            children: list[ast.expr] = node.elts
        case ast.BoolOp():
            children = node.values
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            children = [node.operand]
        case ast.BinOp() if type(node.op) in _BINARY:
            children = [node.left, node.right]
        case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
            children = [node.left, *node.comparators]
        case ast.Call(func=ast.Name(id=function), keywords=[]) if function in _FUNCTIONS and node.args:
            children = node.args
        case _:
            part = ast.unparse(node)
            raise ValueError(
                f"has `{part}`, which is not understood: use names, numbers, + - * / // %, comparisons, and, or, not, in,"
                " abs, min and max"
            )
    for child in children:
        _check(child, names, text)


def _path(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, text)}.{node.attr}"
    raise ValueError(f"has a dot behind something that is no name: {text}")


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() | ast.Attribute():
            return values[_path(node, "")]
        case ast.List() | ast.Tuple():
            return [_value(item, values) for item in node.elts]
        case ast.BoolOp(op=ast.And()):
            return all(_value(item, values) for item in node.values)
        case ast.BoolOp():
            return any(_value(item, values) for item in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, values)
        case ast.UnaryOp():
            return -_value(node.operand, values)
        case ast.BinOp():
            return _bounded(_BINARY[type(node.op)](_number(node.left, values), _number(node.right, values)))
        case ast.Compare():
            left = _value(node.left, values)
            for operation, right_node in zip(node.ops, node.comparators, strict=True):
                right = _value(right_node, values)
                if not _COMPARISONS[type(operation)](left, right):
                    return False
                left = right
            return True
        case ast.Call(func=ast.Name(id=function)):
            return _FUNCTIONS[function](*(_value(item, values) for item in node.args))
    raise AssertionError("parse() lets nothing else through")


def _number(node: ast.expr, values: Mapping[str, Any]) -> Any:
    value = _value(node, values)
    if not isinstance(value, (int, float)):
        raise TypeError("only numbers can be calculated with")
    return value


def _bounded(value: Any) -> Any:
    return float(value) if isinstance(value, int) and abs(value) > _WHOLE_MAX else value
