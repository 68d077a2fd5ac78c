"""PyTorch's modules at the door: `fit` trains an `nn.Sequential` in place, `load_module` makes one of a trained model.

layers   which modules are known, and what an `nn.Sequential` is made of
data     tensors, arrays, a Dataset or a DataLoader as arrays
fit      training in place
load     a model as a module, its preprocessing included
"""

from pdadmm.modules.fit import Fitted, fit
from pdadmm.modules.load import Restore, Scale, as_module, from_module, load_module

__all__ = ["Fitted", "Restore", "Scale", "as_module", "fit", "from_module", "load_module"]
