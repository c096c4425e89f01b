"""A second device for machines that have none: its tensors hold numbers, and torch takes them for another device's.

Nothing reaches it but by `.to(device)` or a factory with `device=`, and nothing leaves it but by `.cpu()`: an operation
that mixes it with tensors of the CPU fails, and so does `.numpy()`, as they would on a GPU. The arithmetic is the CPU's
own, so results can be compared bit for bit. As on Apple's GPUs, there is no float64.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

#: Operations that may read the CPU and write to another device, or the other way around.
_COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from"}
#: Where a place of the CPU may index rows of another device: torch allows it on a GPU as well.
_MAY_BE_INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class FakeTensor(Tensor):
    """A tensor of the second device; `values` is the tensor of the CPU that has its numbers."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "FakeTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device("fake", 0),
            requires_grad=values.requires_grad,
        )

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"FakeTensor({torch.Tensor.__repr__(self.values)})"

    def tolist(self) -> list:
        return self.values.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _perform(operation, *args, **(kwargs or {}))


def _perform(operation, *args, **kwargs):
    """Perform an operation on the CPU, and give its results to the device that they would be on."""
    name = operation._schema.name
    if name == "aten::_has_compatible_shallow_copy_type":
        return False  # a module that is moved gets new parameters
    tensors = _tensors((args, kwargs))
    wanted = kwargs.get("device")
    is_fake = [isinstance(tensor, FakeTensor) for tensor in tensors]
    to_fake = torch.device(wanted).type == "fake" if wanted is not None else any(is_fake)
    if name not in _COPIES and any(is_fake) and not all(is_fake):
        _check_mixed(name, tensors)
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain_args, plain_kwargs = tree_map_only(FakeTensor, lambda tensor: tensor.values, (args, kwargs))
    with torch.inference_mode(False):  # else a view of what was made outside of that mode could not be wrapped
        results = operation(*plain_args, **plain_kwargs)
        return _results(name, args, results, tensors, to_fake)


def _results(name, args, results, tensors, to_fake):
    """Wrap what is on the device; a tensor that was written to is the one that was given."""
    if not to_fake and not (name == "aten::copy_" and isinstance(args[0], FakeTensor)):
        return results
    known = {id(tensor.values): tensor for tensor in tensors if isinstance(tensor, FakeTensor)}
    return tree_map_only(Tensor, lambda tensor: _faked(tensor, known, name), results)


def _faked(values: Tensor, known: dict[int, FakeTensor], name: str) -> FakeTensor:
    if values.dtype == torch.float64:
        raise TypeError(f"{name} would make float64 numbers on a device that may have none")
    if id(values) not in known:
        return FakeTensor(values)
    if known[id(values)].shape != values.shape:
        raise NotImplementedError(f"{name} changes the size of a tensor, which the fake device cannot")
    return known[id(values)]


def _check_mixed(name: str, tensors: list[Tensor]) -> None:
    """Refuse tensors of two devices; a single number of the CPU, and places that index, may be used anywhere."""
    strangers = [tensor for tensor in tensors if not isinstance(tensor, FakeTensor) and tensor.dim() > 0]
    if name in _MAY_BE_INDEXED and isinstance(tensors[0], FakeTensor):
        strangers = [tensor for tensor in strangers if tensor.dtype.is_floating_point]
    if strangers:
        raise RuntimeError(f"{name} got tensors of two devices: fake:0 and cpu, {tuple(strangers[0].shape)}")


def _tensors(tree) -> list[Tensor]:
    found: list[Tensor] = []
    tree_map_only(Tensor, found.append, tree)
    return found


def _arange(*ends, **options) -> FakeTensor:
    """Like torch's own, which would make an empty tensor and change its size: a wrapper's cannot change."""
    return FakeTensor(torch.arange(*ends, dtype=options.get("dtype")))


class _Module(_DummyBackendModule):
    """What torch asks a kind of device for."""

    def manual_seed_all(self, seed: int) -> None:
        """Dropout draws from the CPU here, which is seeded anyway."""

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_rng_state(self, device) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device) -> None:
        torch.set_rng_state(state)


# When this module is imported, not when the device is first used: by then, torch may have counted its devices.
_setup_privateuseone_for_python_backend("fake", backend_module=_Module())
_LIBRARY = torch.library.Library("_", "IMPL")
_LIBRARY.fallback(_perform, "PrivateUse1")
_ATEN = torch.library.Library("aten", "IMPL")
for _name in ("arange", "arange.start", "arange.start_step"):
    _ATEN.impl(_name, _arange, "PrivateUse1")
FAKE_DEVICE = torch.device("fake", 0)


def devices_of(model: object) -> set[str]:
    """The kinds of devices that the tensors and modules of a model are on."""
    found = [value for value in vars(model).values() if isinstance(value, Tensor)]
    modules = [value for value in vars(model).values() if isinstance(value, torch.nn.Module)]
    found += [parameter for module in modules for parameter in module.parameters()]
    return {tensor.device.type for tensor in found}
