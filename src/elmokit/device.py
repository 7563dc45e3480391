"""A name becomes a device, refused where there is none."""

import torch

from elmokit.errors import InputError


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name, where numbers can be kept."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"device {str(name)!r} cannot be used here ({why}); try cpu") from None
    return device
