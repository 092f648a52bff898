"""Jit: how every kernel is compiled: strict arithmetic, no GIL, its machine code kept by kept.py."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from penstock.loader.compiled.kept import Kept

Function = TypeVar("Function", bound=Callable[..., Any])
KERNELS: list[Any] = []  # all that were made; warming.py calls each
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}  # no fastmath: the plain code must agree


def jit(function: Function) -> Function:
    """A kernel: Python calls it."""
    made = _Kernel(function, targetoptions={"nopython": True, "boundscheck": None, **_OPTIONS})
    made._cache = Kept(function)
    KERNELS.append(made)
    return cast(Function, made)


def jit_part(function: Function) -> Function:
    """A part of kernels, compiled into each: only they call it. Called from Python, it is the plain function."""
    return _part(function, forceinline=False)


def jit_inline(function: Function) -> Function:
    """A part that is never called but copied: a call would copy the forty numbers of tables, plan and scratch."""
    return _part(function, forceinline=True)


def _part(function: Function, forceinline: bool) -> Function:
    options = {**_PART_OPTIONS, "forceinline": forceinline}
    return cast(Function, _Part(function, targetoptions=options, pipeline_class=_PartCompiler))


_PART_OPTIONS = {"nopython": True, "boundscheck": None, "no_cpython_wrapper": True, **_OPTIONS}


class _Kernel(CPUDispatcher):  # type: ignore[misc, no-any-unimported]
    """A function that Python calls, without the extensions of other packages while nothing is compiled."""

    def _compilation_chain_init_hook(self) -> None:
        """Nothing: numba imports its extensions here, though the machine code may be kept. Compiling does so too."""


class _Intermediate(JITCodeLibrary):  # type: ignore[misc, no-any-unimported]
    """LLVM code of a part, to be linked into kernels: optimized there, and machine code only there."""

    def _optimize_final_module(self) -> None:
        """Nothing."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        """None: Python cannot call a part."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """Receiver of `set_env`."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: only code with objects of Python needs one. In a part it ends with "missing Environment"."""


class _PartCompiler(Compiler):  # type: ignore[misc, no-any-unimported]
    """A compiler that stops before machine code."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = _Intermediate(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)


class _Part(CPUDispatcher):  # type: ignore[misc, no-any-unimported]
    """A function without the code that lets Python call it: a third of what there would be to compile."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    def get_call_template(self, arguments: Any, keywords: Any) -> Any:
        """Compiled once for whole numbers, not again for each constant that it is called with."""
        return super().get_call_template(tuple(map(types.unliteral, arguments)), keywords)


@intrinsic  # type: ignore[untyped-decorator]
def keep_apart(typing_context: Any) -> Any:  # noqa: ARG001
    """Called in a part: it stays a function of its own. For what is rarely run, and would be copied many times."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate
