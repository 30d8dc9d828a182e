"""The stubs declare the methods of the module, with the same parameters."""

import ast
import inspect
from pathlib import Path

import tradewind

tree = ast.parse(Path(tradewind.__file__).with_suffix(".pyi").read_text())
classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def parameters(node):
    return [argument.arg for argument in node.args.args]


for name in ("Communicator", "Neighbors", "Request", "Persistent", "Status"):
    declared = {node.name: node for node in classes[name].body if isinstance(node, ast.FunctionDef)}
    own = vars(getattr(tradewind, name))
    public = {one for one in own if not one.startswith("_") or one == "__await__"}
    assert public == set(declared), f"{name}: {public ^ set(declared)}"
    for method, node in declared.items():
        value = own[method]
        assert value.__doc__ or method == "__await__", f"{name}.{method} has no documentation"
        if inspect.isroutine(value):
            found = list(inspect.signature(value).parameters)
            assert found == parameters(node), f"{name}.{method}: {found}, {parameters(node)}"

for name, node in functions.items():
    found = list(inspect.signature(getattr(tradewind, name)).parameters)
    assert found == parameters(node), f"{name}: {found}, {parameters(node)}"
names = {target.id for node in tree.body if isinstance(node, ast.AnnAssign) for target in [node.target]}
names |= {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
missing = set(tradewind.__all__) - names - set(classes) - set(functions)
assert not missing, missing
print("all is right")
