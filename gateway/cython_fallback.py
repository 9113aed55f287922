"""A stand-in for the ``cython`` module: every name does nothing.

The compiled modules are written in Cython's pure-Python mode, so the same files run interpreted
where Cython is not installed. They then import this module instead, which also gives mypy the
types (Cython 3.3 ships no stubs that mypy reads): to a type checker and to the interpreter a C
integer is an ``int``. Nothing here may cost anything after import.

Cython itself resolves these names when it compiles a file and never imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False
"""True only inside a compiled module, where Cython puts a constant in its place."""

# Types. Widths are those of the C types on the platforms we build for (LP64).

char = int
uchar = int
schar = int
short = int
ushort = int
int = int
uint = int
long = int
ulong = int
longlong = int
ulonglong = int
Py_ssize_t = int
Py_hash_t = int
size_t = int
double = float
float = float
bint = bool
void = None
# A pointer stands for whatever the interpreted branch indexes in its place.
p_char = Any
p_uchar = Any
p_uint = Any
p_const_char = Any
p_const_uchar = Any
p_const_uint = Any


# Decorators without arguments.


def cclass(cls: type[_T]) -> type[_T]:
    """An extension type: its attributes are C struct members, invisible to Python by default."""
    return cls


def cfunc(function: _T) -> _T:
    """A C function, callable from the same module only."""
    return function


def ccall(function: _T) -> _T:
    """A C function with a Python wrapper (``cpdef``)."""
    return function


def inline(function: _T) -> _T:
    """A hint to the C compiler."""
    return function


def final(item: _T) -> _T:
    """A class or method that is not overridden, so calls need no look-up."""
    return item


def nogil(function: _T) -> _T:
    """A C function that may run without the GIL."""
    return function


def internal(cls: type[_T]) -> type[_T]:
    """An extension type that its module does not export."""
    return cls


def no_gc(cls: type[_T]) -> type[_T]:
    """An extension type that can't take part in a reference cycle."""
    return cls


# Decorators with arguments.


def _directive(_value: Any = True) -> Callable[[_T], _T]:
    def decorate(item: _T) -> _T:
        return item

    return decorate


boundscheck = _directive
wraparound = _directive
cdivision = _directive
initializedcheck = _directive
nonecheck = _directive
overflowcheck = _directive
infer_types = _directive
annotation_typing = _directive
freelist = _directive
auto_pickle = _directive
binding = _directive
embedsignature = _directive
always_allow_keywords = _directive
profile = _directive
linetrace = _directive


def locals(**_types: Any) -> Callable[[_T], _T]:
    """The types of local variables and arguments."""
    return _directive()


def returns(_type: Any) -> Callable[[_T], _T]:
    """The C type a function returns."""
    return _directive()


def exceptval(_value: Any = None, *, check: bool = True) -> Callable[[_T], _T]:
    """How a C function reports an exception."""
    return _directive()


# Functions.


def declare(_type: Any = None, _value: Any = None, *, visibility: str = "private") -> Any:
    """The type of a variable, or of an attribute of an extension type and who sees it."""
    return _value


def cast(_type: Any, value: Any, *, typecheck: bool = False) -> Any:
    """``value`` as another type."""
    return value


def likely(condition: _T) -> _T:
    """A hint to the C compiler: mostly true."""
    return condition


def unlikely(condition: _T) -> _T:
    """A hint to the C compiler: mostly false."""
    return condition
