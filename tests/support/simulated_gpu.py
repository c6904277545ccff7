"""A second device that computes on the CPU and refuses what a GPU refuses, so that tests find such faults without one.

It refuses operations on tensors of two devices, generators of another device, and conversions of its tensors to numpy.
A tensor without dimensions may lie on the CPU, but not where an operation writes, joins or looks up tensors.
Autocast has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

TYPE, CPU = "simulated", torch.device("cpu")
COPIES = {"aten::_to_copy", "aten::copy_", "aten::to", "aten::fill_"}
INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}  # by tensors of any device
STRICT = {f"aten::{name}" for name in ("cat", "stack", "embedding", "gather", "index_select", "scatter", "scatter_add")}


class SimulatedTensor(Tensor):
    """A tensor of the device; its values are a tensor on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> SimulatedTensor:
        """Wrap values."""
        made = Tensor._make_wrapper_subclass(
            cls, values.shape, values.stride(), values.storage_offset(), dtype=values.dtype, device=DEVICE
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute an operation."""
        return compute(operation, *args, **kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Name the values: torch then exchanges parameters in conversions of a module, instead of their memory."""
        return ["values"], None

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, Tensor], context: None, size: Any, stride: Any) -> SimulatedTensor:
        """Return the tensor of the values."""
        return SimulatedTensor(inner["values"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Store the values, as a file that is then loaded to the CPU."""
        return self.values.__reduce_ex__(protocol)

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:  # type: ignore[override]
        """Return a tensor of the same device and dtype unless others are given."""
        return torch.tensor(data, dtype=dtype or self.dtype).to(device or DEVICE)

    def tolist(self) -> Any:
        """Return the values."""
        return self.values.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Show the values."""
        return f"{TYPE}({self.values!r})"

    def numpy(self, *, force: bool = False) -> Any:
        """Raise TypeError, as tensors of a GPU do unless it is forced."""
        if not force:
            raise TypeError("can't convert a tensor of the simulated device to numpy")
        return self.values.numpy(force=True)

    def __array__(self, *others: Any) -> Any:
        """Raise TypeError."""
        return self.numpy()


def compute(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operation on the values of its tensors.

    Raises:
        RuntimeError: The tensors lie on two devices.
    """
    wrappers: dict[int, SimulatedTensor] = {}  # by the identity of their values
    devices: list[torch.device] = []
    on_cpu = False

    def unwrap(given: Any) -> Any:
        nonlocal on_cpu
        if isinstance(given, torch.device):
            devices.append(given)
            return CPU if given.type == TYPE else given
        if isinstance(given, SimulatedTensor):
            wrappers[id(given.values)] = given
            return given.values
        on_cpu |= isinstance(given, Tensor) and (given.dim() > 0 or name in STRICT or id(given) in written)
        return given

    name, arguments = operation._schema.name, operation._schema.arguments
    written = {id(each) for each, argument in zip(args, arguments, strict=False) if argument.is_write}
    written.add(id(kwargs.get("out")))
    inner_args, inner_kwargs = tree_map(unwrap, args), tree_map(unwrap, kwargs)
    is_indexed = name in INDEXED and isinstance(args[0], SimulatedTensor)
    if is_indexed and len(args) > 2:  # values that are written
        is_indexed = isinstance(args[2], SimulatedTensor) or args[2].dim() == 0
    if wrappers and on_cpu and name not in COPIES and not is_indexed:
        raise RuntimeError(f"{name}: expected all tensors to be on the same device")
    found = operation(*inner_args, **inner_kwargs)
    if name == "aten::copy_":
        return args[0]
    if not (devices[0].type == TYPE if devices else wrappers):
        return found

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return wrappers[id(value)] if id(value) in wrappers else SimulatedTensor(value)

    with torch.inference_mode(False):  # a wrapper of an inference tensor could not be a view of another wrapper
        return tree_map(wrap, found)


class Operations(TorchDispatchMode):
    """Operations that make tensors of the device."""

    def __torch_dispatch__(
        self, operation: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute an operation."""
        return compute(operation, *args, **kwargs or {})


class Functions(TorchFunctionMode):
    """Functions with a generator, and `torch.tensor`, which would write into the device's memory."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Make a tensor of constants on the CPU first, and compare the generator's device with the result's."""
        kwargs = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or CPU).type == TYPE:
            return function(*args, **{**kwargs, "device": CPU}).to(DEVICE)
        found, generator = function(*args, **kwargs), kwargs.get("generator")
        if generator is not None and isinstance(found, SimulatedTensor) != getattr(generator, "is_simulated", False):
            raise RuntimeError(f"{function.__name__}: expected a generator of the tensor's device")
        return found


class Generator(torch.Generator):
    """A generator of either device; it computes on the CPU."""

    is_simulated: bool

    def __new__(cls, device: Any = CPU) -> Generator:
        """Make one."""
        made = super().__new__(cls, CPU)
        made.is_simulated = torch.device(device).type == TYPE
        return made


class Backend(backend_registration._DummyBackendModule):
    """Device module that torch requires."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the dtypes of autocast."""
        return [torch.bfloat16]

    def is_available(self) -> bool:
        """Return False, so that nothing chooses this device unless a test names it."""
        return False


class Hooks(backend_registration._DummyPrivateUse1Hook):
    """Device hooks that torch requires."""

    def is_available(self) -> bool:
        """Return False, as `Backend`."""
        return False


backend_registration._setup_privateuseone_for_python_backend(TYPE, Backend(), Hooks())
DEVICE = torch.device(f"{TYPE}:0")  # torch knows the name from here on
LIBRARIES = [torch.library.Library("_", "IMPL", key) for key in ("PrivateUse1", "AutocastPrivateUse1")]
LIBRARIES[0].fallback(compute)  # in the thread that computes gradients, where the modes are not active
LIBRARIES[1].fallback(torch.library.fallthrough_kernel)


@contextmanager
def simulated_gpu() -> Iterator[str]:
    """Make the device usable and yield its name."""
    original = torch.Generator
    torch.Generator = Generator  # type: ignore[misc]
    try:
        with Functions(), Operations():
            yield str(DEVICE)
    finally:
        torch.Generator = original  # type: ignore[misc]
